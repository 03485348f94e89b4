"""The share of time for which a GPU was busy, from sums that wrap and are reset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.gpu_metrics import GpuMetrics, PartitionMetrics
from gputally.devices.amdgpu.mean_activity import ActivityMeter, MeanActivity, mean_ratio

WRAP = 2**32


def table(cycles: int | None, *busy: int, partitions: tuple[tuple[int, ...], ...] = ()) -> GpuMetrics:
    return GpuMetrics(
        format_revision=1,
        content_revision=7,
        cycles=cycles,
        gfx_busy_counts=busy,
        partitions=tuple(PartitionMetrics(gfx_busy_counts=one) for one in partitions),
    )


def test_the_first_table_has_no_mean() -> None:
    meter = ActivityMeter()
    assert meter.advance(table(1000, 5000)) == MeanActivity()
    assert meter.advance(table(1100, 12_500)) == MeanActivity(0.75)


def test_sums_that_may_be_of_fractions_are_not_used() -> None:
    meter = ActivityMeter()
    meter.advance(table(0, 7))
    for cycles in range(1000, 5000, 1000):
        assert meter.advance(table(cycles, 7 + cycles)) == MeanActivity(), "1 in each cycle: 1 %, or all"
    assert meter.advance(table(5000, 34_007)) == MeanActivity(0.3)
    assert meter.advance(table(6000, 35_007)) == MeanActivity(0.01), "the unit is known now"


def test_tables_without_a_number_of_cycles_have_no_mean() -> None:
    meter = ActivityMeter()
    for busy in (5000, 6000):
        assert meter.advance(table(None, busy)) == MeanActivity()


def test_a_partition_is_the_mean_of_its_dies() -> None:
    meter = ActivityMeter()
    meter.advance(table(0, 0, partitions=((10, 10), (0,))))
    mean = meter.advance(table(10, 500, partitions=((1010, 10), (200,))))
    assert mean == MeanActivity(0.5, (0.5, 0.2))


def test_partitions_that_were_not_there_before_have_no_mean() -> None:
    meter = ActivityMeter()
    meter.advance(table(0, 0, partitions=((0, 0),)))
    assert meter.advance(table(10, 500, partitions=((1,), (2,)))) == MeanActivity(0.5, (None,))


@pytest.mark.parametrize(
    ("before", "now", "cycles"),
    [
        ((5000,), (5000,), 0),
        ((), (), 10),
        ((0,), (0,), 10),
        ((5000,), (10,), 10),
        ((5000,), (7000,), 10),
        ((5000,), (5100,), WRAP - 990),
    ],
    ids=["no cycle", "no sum", "never counted", "reset", "too much", "cycles reset"],
)
def test_what_cannot_be_a_mean_is_none(before: tuple[int, ...], now: tuple[int, ...], cycles: int) -> None:
    assert mean_ratio(before, now, cycles) is None


@given(
    st.integers(1, WRAP - 1),
    st.integers(0, WRAP - 1),
    st.integers(1, 10_000_000),
    st.integers(0, 100),
)
def test_a_mean_is_exact_also_when_the_counters_wrap(
    start: int, cycle: int, cycles: int, percent: int
) -> None:
    meter = ActivityMeter()
    meter.advance(table(cycle, start))
    now = (start + cycles * percent) % WRAP
    mean = meter.advance(table((cycle + cycles) % WRAP, now)).card
    assert mean == (pytest.approx(percent / 100) if now and percent > 1 else None)
