"""What time each utilisation sample of a process stands for.

Drivers answer in one of two ways. Most give one entry per process: its mean since the moment that they
were asked from, up to the last time that they saw it run. Others give every sample that they took, each
about one period. The sum of utilisation times cover is the busy time with both, however often one looks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FUTURE_US = 60_000_000  # further ahead of our clock no driver is
LAG_US = 1_000_000  # by how much the time varies after which a driver shows a sample
_LONG_QUIET_US = 600_000_000
_SHORTEST_PERIOD_US = 10_000  # stamps that are closer are one moment, not a period


@dataclass(frozen=True, slots=True)
class ClockTime:
    """Now, on the clock that stamps follow and that people set, and on the one that nobody sets."""

    clock_us: int
    uptime_us: int


class SampleTimeline:
    """The samples of one device: how far they were read, and what the new ones cover."""

    def __init__(self) -> None:
        self._newest_us = 0
        self._looked: ClockTime | None = None
        self._answered: ClockTime | None = None
        """The last look that gave samples."""
        self._answer_spans_us = 0
        """From the look before that one until it: its newest stamp is from this time."""
        self._period_us: int | None = None
        """Of a driver that gives every sample; None while it has not shown that it does."""

    def since_us(self, now: ClockTime) -> int:
        """The moment from which to ask; 0 is all that the driver has."""
        if self._newest_us > now.clock_us + FUTURE_US:  # the clock was set back
            return now.clock_us
        if self._period_us is not None or self._looked is None or self._answered is None:
            return self._newest_us
        # A mean from the newest stamp on is thinned, down to nothing, by the time in which nobody ran:
        # ask from the last look, as far as the driver's clock can be told from the newest stamp.
        quiet_us = self._looked.uptime_us - self._answered.uptime_us
        clock_went_us = self._looked.clock_us - self._answered.clock_us
        if quiet_us > _LONG_QUIET_US or abs(clock_went_us - quiet_us) > LAG_US // 2:
            return self._newest_us
        return self._newest_us + max(0, quiet_us - LAG_US)

    def covers_us(self, since_us: int, samples: Sequence[tuple[int, int]], now: ClockTime) -> list[int]:
        """The time that each sample (pid, stamp) of the answer covers, which was asked from `since_us`."""
        gaps_us = self._gaps(since_us, samples)
        looked, self._looked = self._looked, now
        elapsed_us = 0 if looked is None else now.uptime_us - looked.uptime_us
        if since_us == 0:
            covers_us = [0] * len(samples)  # they may be means over minutes before anybody looked
        else:
            # The newest stamp may be older than what the driver keeps, and a clock may be set.
            longest_us = self._answer_spans_us + elapsed_us + LAG_US
            covers_us = [min(max(0, self._one_period(gap_us)), longest_us) for gap_us in gaps_us]
        if samples:
            self._newest_us = max(stamp_us for _, stamp_us in samples)
            self._answered, self._answer_spans_us = now, elapsed_us
        elif self._newest_us > now.clock_us + FUTURE_US:
            self._newest_us = since_us
        return covers_us

    def _gaps(self, since_us: int, samples: Sequence[tuple[int, int]]) -> list[int]:
        """From the sample of the same process before it, or from `since_us`. Learns the driver's period."""
        gaps_us = [0] * len(samples)
        last: dict[int, int] = {}
        for place in sorted(range(len(samples)), key=lambda place: samples[place][1]):
            pid, stamp_us = samples[place]
            gap_us = gaps_us[place] = stamp_us - last.get(pid, since_us)
            if pid in last and gap_us >= _SHORTEST_PERIOD_US:
                self._period_us = min(gap_us, self._period_us or gap_us)
            last[pid] = stamp_us
        return gaps_us

    def _one_period(self, gap_us: int) -> int:
        """A sample after a longer gap is about its own period: the process slept before that."""
        if self._period_us is None or gap_us < 1.5 * self._period_us:  # periods are not quite equal
            return gap_us
        return self._period_us
