"""The time that each utilisation sample of a process covers.

Drivers return samples in one of two ways. Most return one entry per process: its mean from the requested time
to the last time it ran. Others return every sample, each over about one period. With both, the sum of
utilisation x covered time is the busy time, whatever the sampling interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FUTURE_US = 60_000_000  # a timestamp further ahead of the clock is garbage
LAG_US = 1_000_000  # the delay after which a driver returns a sample varies by this
_LONG_QUIET_US = 600_000_000
_SHORTEST_PERIOD_US = 10_000  # closer timestamps are equal, not a period apart


@dataclass(frozen=True, slots=True)
class ClockTime:
    """Now, on the wall clock, which timestamps follow and which may be set, and on the monotonic clock."""

    clock_us: int
    uptime_us: int


class SampleTimeline:
    """The samples of one device: the newest one that was read, and the time that new ones cover."""

    def __init__(self) -> None:
        self._newest_us = 0
        self._last_call: ClockTime | None = None
        self._last_samples: ClockTime | None = None
        """The last call that returned samples."""
        self._samples_span_us = 0
        """The time from the call before that one until it, in which its newest timestamp lies."""
        self._period_us: int | None = None
        """Period of a driver that returns every sample; None until it returned two of one process."""

    def since_us(self, now: ClockTime) -> int:
        """The time from which to request samples; 0 is all that the driver has."""
        if self._newest_us > now.clock_us + FUTURE_US:  # the clock was set back
            return now.clock_us
        if self._period_us is not None or self._last_call is None or self._last_samples is None:
            return self._newest_us
        # A mean from the newest timestamp on would include the time in which no process ran: request samples
        # from the last call on, by the driver's clock as far as it follows from the newest timestamp.
        quiet_us = self._last_call.uptime_us - self._last_samples.uptime_us
        clock_went_us = self._last_call.clock_us - self._last_samples.clock_us
        if quiet_us > _LONG_QUIET_US or abs(clock_went_us - quiet_us) > LAG_US // 2:
            return self._newest_us
        return self._newest_us + max(0, quiet_us - LAG_US)

    def covers_us(self, since_us: int, samples: Sequence[tuple[int, int]], now: ClockTime) -> list[int]:
        """The time that each sample (pid, timestamp) covers, of samples requested from `since_us` on."""
        gaps_us = self._gaps(since_us, samples)
        last_call, self._last_call = self._last_call, now
        elapsed_us = 0 if last_call is None else now.uptime_us - last_call.uptime_us
        if since_us == 0:
            covers_us = [0] * len(samples)  # they may be means over minutes before the exporter started
        else:
            # The newest timestamp may be older than the driver's buffer, and the clock may be set.
            longest_us = self._samples_span_us + elapsed_us + LAG_US
            covers_us = [min(max(0, self._one_period(gap_us)), longest_us) for gap_us in gaps_us]
        if samples:
            self._newest_us = max(stamp_us for _, stamp_us in samples)
            self._last_samples, self._samples_span_us = now, elapsed_us
        elif self._newest_us > now.clock_us + FUTURE_US:
            self._newest_us = since_us
        return covers_us

    def _gaps(self, since_us: int, samples: Sequence[tuple[int, int]]) -> list[int]:
        """The time since the process's sample before, or since `since_us`. Learns the driver's period."""
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
        """After a longer gap a sample covers one period: the process did not run before."""
        if self._period_us is None or gap_us < 1.5 * self._period_us:  # periods are not quite equal
            return gap_us
        return self._period_us
