"""Waiting for a condition: the one way in which tools and tests wait."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TypeVar

from tools import Failed

T = TypeVar("T")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1


def wait_until(
    condition: Callable[[], T | None],
    what: str = "the condition holds",
    seconds: float = 60,
    *,
    check: Callable[[], object] | None = None,
    ignore: tuple[type[Exception], ...] = (),
    state: Callable[[], object] | None = None,
) -> T:
    """The first true result of `condition`. Raises Failed, with `what` it waited for, after `seconds`.

    `check` is called before each attempt and may raise to end the wait. Exceptions in `ignore` count as a
    false result; the last one is part of the error. `state` is part of the error, too.
    """
    deadline = time.monotonic() + seconds
    pause = _SHORTEST_PAUSE
    while True:
        last = ""
        if check:
            check()
        try:
            if result := condition():
                return result
        except ignore as error:
            last = f": {error}"
        if time.monotonic() > deadline:
            details = f"\n{state()}" if state else ""
            raise Failed(f"timed out after {seconds:g} s: {what}{last}{details}")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def responds(url: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET of this URL returns status 200."""
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
