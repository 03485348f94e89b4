"""What the live page and its JSON say besides the snapshot, and which owners they name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """The exporter, as its pages present it."""

    version: str
    hostname: str
    interval_seconds: float
    pods: bool = True
    hosts: bool = True
    unattributed: bool = True
    processes: bool = False
    links: tuple[tuple[str, str], ...] = ()
    """Titles and addresses."""
