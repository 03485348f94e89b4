"""Which worker runs which file, and in which order."""

import tomllib
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

END_TO_END = "tests/e2e"
SLOW_FILES = Path(__file__).with_name("slow_files.toml")


@cache
def slow_files() -> dict[str, float]:
    """Seconds by file; a file that is not listed is fast."""
    seconds: dict[str, float] = tomllib.loads(SLOW_FILES.read_text())["seconds"]
    return seconds


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay in one worker, and the slowest files come first.

    All end-to-end tests, which share one cluster, are one unit for one worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        return END_TO_END if nodeid.startswith(f"{END_TO_END}/") else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        longest = max(self.workqueue, key=lambda scope: slow_files().get(scope, 0.0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
