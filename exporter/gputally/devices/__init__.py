"""Readers: from hardware or a driver to `Reading`s. One file per reader, named like its flag value.

A reader owns its hardware library, converts units, and turns every sentinel into `None`. It may be
called from one thread at a time and may block; `collect` guards it.
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
    """What one look at the hardware gave."""

    readings: tuple[Reading, ...]
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(field, error) -> count since the reader was made; only ever grows."""


class Reader(Protocol):
    """A source of readings. `name` is the flag value and the `source` label."""

    name: str

    def read(self) -> Report:
        """Look once. Raises Unavailable; whatever else it raises is a bug that `collect` contains."""
        ...

    def close(self) -> None:
        """Let go of the hardware."""
        ...
