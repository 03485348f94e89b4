"""A program in a terminal: a real pty, and an emulator that keeps what is on its screen."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyte

from tools import Failed

_SECONDS = 60.0
_SECONDS_TO_SETTLE = 1.0
_SECONDS_BETWEEN_LOOKS = 0.05


class Terminal:
    """What is on the screen of a program, and its keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, columns: int, lines: int) -> None:
        self.process = process
        self.written = bytearray()
        """Everything that the program wrote."""
        self._master = master
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    def wait_for(self, *words: str) -> str:
        """The screen as soon as it has all these words."""
        return self.wait_until(lambda text: all(word in text for word in words), f"the screen has {words}")

    def wait_until(self, condition: Callable[[str], bool], what: str) -> str:
        deadline = time.monotonic() + _SECONDS
        while not condition(self.text):
            if not self._receive(_SECONDS_BETWEEN_LOOKS) and self.process.poll() is not None:
                raise Failed(f"the program ended before {what}:\n{self.text}")
            if time.monotonic() > deadline:
                raise Failed(f"timed out: {what}:\n{self.text}")
        return self.text

    def settle(self) -> None:
        """Returns when nothing more was written for a while."""
        while self._receive(_SECONDS_TO_SETTLE):
            pass

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """Reads the rest of the output, and returns the exit status."""
        deadline = time.monotonic() + _SECONDS
        while self._receive(_SECONDS_BETWEEN_LOOKS) or self.process.poll() is None:
            if time.monotonic() > deadline:
                raise Failed(f"the program does not end:\n{self.text}")
        return self.process.wait()

    @property
    def attributes(self) -> list[object]:
        """The settings of the terminal: echo, raw mode and so on."""
        return termios.tcgetattr(self._master)

    def _receive(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the program has closed its side
            return False
        self.written += data
        self._stream.feed(data)
        return bool(data)


@contextmanager
def in_terminal(
    arguments: Sequence[str], columns: int, lines: int, environment: Mapping[str, str] = {}
) -> Iterator[Terminal]:
    """`python -m gputally` with these arguments, in a terminal of this size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    usual = {"TERM": "xterm-256color", "TZ": "UTC", "LANG": "C.UTF-8", "COLUMNS": "", "LINES": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "gputally", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **usual, **environment},
        start_new_session=True,
        # So that it gets SIGWINCH, SIGHUP, and SIGINT from the keyboard.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # no threads run here
    )
    try:
        terminal = Terminal(process, master, columns, lines)
        yield terminal
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(slave)
        os.close(master)
