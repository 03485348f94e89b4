"""Long commands, shown as they go: a line that moves on a terminal, a line now and then elsewhere."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

SECONDS_BETWEEN_LINES = 20


class Failed(Exception):
    """Something could not be done; the text says what and, where known, what to do about it."""


class Work:
    """One piece of long work. All that its commands print goes to `log`."""

    def __init__(self, title: str, log: Path, screen: TextIO = sys.stderr) -> None:
        self.title = title
        self.log = log
        self.screen = screen
        self.started = time.monotonic()
        log.write_text("")

    def say(self, text: str) -> None:
        print(f"{self.title}: {text}", file=self.screen, flush=True)

    def run(
        self,
        step: str,
        command: Sequence[str | Path],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run one command to its end and return what it printed. Raises Failed."""
        begin = self.log.stat().st_size
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._watch(step, process)
        except BaseException:
            # The command may have started others (compilers): its whole group ends with us.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        printed = self.log.read_bytes()[begin:].decode(errors="replace")
        if process.returncode:
            last = "\n".join(f"    {line}" for line in printed.splitlines()[-15:])
            how = f"{self.title}: {step} failed (exit code {process.returncode})"
            raise Failed(f"{how}:\n{last}\nThe whole log: {self.log}")
        return printed

    def _watch(self, step: str, process: subprocess.Popen[bytes]) -> None:
        terminal = self.screen.isatty()
        begin = shown = time.monotonic()
        while True:
            try:
                process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if terminal:
                self.screen.write(f"\r\x1b[K{self.title}: {step} ({now - begin:.0f} s)")
                self.screen.flush()
            elif now - shown >= SECONDS_BETWEEN_LINES:
                shown = now
                self.say(f"{step} ({now - begin:.0f} s)")
        if terminal:
            self.screen.write("\r\x1b[K")
        self.say(f"{step}: {time.monotonic() - begin:.1f} s")
