"""Errors that a GPU has detected, by block of the chip: ras/<block>_err_count.

A read is not passive: the driver queries the hardware, and on most chips resets its counters after it has
added them to its own (amdgpu_ras_sysfs_read in the kernel's amdgpu_ras.c). So the files are read once a
minute; in between, the last counts are reported. While the GPU resets, the files have a sentence instead of
counts, which is neither an error nor a count.
"""

import time
from collections.abc import Callable

from gputally.devices.amdgpu.files import Files, parse_counts
from gputally.model import Labelled

_SUFFIX = "_err_count"
_TYPES = {"ue": "uncorrected", "ce": "corrected", "de": "deferred"}
_INACCESSIBLE = "Query currently inaccessible"
_AGAIN_SECONDS = 60


class RasCounters:
    """Reads the counters of one GPU, since the driver was loaded."""

    def __init__(self, files: Files, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock = clock
        self._due = 0.0
        self._counts: dict[str, dict[str, int]] = {}
        self._known: set[str] = set()

    def read(self) -> tuple[Labelled | None, Labelled | None]:
        """The errors by block and type, and by type; of the last minute."""
        if self._clock() >= self._due:
            names = (name for name in self._files.names("ras") if name.endswith(_SUFFIX))
            self._counts = {
                name.removesuffix(_SUFFIX): counts for name in names if (counts := self._read_block(name))
            }
            self._known |= self._counts.keys()
            # Without any, the GPU resets or is lost: the next sample tries again.
            self._due = self._clock() + _AGAIN_SECONDS if self._counts else 0.0
        by_block: Labelled = {
            (block, kind): count for block, counts in self._counts.items() for kind, count in counts.items()
        }
        return by_block or None, self._sum_blocks()

    def _read_block(self, name: str) -> dict[str, int]:
        text = self._files.text("ras_errors", f"ras/{name}")
        if text is None or text == _INACCESSIBLE:
            return {}
        counts = {_TYPES[short]: count for short, count in parse_counts(text).items() if short in _TYPES}
        if not counts:
            self._files.errors["ras_errors", "malformed"] += 1
        return counts

    def _sum_blocks(self) -> Labelled | None:
        """Without deferred errors: they become uncorrected errors if the data is used.

        None while a block is missing that was there before: the sum would decrease, and increase again.
        """
        if self._known - self._counts.keys():
            return None
        sums: dict[tuple[str, ...], float] = {}
        for counts in self._counts.values():
            for kind, count in counts.items():
                if kind != "deferred":
                    sums[kind, "volatile"] = sums.get((kind, "volatile"), 0) + count
        return sums or None
