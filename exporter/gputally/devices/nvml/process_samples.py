"""The SM time of each process, from the driver's answers about the samples since a given time.

The driver samples the GPU about six times a second, assigns each sample to the one process that was active,
and keeps the last 72. An answer has one entry per process: the sum of its samples, divided by the number of
all samples of the GPU since the requested time, and the time of its own last sample. So all means of an
answer cover the same time, whatever their timestamps. Some drivers return every sample instead.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from gputally.model import ProcessSample

FUTURE_US = 60_000_000  # a timestamp further ahead of the clock is garbage
PERIOD_US = 1_000_000 // 6
KEPT_US = 72 * 1_000_000 // 6
"""The time that the driver's samples cover: of a longer interval, the earlier part is not known."""
_CLOCK_WAS_SET_US = 500_000
_SHORTEST_PERIOD_US = 50_000  # closer timestamps are of one sample
_ALL_BUSY = 95  # percent: hardly a sample of such an answer is idle
_OWN_CLOCK_US = 90_000_000  # no driver keeps samples for so long: an older timestamp is of another clock
_REMEMBERED = 60  # answers: what one odd answer seems to say about the driver is forgotten
_CARRY_US = 1_000_000  # running sums are this much older than the clock


@dataclass(frozen=True, slots=True)
class ClockTime:
    """Now, on the wall clock, which may be set, and on the monotonic clock."""

    clock_us: int
    uptime_us: int


class Entry(NamedTuple):
    """One entry of the driver's answer, with utilisation in percent."""

    pid: int
    timestamp_us: int
    sm: int
    memory: int
    encoder: int
    decoder: int


class SampleTimeline:
    """The answers about one device, one after the other."""

    def __init__(self) -> None:
        self._asked: ClockTime | None = None
        self._newest: Entry | None = None
        self._counted: dict[int, int] = {}
        """Pid -> time of its last sample, in the last answer."""
        self._delays_us: deque[int] = deque(maxlen=_REMEMBERED)
        """The age of the driver's newest sample, on the monotonic clock, where an answer tells it."""
        self._every_sample = False
        """The driver returns every sample. Such a driver returns the newest one again when it is requested
        again, while a mean has changed by then: each answer proves it anew."""
        self._repeats = False
        """The last question requested the newest entry again."""
        self._periods_us: deque[int] = deque(maxlen=_REMEMBERED)

    def since_us(self, now: ClockTime) -> int:
        """The time from which to request samples: that of the last question, on the driver's clock."""
        if self._asked is None:
            return 0  # all that the driver has
        clock_us, uptime_us = now.clock_us - self._asked.clock_us, now.uptime_us - self._asked.uptime_us
        if abs(clock_us - uptime_us) > _CLOCK_WAS_SET_US:
            self._delays_us.clear()
            self._newest = None
        if self._repeats and self._newest is not None:
            return self._newest.timestamp_us - 1
        return max(0, self._asked.uptime_us - self._behind_us(now))

    def samples(self, entries: Sequence[Entry], now: ClockTime) -> list[ProcessSample]:
        """One sample per process that ran since the last question; the first answer covers no time."""
        before, asked = self._newest, self._asked
        covers_us = 0 if asked is None else min(now.uptime_us - asked.uptime_us, KEPT_US)
        every_sample = self._returns_every_sample(entries, now)
        self._asked = now
        if not entries:
            return []
        self._newest = max(entries, key=lambda one: one.timestamp_us)
        if every_sample:
            return _sum_up(self._weigh_each(entries, before), covers_us)
        means = {one.pid: one for one in sorted(entries, key=lambda one: one.timestamp_us)}
        counted, self._counted = self._counted, {pid: one.timestamp_us for pid, one in means.items()}
        self._learn_delay(means.values(), self._newest, now)
        return [
            _sample(one, [percent / 100 for percent in one[2:]], covers_us)
            for pid, one in means.items()
            if counted.get(pid) != one.timestamp_us  # else it did not run since the last answer
        ]

    def _behind_us(self, now: ClockTime) -> int:
        """The age of the driver's newest sample. Until an answer tells it: none, and its clock is ours."""
        same_clock_us = now.uptime_us - now.clock_us
        # A clock ahead of ours is not followed: a wrong timestamp would hide the samples before it.
        return max(same_clock_us, min(self._delays_us, default=same_clock_us))

    def _learn_delay(self, means: Iterable[Entry], newest: Entry, now: ClockTime) -> None:
        """The newest entry is the driver's newest sample only if the GPU is not idle since then."""
        all_busy = sum(one.sm for one in means) >= _ALL_BUSY
        if all_busy or now.clock_us - newest.timestamp_us > _OWN_CLOCK_US:
            self._delays_us.append(now.uptime_us - newest.timestamp_us)

    def _returns_every_sample(self, entries: Sequence[Entry], now: ClockTime) -> bool:
        several = len({one.pid for one in entries}) < len(entries)
        if not self._repeats:
            self._every_sample = several and sum(one.sm for one in entries) > 100
        elif self._newest in entries:
            self._every_sample = True
        elif self._newest is not None:
            age_us = now.uptime_us - self._behind_us(now) - self._newest.timestamp_us
            self._every_sample &= age_us > KEPT_US // 2  # the driver may not have it any more
        self._repeats = self._every_sample or several
        return self._every_sample

    def _weigh_each(self, entries: Sequence[Entry], before: Entry | None) -> list[tuple[Entry, int]]:
        """Each new entry with the time of its sample: since the one before, or one period after idle time."""
        new = [
            one for one in dict.fromkeys(entries) if before is None or one.timestamp_us > before.timestamp_us
        ]
        stamps = sorted({one.timestamp_us for one in new})
        gaps_us = {stamp: stamp - earlier for earlier, stamp in pairwise(stamps)}
        periods_us = [gap_us for gap_us in gaps_us.values() if gap_us >= _SHORTEST_PERIOD_US]
        if periods_us:
            self._periods_us.append(min(periods_us))
        period_us = min(self._periods_us, default=PERIOD_US)
        if before is not None and stamps:
            gaps_us[stamps[0]] = stamps[0] - before.timestamp_us
        weighted = []
        for one in new:
            gap_us = gaps_us.get(one.timestamp_us, period_us)
            weighted.append((one, gap_us if gap_us < 1.5 * period_us else period_us))
        return weighted


