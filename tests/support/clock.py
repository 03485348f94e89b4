"""A clock that a test moves on."""

import time


class Clock:
    """The real clock, and the seconds by which the test has moved it on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + self.ahead
