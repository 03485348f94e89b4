"""Utilisation times cover is the busy time: with both kinds of driver, at whatever moments one looks."""

from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from gputally.devices.nvml.process_samples import LAG_US, ClockTime, SampleTimeline

SECOND = 1_000_000
PERIOD = 250_000
STARTED = 1_760_000_000 * SECOND

Levels = Sequence[dict[int, int]]  # period by period: pid -> percent
Sample = tuple[int, int, int]  # pid, stamp, percent
Driver = Callable[[Levels, int, int], list[Sample]]

# Two periods in a row before the first look: by them a driver of periodic samples is known.
BEFORE: Levels = ({7: 50}, {7: 50})

LEVELS = st.lists(
    st.one_of(
        st.just({}), st.dictionaries(st.integers(1, 3), st.integers(1, 100), min_size=1, max_size=3)
    ).flatmap(lambda level: st.integers(1, 60).map(lambda periods: [level] * periods)),
    max_size=12,
).map(lambda spans: [level for span in spans for level in span])
LOOKS = st.lists(st.integers(50_000, 40 * SECOND), min_size=1, max_size=40)
LAGS = st.integers(0, LAG_US // 2)


def every_sample(levels: Levels, since_us: int, until_us: int) -> list[Sample]:
    """A driver that gives each period in which a process ran."""
    stamps = ((STARTED + (place + 1) * PERIOD, level) for place, level in enumerate(levels))
    return [
        (pid, stamp, percent)
        for stamp, level in stamps
        if since_us < stamp <= until_us
        for pid, percent in level.items()
    ]


def means(levels: Levels, since_us: int, until_us: int) -> list[Sample]:
    """A driver that gives one mean per process, from `since_us` until it ran last."""
    newest = {pid: stamp for pid, stamp, _ in every_sample(levels, since_us, until_us)}
    entries = []
    for pid, until in newest.items():
        work = 0
        for place, level in enumerate(levels):
            begin = max(STARTED + place * PERIOD, since_us)
            end = min(STARTED + (place + 1) * PERIOD, until)
            work += level.get(pid, 0) * max(0, end - begin)
        entries.append((pid, until, round(work / (until - max(since_us, STARTED)))))
    return entries


def at(moment_us: int) -> ClockTime:
    return ClockTime(moment_us, moment_us - STARTED)


def follow(driver: Driver, levels: Levels, looks: Sequence[int], lag_us: int) -> tuple[Counter[int], int]:
    """Busy percent times microseconds by process, and the sum of all covers."""
    timeline = SampleTimeline()
    busy: Counter[int] = Counter()
    covered = 0
    moment_us = STARTED + len(BEFORE) * PERIOD + lag_us
    end_us = STARTED + len(levels) * PERIOD + lag_us
    moments = [moment_us]
    for step_us in looks:
        moments.append(moments[-1] + step_us)
    for moment_us in [*(moment for moment in moments if moment < end_us), end_us]:
        now = at(moment_us)
        since_us = timeline.since_us(now)
        answer = driver(levels, since_us, moment_us - lag_us)
        covers = timeline.covers_us(since_us, [(pid, stamp) for pid, stamp, _ in answer], now)
        for (pid, _, percent), cover_us in zip(answer, covers, strict=True):
            busy[pid] += percent * cover_us
            covered += cover_us
    return busy, covered


def truth(levels: Levels) -> Counter[int]:
    busy: Counter[int] = Counter()
    for level in levels:
        for pid, percent in level.items():
            busy[pid] += percent * PERIOD
    return busy


@given(LEVELS, LOOKS, LAGS)
@example([{}] * 16 + [{1: 100}], [SECOND] * 9, 0)  # it slept for four seconds, and then ran for one period
def test_periodic_samples_add_up_to_the_busy_time(levels: Levels, looks: list[int], lag_us: int) -> None:
    busy, _ = follow(every_sample, [*BEFORE, *levels], looks, lag_us)
    assert busy == truth(levels)


@given(LEVELS, LOOKS, LAGS)
@example(
    [{}] * 400 + [{1: 100}], [5 * SECOND] * 40, 0
)  # one short burst after many samples without a process
@example([{1: 100}] + [{}] * 19 + [{1: 100}] * 20, [5 * SECOND] * 2, 0)  # it stopped early, and came again
def test_means_add_up_to_the_busy_time(levels: Levels, looks: list[int], lag_us: int) -> None:
    busy, covered = follow(means, [*BEFORE, *levels], looks, lag_us)
    expected = truth(levels)
    rounding = covered / 2
    assert sum(abs(busy[pid] - expected[pid]) for pid in {*busy, *expected}) <= rounding


def test_the_first_sample_covers_no_time() -> None:
    timeline = SampleTimeline()
    assert timeline.since_us(at(STARTED)) == 0
    stamps = [(1, STARTED - 2 * SECOND), (1, STARTED - SECOND), (2, STARTED)]
    assert timeline.covers_us(0, stamps, at(STARTED)) == [0, 0, 0]
    assert timeline.since_us(at(STARTED + SECOND)) == STARTED


def test_no_process_at_the_first_sample() -> None:
    timeline = SampleTimeline()
    timeline.covers_us(0, [], at(STARTED))
    now = at(STARTED + 5 * SECOND)
    assert timeline.since_us(now) == 0
    assert timeline.covers_us(0, [(1, now.clock_us)], now) == [0], "the mean of an unknown time"


def looked_once() -> SampleTimeline:
    timeline = SampleTimeline()
    timeline.covers_us(0, [(1, STARTED)], at(STARTED))
    return timeline


def test_each_process_is_covered_up_to_its_own_timestamp() -> None:
    stamps = [(2, STARTED + 3 * SECOND), (1, STARTED + SECOND)]
    now = at(STARTED + 4 * SECOND)
    assert looked_once().covers_us(STARTED, stamps, now) == [3 * SECOND, SECOND]


def test_samples_in_any_order_are_sorted_by_timestamp() -> None:
    stamps = [(1, STARTED + 3 * SECOND), (1, STARTED + SECOND), (1, STARTED + 2 * SECOND)]
    assert looked_once().covers_us(STARTED, stamps, at(STARTED + 3 * SECOND)) == [SECOND] * 3


def test_a_repeated_timestamp_covers_no_time() -> None:
    stamps = [(1, STARTED + SECOND), (1, STARTED + SECOND), (2, STARTED + SECOND)]
    assert looked_once().covers_us(STARTED, stamps, at(STARTED + SECOND)) == [SECOND, 0, SECOND]


def test_an_idle_hour_is_not_covered_by_the_next_sample() -> None:
    timeline = looked_once()
    hour = 3600 * SECOND
    for moment in range(STARTED, STARTED + hour, 5 * SECOND):
        timeline.covers_us(timeline.since_us(at(moment)), [], at(moment))
    now = at(STARTED + hour)
    assert timeline.since_us(now) == STARTED, "by now the driver's clock may be anywhere"
    (cover,) = timeline.covers_us(STARTED, [(1, now.clock_us)], now)
    assert cover == 5 * SECOND + LAG_US


def test_periods_may_vary_slightly() -> None:
    timeline = looked_once()
    first = [(1, STARTED + 990_000), (1, STARTED + 2_000_000)]
    assert timeline.covers_us(STARTED, first, at(STARTED + 2 * SECOND)) == [990_000, 1_010_000]
    later = [(1, STARTED + 3_030_000), (2, STARTED + 4_000_000)]
    covers = timeline.covers_us(STARTED + 2 * SECOND, later, at(STARTED + 4 * SECOND))
    assert covers == [1_030_000, 1_010_000], "the second one slept at first"


def test_almost_equal_timestamps_are_not_a_period() -> None:
    timeline = looked_once()
    twins = [(1, STARTED + SECOND), (1, STARTED + SECOND + 1)]
    assert timeline.covers_us(STARTED, twins, at(STARTED + SECOND)) == [SECOND, 1]
    now = at(STARTED + 5 * SECOND)
    assert timeline.covers_us(STARTED + SECOND, [(1, now.clock_us)], now) == [4 * SECOND]


def test_a_driver_with_its_own_clock_is_queried_in_its_time() -> None:
    timeline = SampleTimeline()
    own = 12345 * SECOND  # far behind ours
    timeline.covers_us(0, [(1, own)], at(STARTED))
    for seconds in (5, 10):
        now = at(STARTED + seconds * SECOND)
        timeline.covers_us(timeline.since_us(now), [], now)
    assert timeline.since_us(at(STARTED + 15 * SECOND)) == own + 10 * SECOND - LAG_US


def test_samples_are_found_again_after_the_clock_was_set_back() -> None:
    timeline = looked_once()
    hour = 3600 * SECOND
    earlier = ClockTime(STARTED - hour, 5 * SECOND)
    assert timeline.since_us(earlier) == STARTED - hour
    assert timeline.covers_us(STARTED - hour, [], earlier) == []
    later = ClockTime(STARTED - hour + 5 * SECOND, 10 * SECOND)
    since = timeline.since_us(later)
    assert timeline.covers_us(since, [(1, later.clock_us)], later) == [5 * SECOND]


def test_after_a_small_clock_change_only_timestamps_are_used() -> None:
    timeline = looked_once()
    for uptime in (5, 10):
        now = ClockTime(STARTED + (uptime - 3) * SECOND, uptime * SECOND)
        timeline.covers_us(timeline.since_us(now), [], now)
    assert timeline.since_us(ClockTime(STARTED + 12 * SECOND, 15 * SECOND)) == STARTED


@given(
    st.lists(
        st.tuples(
            st.integers(-7200 * SECOND, 7200 * SECOND),  # of the clock
            st.integers(1, 60 * SECOND),  # of the time
            st.lists(st.tuples(st.integers(1, 3), st.integers(-3600 * SECOND, 3600 * SECOND)), max_size=5),
        ),
        max_size=20,
    )
)
def test_any_clock_change_gives_covers_between_zero_and_the_time_passed(
    steps: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    timeline = looked_once()
    clock, uptime, last_answer_spans = STARTED, 0, 0
    for clock_step, elapsed, offsets in steps:
        clock += clock_step
        uptime += elapsed
        now = ClockTime(clock, uptime)
        stamps = [(pid, clock + offset) for pid, offset in offsets]
        covers = timeline.covers_us(timeline.since_us(now), stamps, now)
        assert all(0 <= cover <= last_answer_spans + elapsed + LAG_US for cover in covers)
        last_answer_spans = elapsed if stamps else last_answer_spans
