"""The rate of a counter, for readers whose library has only the counter."""

from gputally.model import Labelled


class CounterRate:
    """Remembers the last sample of one counter of one device."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def per_second(self, counts: Labelled | None, at_seconds: float) -> float | None:
        """The rate of the sum since the last sample; None at the first one, and after a reset."""
        before = self._last
        self._last = None if counts is None else (at_seconds, sum(counts.values()))
        if before is None or self._last is None:
            return None
        seconds, increase = (after - earlier for after, earlier in zip(self._last, before, strict=True))
        return increase / seconds if seconds > 0 and increase >= 0 else None
