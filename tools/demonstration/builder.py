"""Installs the demo's programs in a process of its own, in the order in which the demo needs them."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import ROOT, Failed
from tools.dependencies import programs
from tools.servers.children import die_with_parent

_FAILED = "-- not installed --\n"


class Builder:
    """The process, and what it is doing. `start` it before any thread."""

    def __init__(self, wanted: Sequence[str], directory: Path) -> None:
        self._log = directory / "programs.log"
        self._missing = [program for program in wanted if programs.find(program) is None]
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = time.monotonic()

    @property
    def missing(self) -> Sequence[str]:
        return self._missing

    def start(self) -> None:
        if not self._missing:
            return
        command = [sys.executable, "-P", "-m", "tools.demonstration.builder", *self._missing]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # no threads run here
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def progress(self) -> str:
        """What is being built, for how long, and how long it usually takes; empty when nothing is."""
        if not self.running:
            return ""
        usual = programs.usual_minutes()
        sets = [f"{title} (usually {usual.get(title, 0) or 0.5:g} min)" for title in self._unfinished()]
        seconds = time.monotonic() - self._begun
        so_far = f"{seconds // 60:.0f}:{seconds % 60:02.0f}"
        return f"building {', '.join(sets) or 'programs'}: {so_far}; only on the first start"

    def failures(self) -> str:
        """What could not be installed, and why."""
        return self._log.read_text(errors="replace").rpartition(_FAILED)[2].strip() if self._process else ""

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _unfinished(self) -> list[str]:
        """The titles of the sets that have begun and are not ready."""
        titles: dict[str, None] = {}
        for line in self._log.read_text(errors="replace").splitlines():
            title, _, step = line.partition(": ")
            if step.startswith("ready after"):
                titles.pop(title, None)
            elif title in programs.usual_minutes():
                titles[title] = None
        return [*titles]


def main(wanted: Sequence[str]) -> int:
    try:
        failures = programs.install(wanted, in_order=True)
    except Failed as failure:
        failures = [failure]
    if failures:
        print(_FAILED, *failures, sep="", end="\n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
