"""What the server serves: pages that somebody else has made. It knows no GPUs."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Page:
    """A finished body. `gzipped` says that `body` is compressed and must be announced so."""

    content_type: str
    body: bytes
    gzipped: bool = False
    status: int = 200


class Pages(Protocol):
    """Called on the event loop: each method must answer from memory, in microseconds."""

    def metrics(self, path: str, openmetrics: bool, gzip: bool) -> Page:
        """The last scrape of this path in the format asked for; may decline to compress."""
        ...

    def landing(self) -> Page:
        """The page for people."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether the metrics are worth scraping, and one line that says why or why not."""
        ...
