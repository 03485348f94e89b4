"""Schedules: spans and moments in whole seconds of simulated time, optionally repeated.

All results are computed from the time alone, so that a time far ahead costs no more than the next
second. Repetition divides the day, which makes the whole simulation periodic.
"""

from dataclasses import dataclass

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` up to, and without, `stop` (None: without end); repeated each `every` seconds."""

    start: int = 0
    stop: int | None = None
    every: int | None = None

    def began(self, second: int) -> int | None:
        """The start of the run that includes this second; None if no run does."""
        if second < self.start:
            return None
        start = self.start
        if self.every is not None:
            start += (second - self.start) // self.every * self.every
        if self.stop is not None and second - start >= self.stop - self.start:
            return None
        return start

    def run(self, second: int) -> int:
        """The number of the run at this second, from 0."""
        return 0 if self.every is None else max(0, second - self.start) // self.every

    def runs(self, first: int, end: int) -> range:
        """The runs that include any of the seconds from `first` up to `end`."""
        if not self.touches(first, end):
            return range(0)
        passed = first >= self.start and self.began(first) is None
        return range(self.run(first) + passed, self.run(end - 1) + 1)

    def start_of(self, run: int) -> int:
        return self.start + run * (self.every or 0)

    def overlap(self, until: int) -> int:
        """How many of the seconds before `until` are in the span."""
        passed = max(0, until - self.start)
        if self.stop is None:
            return passed
        length = self.stop - self.start
        if self.every is None:
            return min(passed, length)
        runs, rest = divmod(passed, self.every)
        return runs * length + min(rest, length)

    def touches(self, first: int, end: int) -> bool:
        """Whether any of the seconds from `first` up to `end` is in the span."""
        return self.overlap(end) > self.overlap(first)

    @property
    def settled(self) -> int:
        """From this second on the span is the same each day."""
        return self.stop if self.stop is not None and self.every is None else self.start


@dataclass(frozen=True, slots=True)
class Moment:
    """One second in which an event occurs; repeated each `every` seconds."""

    at: int
    every: int | None = None

    def count(self, second: int) -> int:
        """The number of occurrences up to and including this second."""
        if second < self.at:
            return 0
        return 1 if self.every is None else 1 + (second - self.at) // self.every

    def last(self, second: int) -> int | None:
        """When it last happened."""
        count = self.count(second)
        return None if count == 0 else self.at + (count - 1) * (self.every or 0)
