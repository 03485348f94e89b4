"""Readers: from hardware or a driver to `Reading`. One package per reader, named as its value of --reader.

A reader owns its hardware library, converts units, and turns every sentinel into `None`. It is
called from one thread at a time and may block; `sampling` guards it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gputally.model import Reading

Errors = Counter[tuple[str, str]]
"""(field, error) -> count."""
Values = dict[str, Any]
"""Fields of a `Reading` by name; unknown values are absent or None."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one sample of the hardware."""

    readings: tuple[Reading, ...]
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(field, error) -> count since the reader was built; never decreases."""
    exit_code: int | None = None
    """Of the command that was run for it, where the reader runs one."""


class Reader(Protocol):
    """A source of readings. `name` is the flag value and the `source` label."""

    name: str

    def read(self) -> Report:
        """Reads all GPUs once. Raises Unavailable; any other exception is a bug that `sampling` contains."""
        ...

    def close(self) -> None:
        """Releases the hardware."""
        ...
