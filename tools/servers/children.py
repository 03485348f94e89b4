"""Child processes that end with this process: started, watched and stopped by process id."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tools import Failed

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(slots=True)
class Child:
    """A program to run in `directory`; its output goes to `log`."""

    name: str
    command: Sequence[str | Path]
    directory: Path
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)


class Children:
    """A context manager: at its end no child is left, even after an exception."""

    def __init__(self, seconds_to_stop: float = 10) -> None:
        self.seconds_to_stop = seconds_to_stop
        self._children: list[Child] = []

    def start(self, child: Child) -> Child:
        with child.log.open("wb") as log:
            child.process = subprocess.Popen(
                child.command,
                cwd=child.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own process group: Ctrl-C reaches only this process, which stops the children in order.
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # no threads run here
            )
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raises Failed, with the last lines of its log, when a child has ended."""
        for child in self._children:
            code = child.process.poll() if child.process else None
            if code is not None:
                how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
                raise Failed(f"{child.name} ended ({how}). Last lines of its log:\n{_last_lines(child.log)}")

    def end(self, child: Child) -> None:
        """Stops one child, which may be started again."""
        if child.process is not None:
            child.process.terminate()
            try:
                child.process.wait(self.seconds_to_stop)
            except subprocess.TimeoutExpired:
                os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
        self.dismiss(child)

    def dismiss(self, child: Child) -> None:
        """Stops watching a child that has ended; it may be started again."""
        self._children.remove(child)

    def stop(self) -> None:
        """Stops the children in reverse order; kills those that do not end in time."""
        running = [child.process for child in reversed(self._children) if child.process]
        deadline = time.monotonic() + self.seconds_to_stop
        for process in running:
            if process.poll() is None:
                process.terminate()
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._children.clear()

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def die_with_parent() -> None:
    """Runs between fork and exec: the kernel ends the child when this process is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _last_lines(log: Path, most: int = 15) -> str:
    lines = log.read_text(errors="replace").splitlines()[-most:]
    return "\n".join(f"    {line}" for line in lines) or "    (no output)"
