"""The rate of a counter between two samples."""

from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.rates import CounterRate
from gputally.model import Labelled


def moved(tx: float, rx: float) -> Labelled:
    return {("tx",): tx, ("rx",): rx}


def test_the_first_sample_has_no_rate_and_the_second_that_since_the_first() -> None:
    rate = CounterRate()
    assert rate.per_second(moved(1000, 2000), 10.0) is None
    assert rate.per_second(moved(1500, 2500), 12.0) == 500
    assert rate.per_second(moved(1500, 2500), 13.0) == 0


def test_a_counter_that_was_reset_or_not_read_starts_again() -> None:
    rate = CounterRate()
    rate.per_second(moved(1000, 0), 10.0)
    assert rate.per_second(moved(10, 0), 11.0) is None, "the driver was loaded again"
    assert rate.per_second(moved(20, 0), 12.0) == 10
    assert rate.per_second(None, 13.0) is None
    assert rate.per_second(moved(40, 0), 14.0) is None, "the sample before is missing"
    assert rate.per_second(moved(50, 0), 14.0) is None, "no time has passed"


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(0, 2**50)), min_size=1))
def test_rates_times_seconds_are_what_was_counted(steps: list[tuple[float, int]]) -> None:
    rate, at, count, counted = CounterRate(), 0.0, 0, 0.0
    rate.per_second({(): count}, at)
    for seconds, more in steps:
        before, at, count = at, at + seconds, count + more
        found = rate.per_second({(): count}, at)
        assert found is not None
        counted += found * (at - before)
    assert abs(counted - count) <= 1e-6 * count
