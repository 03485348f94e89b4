"""What the demo prints: lines that stay, and one line of progress."""

import sys
import time
from typing import TextIO

_SECONDS_BETWEEN_LINES = 30.0


class Console:
    """On a terminal the progress is one line that is overwritten, otherwise a line now and then."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._moving = out.isatty()
        self._shown_at = time.monotonic()
        self._open = False

    def say(self, text: str) -> None:
        self._clear()
        print(text, file=self._out, flush=True)

    def progress(self, text: str) -> None:
        """`text` is empty when nothing is being done."""
        if self._moving:
            self._clear()
            self._out.write(text)
            self._out.flush()
            self._open = bool(text)
        elif text and time.monotonic() - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = time.monotonic()
            print(text, file=self._out, flush=True)

    def _clear(self) -> None:
        if self._open:
            self._out.write("\r\x1b[K")
            self._open = False
