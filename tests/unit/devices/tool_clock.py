"""A clock that only a test's tools move, so that a tool is neither too slow nor too fast for a timeout."""

import time
from pathlib import Path
from types import ModuleType

import pytest


class ToolClock:
    """Stands for the module `time`. Each line of its file is one second."""

    def __init__(self, file: Path, patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self._file = file
        file.touch()
        for module in modules:
            patch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return float(self._file.read_bytes().count(b"\n"))

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def passes(self, seconds: int) -> str:
        """The shell command after which so many seconds have passed."""
        return f"yes | head -n {seconds} >> {self._file}"
