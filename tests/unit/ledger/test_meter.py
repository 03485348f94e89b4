"""The meter: which counters are believed, what a window holds, and what the power makes of the rest."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.ledger.meter import Measured, Meter, MeterSample

SECOND = 1_000_000
LONGEST = 60


def look(
    at: float, joules: float | None, watts: float | None = None, most: float | None = None
) -> MeterSample:
    return MeterSample(
        round(at * SECOND),
        None if joules is None else round(joules * 1000),
        None if watts is None else round(watts * 1000),
        None if most is None else round(most * 1000),
    )


def begun(first: MeterSample) -> Meter:
    meter = Meter(LONGEST * SECOND)
    assert meter.begin(first)
    return meter


def integrated(watts: float = 100) -> Meter:
    """A card without a counter, at 0 s."""
    meter = Meter(LONGEST * SECOND)
    assert not meter.begin(look(-1, None, watts))
    assert meter.begin(look(0, None, watts))
    return meter


def measure(meter: Meter, looks: Iterable[MeterSample]) -> list[Measured | None]:
    return [meter.measure(one) for one in looks]


def joules(amount: float, *, observed: bool = True) -> Measured:
    return Measured(round(amount * 1000), observed)


# The counter.


def test_a_counter_that_fits_the_power_is_the_energy() -> None:
    meter = begun(look(0, 1000, 300))
    assert not meter.settled
    assert meter.measure(look(5, 2500, 300)) == joules(1500)
    assert meter.measure(look(10, 2500.001, 300)) == joules(0.001)
    assert (meter.source, meter.total_millijoules, meter.settled) == ("counter", 2_500_001, True)


def test_what_it_held_before_counts_in_the_total_only() -> None:
    assert begun(look(0, 1234.5)).total_millijoules == 1_234_500


def test_a_counter_without_power_is_believed_there_is_nothing_to_test_it_against() -> None:
    assert begun(look(0, 1000)).settled


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        ([0, 0, 0], "frozen"),
        ([-100, -200, -300], "stepping back"),
        ([3000, 6000, 9000], "counting two GPUs"),
        ([599, 1199, 1799], "less than 0.4 of the power"),
        ([2401, 4801, 7201], "more than 1.6 of the power"),
    ],
)
def test_a_counter_that_does_not_fit_three_times_is_given_up_for_the_power(
    counted: list[float], why: str
) -> None:
    meter = begun(look(0, 1000, 300))
    looks = [look(5 * n, 1000 + one, 300) for n, one in enumerate(counted, 1)]
    assert measure(meter, looks[:2]) == [None, None]
    assert (meter.source, meter.settled, meter.total_millijoules) == ("counter", False, 1_000_000)
    assert meter.measure(looks[2]) == joules(300 * 15), why
    assert (meter.source, meter.settled, meter.total_millijoules) == ("integrated", True, 5_500_000)
    assert meter.problems == {"counter_unfit": 1}
    assert meter.measure(look(20, 99_999, 300)) == joules(1500)


def test_three_looks_within_ten_seconds_are_too_few_to_give_a_counter_up() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(n, 1000, 300) for n in range(1, 10)]) == [None] * 9
    assert meter.measure(look(10, 4000, 300)) == joules(3000)
    assert meter.source == "counter"


@pytest.mark.parametrize("counted", [600, 2400])
def test_a_counter_that_is_not_quite_the_power_is_believed(counted: float) -> None:
    meter = begun(look(0, 1000, 300))
    assert meter.measure(look(5, 1000 + counted, 300)) == joules(counted)


def test_a_counter_that_fits_at_the_third_time_has_lost_nothing() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(5, 1000, 300), look(10, 1000, 300)]) == [None, None]
    assert meter.measure(look(15, 4000, 300)) == joules(3000)


def test_a_window_below_a_second_is_too_short_to_judge_a_counter() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(n / 10, 1000, 300) for n in range(1, 10)]) == [None] * 9
    assert meter.measure(look(1, 1300, 300)) == joules(300)


def test_a_card_that_draws_next_to_nothing_is_judged_later() -> None:
    meter = begun(look(0, 1000, 0.05))
    assert measure(meter, [look(5, 1000, 0.05), look(10, 1000, 0.05)]) == [None, None]
    assert meter.measure(look(11, 1000, 0.05)) == joules(0)
    assert meter.source == "counter"


def test_a_power_that_is_missing_once_does_not_make_a_frozen_counter_good() -> None:
    meter = begun(look(0, 1000, 300))
    looks = [look(5, 1000), look(10, 1000, 300), look(15, 1000, 300), look(20, 1000, 300)]
    assert measure(meter, looks) == [None, None, None, joules(6000)]
    assert meter.source == "integrated"


def test_a_power_that_is_never_there_again_leaves_the_counter() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(30, 1000), look(60, 1000)]) == [None, None]
    assert meter.measure(look(61, 1500)) == joules(500, observed=False)
    assert meter.measure(look(66, 1600)) == joules(100)


def test_a_first_window_that_is_too_long_to_be_tested_is_unobserved() -> None:
    meter = begun(look(0, 1000, 300))
    assert meter.measure(look(61, 1500, 300)) == joules(500, observed=False)


def test_a_counter_that_cannot_be_read_leaves_the_window_open() -> None:
    meter = begun(look(0, 1000))
    assert meter.measure(look(5, None)) is None
    assert meter.measure(look(10, 1400)) == joules(400)


def test_a_window_that_is_open_for_too_long_is_nobodys() -> None:
    meter = begun(look(0, 1000))
    assert meter.measure(look(60, None)) is None
    assert measure(meter, [look(61, None), look(66, None)]) == [joules(0, observed=False)] * 2
    assert meter.measure(look(70, 1400)) == joules(400, observed=False)
    assert meter.measure(look(75, 1500)) == joules(100)


def test_the_longest_window_is_observed_and_one_that_is_longer_is_not() -> None:
    assert begun(look(0, 1000)).measure(look(60, 1500)) == joules(500)
    assert begun(look(0, 1000)).measure(look(60.000001, 1500)) == joules(500, observed=False)


def test_two_looks_at_one_moment_are_one() -> None:
    meter = begun(look(5, 1000))
    assert meter.measure(look(5, 1000)) is None
    assert meter.measure(look(4, 1000)) is None
    assert meter.measure(look(6, 1100)) == joules(100)


# Counters that do what they must not.


def test_a_driver_that_was_loaded_anew_counts_from_nothing() -> None:
    meter = begun(look(0, 90_000))
    assert meter.measure(look(5, 250, most=700)) == joules(250, observed=False)
    assert (meter.total_millijoules, meter.problems) == (90_250_000, {"reset": 1})
    assert meter.measure(look(10, 400, most=700)) == joules(150)


def test_a_jump_that_no_card_can_make_is_not_charged_and_the_next_look_has_it_all() -> None:
    meter = begun(look(0, 1000))
    assert meter.measure(look(5, 10_000_000, most=700)) is None
    assert meter.measure(look(10, 3000, most=700)) == joules(2000)
    assert meter.problems == {"implausible": 1}


def test_a_step_back_that_is_no_reset_is_not_charged_either() -> None:
    meter = begun(look(0, 90_000))
    assert meter.measure(look(5, 89_000, most=700)) is None
    assert meter.measure(look(10, 90_500, most=700)) == joules(500)
    assert meter.problems == {"implausible": 1}


@pytest.mark.parametrize("moved", [10_000_000, 50_000])
def test_a_counter_that_stays_elsewhere_is_gone_on_from_at_the_third_look(moved: float) -> None:
    meter = begun(look(0, 90_000))
    looks = [look(5 * n, moved + n, most=700) for n in (1, 2, 3)]
    assert measure(meter, looks) == [None, None, joules(0)]
    assert (meter.total_millijoules, meter.problems) == (90_000_000, {"implausible": 3})
    assert meter.measure(look(20, moved + 500, most=700)) == joules(497)


def test_only_looks_in_a_row_make_it_move() -> None:
    meter = begun(look(0, 90_000))
    for at in range(10, 60, 10):
        assert meter.measure(look(at - 5, 10_000_000, most=700)) is None
        assert meter.measure(look(at, 90_000 + at, most=700)) == joules(10)
    assert meter.total_millijoules == 90_050_000


@pytest.mark.parametrize(("most", "fits"), [(700, 8000), (None, 31_000)])
def test_twice_the_power_limit_and_a_kilojoule_is_more_than_any_card_uses(
    most: float | None, fits: float
) -> None:
    assert begun(look(0, 0)).measure(look(5, fits, most=most)) == joules(fits)
    assert begun(look(0, 0)).measure(look(5, fits + 0.001, most=most)) is None


# The power.


def test_without_a_counter_the_energy_is_the_trapezoid_under_the_power() -> None:
    meter = integrated(100)
    assert (meter.source, meter.total_millijoules, meter.settled) == ("integrated", 0, True)
    assert meter.measure(look(5, None, 200)) == joules(750)
    assert meter.measure(look(7.5, None, 0)) == joules(250)
    assert meter.measure(look(10, None, 0)) == joules(0)
    assert meter.total_millijoules == 1_000_000


def test_what_is_below_a_millijoule_stays_for_the_next_window() -> None:
    meter = integrated(1)
    parts = [meter.measure(look(n / 4000, None, 1)) for n in range(1, 9)]
    assert [part.millijoules if part else None for part in parts] == [0, 0, 0, 1, 0, 0, 0, 1]


def test_a_counter_that_cannot_be_read_at_the_first_look_may_be_there_at_the_next() -> None:
    meter = Meter(LONGEST * SECOND)
    assert not meter.begin(look(0, None, 300))
    assert meter.begin(look(5, 1000, 300))
    assert meter.source == "counter"


def test_without_counter_and_power_there_is_nothing_to_measure_by() -> None:
    meter = Meter(LONGEST * SECOND)
    assert [meter.begin(look(n, None)) for n in range(5)] == [False] * 5
    assert (meter.source, meter.settled) == (None, False)


def test_a_power_that_is_missing_once_is_bridged() -> None:
    meter = integrated(100)
    assert meter.measure(look(5, None, None)) is None
    assert meter.measure(look(10, None, 100)) == joules(1000)


def test_a_gap_in_the_power_is_not_filled() -> None:
    meter = integrated(100)
    assert meter.measure(look(61, None, 100)) == joules(0, observed=False)
    assert meter.measure(look(62, None, 100)) == joules(100)


def test_a_power_that_stays_away_leaves_nobody_to_charge() -> None:
    meter = integrated(100)
    assert measure(meter, [look(60, None), look(65, None)]) == [None, joules(0, observed=False)]
    assert meter.measure(look(66, None, 100)) == joules(0, observed=False)


def test_a_card_without_a_counter_does_not_change_over_when_one_shows_up() -> None:
    meter = integrated(100)
    assert meter.measure(look(5, 777, 100)) == joules(500)
    assert meter.source == "integrated"


@given(st.lists(st.integers(1, 60 * SECOND), max_size=20), st.integers(0, 5_000_000))
def test_however_often_one_looks_constant_power_gives_the_same_energy(
    lengths: list[int], milliwatts: int
) -> None:
    meter = integrated(milliwatts / 1000)
    at = 0
    for length in lengths:
        at += length
        assert meter.measure(MeterSample(at, None, milliwatts)) is not None
    exact = milliwatts * at / 1_000_000
    assert exact - 1 - len(lengths) / 1e6 <= meter.total_millijoules <= exact


# Over a restart.


def resumed(meter: Meter, first: MeterSample) -> tuple[Meter, int | None]:
    after = Meter(LONGEST * SECOND)
    return after, after.resume(meter.state(), first)


def test_what_was_used_while_nobody_looked_is_told() -> None:
    before = begun(look(0, 1000))
    before.measure(look(5, 1500))
    after, unobserved = resumed(before, look(1, 1800, 300))
    assert unobserved == 300_000
    assert (after.source, after.total_millijoules, after.settled) == ("counter", 1_800_000, True)
    assert after.measure(look(6, 1900, 300)) == joules(100)


def test_a_total_that_is_not_the_counter_stays_so() -> None:
    before = begun(look(0, 90_000))
    before.measure(look(5, 250, most=700))
    after, unobserved = resumed(before, look(10, 300, most=700))
    assert (after.total_millijoules, unobserved) == (90_300_000, 50_000)


@pytest.mark.parametrize("counter", [None, 999.999])
def test_a_counter_that_does_not_follow_is_not_gone_on_from(counter: float | None) -> None:
    after, unobserved = resumed(begun(look(0, 1000)), look(5, counter, 300))
    assert (after.source, unobserved) == (None, None)


def test_the_power_is_gone_on_from_with_the_part_below_a_millijoule() -> None:
    before = integrated(1)
    before.measure(look(0.00175, None, 1))
    after, unobserved = resumed(before, look(100, None, 1))
    assert (after.source, after.total_millijoules, unobserved) == ("integrated", 1, 0)
    assert after.measure(look(100.00025, None, 1)) == Measured(1)


def test_a_counter_that_was_given_up_stays_so_over_a_restart() -> None:
    before = begun(look(0, 1000, 300))
    measure(before, [look(5 * n, 1000, 300) for n in (1, 2, 3)])
    after, unobserved = resumed(before, look(20, 1000, 300))
    assert (after.source, after.total_millijoules, unobserved) == ("integrated", 5_500_000, 0)
    again, _ = resumed(after, look(25, 1000, 300))
    assert again.source == "integrated"


def test_a_card_that_has_a_counter_after_the_restart_begins_anew_with_it() -> None:
    assert resumed(integrated(), look(5, 1000, 100))[1] is None


def test_without_power_the_power_cannot_be_gone_on_from() -> None:
    assert resumed(integrated(), look(5, 1000))[1] is None
