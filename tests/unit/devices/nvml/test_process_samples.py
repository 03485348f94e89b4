"""SM time is the time of the driver's samples: with means and with every sample, whenever it is asked."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputally.devices.nvml.process_samples import KEPT_US, BusyLimit, ClockTime, Entry, SampleTimeline
from gputally.devices.vendors import NVIDIA
from gputally.model import ProcessSample
from tests.support.sample_ring import IDLE, PERIOD_US, Ring, Taken

SECOND = 1_000_000
STARTED = 1_760_000_000 * SECOND

Answer = Callable[[Ring, int, int], list[Entry]]
EVERY_SAMPLE, MEANS = Ring.every_sample, Ring.means

# Two questions find one process at work: a driver of every sample is known by them, and its delay.
BEFORE = [Taken(7, 100, 20)] * 8

SPANS = st.tuples(
    st.one_of(
        st.just([IDLE]),
        st.lists(st.builds(Taken, st.integers(1, 4), st.integers(1, 100), st.integers(0, 100)), min_size=1),
    ),
    st.integers(1, 60),
)
"""A mix of processes that repeats for some samples."""
HISTORIES = st.lists(SPANS, max_size=10).map(
    lambda spans: [mix[place % len(mix)] for mix, samples in spans for place in range(samples)]
)
INTERVALS = st.lists(st.integers(50_000, KEPT_US - SECOND), min_size=1, max_size=40)
LAGS = st.integers(0, SECOND)


def at(moment_us: int) -> ClockTime:
    return ClockTime(moment_us, moment_us - STARTED)


class Asked:
    """What is charged when the driver is asked at these intervals, and what its samples say."""

    def __init__(
        self, answer: Answer, history: Sequence[Taken], intervals: Sequence[int], lag_us: int
    ) -> None:
        history = [*BEFORE, *history]
        ring, timeline, limit = Ring(history, STARTED), SampleTimeline(), BusyLimit()
        for place in (2, len(BEFORE)):
            first_us = STARTED + place * PERIOD_US + lag_us
            timeline.samples(answer(ring, timeline.since_us(at(first_us)), first_us - lag_us), at(first_us))
        limit.hold([], at(first_us))
        end_us = STARTED + len(history) * PERIOD_US + lag_us
        moments = [
            now_us for now_us in accumulate(intervals, initial=first_us) if first_us < now_us <= end_us
        ]
        self.charged: defaultdict[tuple[int, str], float] = defaultdict(float)
        self.tolerance: defaultdict[tuple[int, str], float] = defaultdict(float)
        self.excess_us = 0.0
        """By how much all processes together exceeded the time that had passed, at most."""
        for now_us in moments:
            now = at(now_us)
            since_us = timeline.since_us(now)
            samples = timeline.samples(answer(ring, since_us, now_us - lag_us), now)
            for sample in limit.hold(samples, now):
                self.charged[sample.pid, "sm"] += sample.sm_ratio * sample.covers_us
                self.charged[sample.pid, "memory"] += (sample.memory_ratio or 0) * sample.covers_us
            busy_us = sum(us for (_, kind), us in self.charged.items() if kind == "sm")
            self.excess_us = max(self.excess_us, busy_us - (now_us - first_us))
            self._allow_rounding(ring.between(since_us, now_us - lag_us))
        self.truth: defaultdict[tuple[int, str], float] = defaultdict(float)
        for place, one in enumerate(history):
            if first_us < STARTED + (place + 1) * PERIOD_US + lag_us <= max(moments, default=0):
                self.truth[one.pid, "sm"] += one.sm * PERIOD_US / 100
                self.truth[one.pid, "memory"] += one.memory * PERIOD_US / 100

    def _allow_rounding(self, samples: list[tuple[int, Taken]]) -> None:
        """Half a percent of the time of an answer, and one sample more or less than the driver counted."""
        for kind in ("sm", "memory"):
            for pid in {one.pid for _, one in samples}:
                mean = sum(getattr(one, kind) for _, one in samples if one.pid == pid) / 100 / len(samples)
                self.tolerance[pid, kind] += 0.005 * len(samples) * PERIOD_US + (mean + 0.005) * PERIOD_US


@given(HISTORIES, INTERVALS, LAGS)
@example([IDLE] * 16 + [Taken(1, 100)], [SECOND] * 9, 0)
def test_every_sample_counts_once_and_for_its_own_time(
    history: list[Taken], intervals: list[int], lag_us: int
) -> None:
    asked = Asked(EVERY_SAMPLE, history, intervals, lag_us)
    for key in {*asked.charged, *asked.truth}:
        assert asked.charged[key] == pytest.approx(asked.truth[key], abs=100)
    assert asked.excess_us <= 1


@given(HISTORIES, INTERVALS, LAGS)
@example([IDLE] * 400 + [Taken(1, 100)], [5 * SECOND] * 40, 0)  # one burst after a long idle time
@example([Taken(1, 100), *[IDLE] * 19, *[Taken(1, 100)] * 20], [5 * SECOND] * 2, 0)
@example([Taken(1, 100), Taken(2, 20), *[IDLE] * 18] * 20, [5 * SECOND] * 10, 0)  # their last samples differ
def test_means_are_the_busy_time_of_every_process_within_whole_percents(
    history: list[Taken], intervals: list[int], lag_us: int
) -> None:
    asked = Asked(MEANS, history, intervals, lag_us)
    for key in {*asked.charged, *asked.truth}:
        assert asked.charged[key] == pytest.approx(asked.truth[key], abs=asked.tolerance[key] + 100)
    assert asked.excess_us <= 1


@pytest.mark.parametrize("answer", [EVERY_SAMPLE, MEANS])
def test_a_busy_gpu_is_busy_all_the_time(answer: Answer) -> None:
    asked = Asked(answer, [Taken(1, 100)] * 2000, [5 * SECOND] * 60, 300_000)
    assert asked.charged[1, "sm"] == pytest.approx(300 * SECOND, abs=PERIOD_US)


@pytest.mark.parametrize("answer", [EVERY_SAMPLE, MEANS])
def test_two_tenants_pay_their_shares_whatever_the_time_of_their_last_samples(answer: Answer) -> None:
    mix = [Taken(1, 100)] * 4 + [Taken(2, 100)] + [IDLE] * 15
    asked = Asked(answer, mix * 100, [5 * SECOND] * 60, 300_000)
    assert asked.charged[1, "sm"] == pytest.approx(0.20 * 300 * SECOND, rel=0.03)
    assert asked.charged[2, "sm"] == pytest.approx(0.05 * 300 * SECOND, rel=0.03)


def entry(pid: int, stamp_us: int, sm: int, memory: int = 0) -> Entry:
    return Entry(pid, stamp_us, sm, memory, 0, 0)


def ask(timeline: SampleTimeline, now: ClockTime, *entries: Entry) -> list[ProcessSample]:
    timeline.since_us(now)
    return timeline.samples(entries, now)


def asked_once(newest_us: int = STARTED) -> SampleTimeline:
    """Its newest sample was taken at `newest_us`, when it was asked."""
    timeline = SampleTimeline()
    ask(timeline, at(newest_us), entry(1, newest_us, 50))
    return timeline


# Syllo/nvtop#110, comment of 2021-06-08: the requested time, then pid, percent and timestamp of each entry.
NVTOP = [
    (0, (18429, 1, 1623157629331552), (7044, 12, 1623157633175692), (7180, 7, 1623157632005826)),
    (1623157629331552, (7044, 11, 1623157633175692), (7180, 9, 1623157632005826)),
    (1623157633175692, (7044, 4, 1623157637687768), (7180, 16, 1623157639191912)),
    (1623157637687768, (7044, 1, 1623157639526261), (7180, 19, 1623157640194710)),
]


@pytest.mark.parametrize("answer", NVTOP, ids=["first", "second", "third", "fourth"])
def test_a_gpu_that_is_20_percent_busy_is_charged_20_percent(
    answer: tuple[int, *tuple[tuple[int, int, int], ...]],
) -> None:
    since_us, *listed = answer
    entries = [entry(pid, stamp, sm) for pid, sm, stamp in listed]
    newest_us = max(one.timestamp_us for one in entries)
    if since_us == 0:
        since_us = newest_us - KEPT_US
    timeline = asked_once(since_us)
    assert timeline.since_us(at(newest_us)) == since_us
    samples = timeline.samples(entries, at(newest_us))
    passed_us = newest_us - since_us
    charged = {sample.pid: sample.sm_ratio * sample.covers_us for sample in samples}
    assert charged == pytest.approx({pid: sm / 100 * passed_us for pid, sm, _ in listed})
    assert sum(charged.values()) == pytest.approx(0.20 * passed_us)


# NVIDIA/go-nvml#51: entries of one answer: pid, time in seconds after 10:58, SM and memory in percent.
GO_NVML = [
    (28128, 55.462519, 5, 1),
    (28104, 55.127657, 5, 2),
    (28084, 48.051124, 3, 1),
    (28050, 53.944518, 3, 1),
    (27989, 47.043732, 3, 1),
    (27976, 53.604955, 9, 3),
    (27814, 48.386200, 19, 7),
]


def test_entries_whose_last_samples_are_seconds_apart_are_means_of_the_same_time() -> None:
    minute_us = STARTED
    entries = [entry(pid, minute_us + round(at_s * 1e6), sm, mem) for pid, at_s, sm, mem in GO_NVML]
    newest_us = minute_us + 55_462_519
    samples = ask(asked_once(newest_us - 10 * SECOND), at(newest_us), *entries)
    assert {sample.covers_us for sample in samples} == {10 * SECOND}
    assert {s.pid: s.sm_ratio for s in samples} == {pid: sm / 100 for pid, _, sm, _ in GO_NVML}
    assert {s.pid: s.memory_ratio for s in samples} == {pid: mem / 100 for pid, _, _, mem in GO_NVML}


def test_the_first_answer_covers_no_time() -> None:
    timeline = SampleTimeline()
    assert timeline.since_us(at(STARTED)) == 0
    samples = timeline.samples([entry(1, STARTED - SECOND, 40), entry(2, STARTED, 10)], at(STARTED))
    assert [(one.pid, one.sm_ratio, one.covers_us) for one in samples] == [(1, 0.4, 0), (2, 0.1, 0)]
    assert timeline.since_us(at(STARTED + SECOND)) == STARTED


def test_the_first_answer_of_every_sample_is_the_mean_of_what_the_driver_has() -> None:
    samples = [entry(1, STARTED - age * PERIOD_US, 90) for age in (3, 2)]
    first, other = ask(SampleTimeline(), at(STARTED), *samples, entry(2, STARTED - PERIOD_US, 0))
    assert first.sm_ratio == pytest.approx(0.9 * 2 * PERIOD_US / KEPT_US)
    assert (first.covers_us, other.sm_ratio, other.covers_us) == (0, 0.0, 0)


def test_the_vendor_row_has_the_time_of_the_kept_samples() -> None:
    assert NVIDIA.sampled_seconds * SECOND == KEPT_US


def test_idle_time_before_the_first_work_is_not_charged() -> None:
    timeline = SampleTimeline()
    ask(timeline, at(STARTED))
    for moment in range(STARTED + 5 * SECOND, STARTED + 3600 * SECOND, 5 * SECOND):
        assert ask(timeline, at(moment)) == []
        assert timeline.since_us(at(moment + 5 * SECOND)) == moment
    now = at(moment + 5 * SECOND)
    (sample,) = timeline.samples([entry(1, now.clock_us, 25)], now)
    assert (sample.sm_ratio, sample.covers_us) == (0.25, 5 * SECOND)


def test_of_a_long_interval_only_the_time_of_the_kept_samples_is_charged() -> None:
    now = at(STARTED + 30 * SECOND)
    (sample,) = ask(asked_once(), now, entry(1, now.clock_us, 80))
    assert (sample.sm_ratio, sample.covers_us) == (0.8, KEPT_US)


def test_one_answer_with_a_process_twice_changes_nothing_for_the_next() -> None:
    timeline = asked_once()
    now = at(STARTED + 5 * SECOND)
    odd = ask(timeline, now, entry(1, now.clock_us - SECOND, 30), entry(1, now.clock_us, 30))
    assert [(one.sm_ratio, one.covers_us) for one in odd] == [(0.3, 5 * SECOND)]
    for seconds in (10, 15):
        now = at(STARTED + seconds * SECOND)
        (sample,) = ask(timeline, now, entry(1, now.clock_us, 30))
        assert (sample.sm_ratio, sample.covers_us) == (0.3, 5 * SECOND)


def test_a_driver_that_no_longer_returns_every_sample_is_noticed_at_the_first_answer() -> None:
    timeline = SampleTimeline()
    samples = [entry(1, STARTED - age * PERIOD_US, 90) for age in (2, 1, 0)]
    ask(timeline, at(STARTED), *samples)
    now = at(STARTED + 5 * SECOND)
    (sample,) = ask(timeline, now, entry(1, now.clock_us, 90))
    assert (sample.sm_ratio, sample.covers_us) == (0.9, 5 * SECOND)


def test_engines_of_one_sample_may_have_different_processes() -> None:
    timeline = SampleTimeline()
    ask(timeline, at(STARTED), *(first := [entry(1, STARTED - PERIOD_US, 90), entry(1, STARTED, 80)]))
    now = at(STARTED + PERIOD_US)
    both = [entry(1, now.clock_us, 60), Entry(2, now.clock_us, 0, 0, 40, 0)]
    one, other = ask(timeline, now, first[-1], *both)
    assert (one.sm_ratio, one.covers_us) == (0.6, PERIOD_US)
    assert (other.sm_ratio, other.encoder_ratio, other.covers_us) == (0.0, 0.4, PERIOD_US)


def test_a_driver_with_its_own_clock_is_queried_in_its_time() -> None:
    own_us = 12345 * SECOND - STARTED  # far behind ours
    timeline = SampleTimeline()
    for seconds in (0, 5, 10, 15):
        now = at(STARTED + seconds * SECOND)
        assert timeline.since_us(now) == (now.clock_us - 5 * SECOND + own_us if seconds else 0)
        (sample,) = timeline.samples([entry(1, now.clock_us + own_us, 50)], now)
        assert (sample.sm_ratio, sample.covers_us) == (0.5, 5 * SECOND if seconds else 0)


def test_the_delay_of_a_driver_is_known_from_answers_without_idle_time() -> None:
    timeline = SampleTimeline()
    for seconds, percent, age_us, expected_us in (
        (0, 50, 800_000, 0),
        (5, 50, 800_000, 0),
        (10, 100, 300_000, 0),
        (15, 50, 900_000, 300_000),
    ):
        now = at(STARTED + seconds * SECOND)
        assert timeline.since_us(now) == (now.clock_us - 5 * SECOND - expected_us if seconds else 0)
        timeline.samples([entry(1, now.clock_us - age_us, percent)], now)


def test_a_timestamp_in_the_future_does_not_hide_later_samples() -> None:
    timeline = SampleTimeline()
    ask(timeline, at(STARTED), entry(1, STARTED + 50 * SECOND, 100))
    now = at(STARTED + 5 * SECOND)
    assert timeline.since_us(now) == STARTED
    (sample,) = timeline.samples([entry(1, now.clock_us, 40)], now)
    assert (sample.sm_ratio, sample.covers_us) == (0.4, 5 * SECOND)


def test_an_entry_without_a_new_sample_is_not_charged_again() -> None:
    timeline = asked_once()
    now = at(STARTED + 5 * SECOND)
    (sample,) = ask(timeline, now, entry(1, STARTED, 20), entry(2, now.clock_us, 40))
    assert sample.pid == 2


@pytest.mark.parametrize("step", [-3600, -2, 2, 3600])
def test_when_the_clock_is_set_samples_are_requested_by_the_new_clock(step: int) -> None:
    timeline = SampleTimeline()
    ask(timeline, at(STARTED), entry(1, STARTED - 300_000, 100))
    for uptime in (5, 10):
        now = ClockTime(STARTED + (uptime + step) * SECOND, uptime * SECOND)
        assert timeline.since_us(now) == now.clock_us - 5 * SECOND
        (sample,) = timeline.samples([entry(1, now.clock_us, 50)], now)
        assert (sample.sm_ratio, sample.covers_us) == (0.5, 5 * SECOND)


@given(
    st.lists(
        st.tuples(
            st.integers(-7200 * SECOND, 7200 * SECOND),  # of the clock
            st.integers(1, 60 * SECOND),  # of the time
            st.lists(
                st.builds(
                    Entry,
                    st.integers(1, 3),
                    st.integers(-3600 * SECOND, 3600 * SECOND),
                    *[st.integers(0, 100)] * 4,
                ),
                max_size=5,
            ),
        ),
        max_size=20,
    )
)
def test_whatever_clocks_and_driver_do_no_more_time_is_charged_than_has_passed(
    steps: list[tuple[int, int, list[Entry]]],
) -> None:
    timeline, limit = SampleTimeline(), BusyLimit()
    clock = STARTED
    uptime, first_us, charged = 0, None, 0.0
    for clock_step, elapsed, offsets in steps:
        clock += clock_step
        uptime += elapsed
        now = ClockTime(clock, uptime)
        since_us = timeline.since_us(now)
        entries = [one._replace(timestamp_us=max(since_us, clock + one.timestamp_us)) for one in offsets]
        samples = limit.hold(timeline.samples(entries, now), now)
        for sample in samples:
            ratios = (sample.sm_ratio, sample.memory_ratio, sample.encoder_ratio, sample.decoder_ratio)
            assert all(0 <= ratio <= 1 for ratio in ratios if ratio is not None)
            assert sample.covers_us >= 0
            charged += sample.sm_ratio * sample.covers_us
        first_us = uptime if first_us is None else first_us
        assert charged <= uptime - first_us + 1