class BusyLimit:
    """Holds the sum of SM time of all processes to the time that has passed."""

    def __init__(self) -> None:
        self._asked_us: int | None = None
        self._carry_us = 0.0

    def hold(self, samples: Iterable[ProcessSample], now: ClockTime) -> tuple[ProcessSample, ...]:
        """The same samples, all reduced by one factor if their sum is too large."""
        samples = tuple(samples)
        limit_us = self._carry_us + (0 if self._asked_us is None else now.uptime_us - self._asked_us)
        busy_us = sum(one.sm_ratio * one.covers_us for one in samples)
        if busy_us > limit_us:
            factor = limit_us / busy_us
            samples = tuple(replace(one, sm_ratio=one.sm_ratio * factor) for one in samples)
        self._asked_us = now.uptime_us
        self._carry_us = min(max(0.0, limit_us - busy_us), _CARRY_US)
        return samples


def _sum_up(weighted: Iterable[tuple[Entry, int]], covers_us: int) -> list[ProcessSample]:
    """One sample per process, of the same activity in `covers_us`."""
    by_pid: dict[int, list[tuple[Entry, int]]] = {}
    for entry, us in weighted:
        by_pid.setdefault(entry.pid, []).append((entry, us))
    samples = []
    for some in by_pid.values():
        sums = [sum(entry[column] * us for entry, us in some) / 100 for column in (2, 3, 4, 5)]
        # There may be one more than fits into the time: the next answer has one less.
        time_us = max(covers_us or KEPT_US, *map(ceil, sums))
        last = max((entry for entry, _ in some), key=lambda entry: entry.timestamp_us)
        samples.append(_sample(last, [one / time_us for one in sums], time_us if covers_us else 0))
    return samples


def _sample(last: Entry, ratios: Iterable[float], covers_us: int) -> ProcessSample:
    sm, memory, encoder, decoder = ratios
    return ProcessSample(last.pid, last.timestamp_us, sm, memory, encoder, decoder, covers_us)
