"""A progress bar on a terminal."""

from collections.abc import Callable
from typing import TextIO

_WIDTH = 30


def progress_bar(out: TextIO) -> Callable[[int, int], None]:
    """A function that shows how many pieces were read; nothing if the output is not a terminal."""
    if not out.isatty():
        return lambda _done, _all: None

    def show(done: int, everything: int) -> None:
        filled = _WIDTH * done // everything
        bar = "#" * filled + "." * (_WIDTH - filled)
        end = "\r\033[K" if done == everything else ""
        out.write(f"\r[{bar}] {done} of {everything} pieces{end}")
        out.flush()

    return show
