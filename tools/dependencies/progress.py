"""Runs long commands and prints progress: an updated line on a terminal, otherwise a line every 20 s."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TextIO

from tools import Failed

SECONDS_BETWEEN_LINES = 20
# Runs a command that the kernel kills when this process is killed (1 is PR_SET_PDEATHSIG). It is set by
# another Python because a process with threads must not run code between fork and exec.
_LEASH = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Work:
    """A sequence of long commands. Their output goes to `log`.

    The line is updated in place only if `alone` is set. Commands fail when another thread sets `stop`.
    """

    def __init__(
        self,
        title: str,
        log: Path,
        screen: TextIO = sys.stderr,
        *,
        alone: bool = True,
        stop: Event | None = None,
    ) -> None:
        self.title = title
        self.log = log
        self.screen = screen
        self.moving = alone and screen.isatty()
        self.stop = stop or Event()
        self.started = time.monotonic()
        log.write_text("")

    def say(self, text: str) -> None:
        # One call: lines of several threads are not mixed.
        self.screen.write(f"{self.title}: {text}\n")
        self.screen.flush()

    def run(
        self,
        step: str,
        command: Sequence[str | Path],
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Runs one command and returns its output. Raises Failed."""
        begin = self.log.stat().st_size
        begun = time.monotonic()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LEASH, *command],
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._watch(step, process)
        except BaseException:
            # The command may have started others (compilers): the whole group is killed.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        took = f"{time.monotonic() - begun:.1f} s"
        self.say(f"{step}: failed after {took}" if process.returncode else f"{step}: {took}")
        printed = self.log.read_bytes()[begin:].decode(errors="replace")
        if process.returncode:
            last = "\n".join(f"    {line}" for line in printed.splitlines()[-15:])
            how = f"{self.title}: {step} failed (exit code {process.returncode})"
            raise Failed(f"{how}:\n{last}\nThe whole log: {self.log}")
        return printed

    def _watch(self, step: str, process: subprocess.Popen[bytes]) -> None:
        begin = shown = time.monotonic()
        while True:
            try:
                process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if self.stop.is_set():
                raise Failed(f"{self.title}: stopped")
            if self.moving:
                self.screen.write(f"\r\x1b[K{self.title}: {step} ({now - begin:.0f} s)")
                self.screen.flush()
            elif now - shown >= SECONDS_BETWEEN_LINES:
                shown = now
                self.say(f"{step} ({now - begin:.0f} s)")
        if self.moving:
            self.screen.write("\r\x1b[K")
