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


def test_a_counter_that_matches_the_power_is_the_energy() -> None:
    meter = begun(look(0, 1000, 300))
    assert not meter.settled
    assert meter.measure(look(5, 2500, 300)) == joules(1500)
    assert meter.measure(look(10, 2500.001, 300)) == joules(0.001)
    assert (meter.source, meter.total_millijoules, meter.settled) == ("counter", 2_500_001, True)


def test_energy_before_the_first_sample_is_only_in_the_total() -> None:
    assert begun(look(0, 1234.5)).total_millijoules == 1_234_500


def test_a_counter_without_power_is_used_without_verification() -> None:
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
def test_a_counter_that_does_not_match_three_times_is_replaced_by_power(
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


def test_three_samples_within_ten_seconds_do_not_reject_a_counter() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(n, 1000, 300) for n in range(1, 10)]) == [None] * 9
    assert meter.measure(look(10, 4000, 300)) == joules(3000)
    assert meter.source == "counter"


@pytest.mark.parametrize("counted", [600, 2400])
def test_a_counter_that_roughly_matches_the_power_is_used(counted: float) -> None:
    meter = begun(look(0, 1000, 300))
    assert meter.measure(look(5, 1000 + counted, 300)) == joules(counted)


def test_a_counter_that_matches_at_the_third_sample_has_lost_nothing() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(5, 1000, 300), look(10, 1000, 300)]) == [None, None]
    assert meter.measure(look(15, 4000, 300)) == joules(3000)


def test_a_window_shorter_than_a_second_does_not_verify_a_counter() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(n / 10, 1000, 300) for n in range(1, 10)]) == [None] * 9
    assert meter.measure(look(1, 1300, 300)) == joules(300)


def test_a_card_with_almost_no_power_is_verified_later() -> None:
    meter = begun(look(0, 1000, 0.05))
    assert measure(meter, [look(5, 1000, 0.05), look(10, 1000, 0.05)]) == [None, None]
    assert meter.measure(look(11, 1000, 0.05)) == joules(0)
    assert meter.source == "counter"


def test_one_missing_power_value_does_not_accept_a_constant_counter() -> None:
    meter = begun(look(0, 1000, 300))
    looks = [look(5, 1000), look(10, 1000, 300), look(15, 1000, 300), look(20, 1000, 300)]
    assert measure(meter, looks) == [None, None, None, joules(6000)]
    assert meter.source == "integrated"


def test_without_further_power_values_the_counter_is_used() -> None:
    meter = begun(look(0, 1000, 300))
    assert measure(meter, [look(30, 1000), look(60, 1000)]) == [None, None]
    assert meter.measure(look(61, 1500)) == joules(500, observed=False)
    assert meter.measure(look(66, 1600)) == joules(100)


def test_a_first_window_too_long_for_verification_is_unobserved() -> None:
    meter = begun(look(0, 1000, 300))
    assert meter.measure(look(61, 1500, 300)) == joules(500, observed=False)


def test_an_unreadable_counter_leaves_the_window_open() -> None:
    meter = begun(look(0, 1000))
    assert meter.measure(look(5, None)) is None
    assert meter.measure(look(10, 1400)) == joules(400)


def test_a_window_open_for_too_long_is_unobserved() -> None:
    meter = begun(look(0, 1000))
    assert meter.measure(look(60, None)) is None
    assert measure(meter, [look(61, None), look(66, None)]) == [joules(0, observed=False)] * 2
    assert meter.measure(look(70, 1400)) == joules(400, observed=False)
    assert meter.measure(look(75, 1500)) == joules(100)


def test_the_longest_window_is_observed_and_one_that_is_longer_is_not() -> None:
    assert begun(look(0, 1000)).measure(look(60, 1500)) == joules(500)
    assert begun(look(0, 1000)).measure(look(60.000001, 1500)) == joules(500, observed=False)


def test_two_samples_at_the_same_time_are_one() -> None:
    meter = begun(look(5, 1000))
    assert meter.measure(look(5, 1000)) is None
    assert meter.measure(look(4, 1000)) is None
    assert meter.measure(look(6, 1100)) == joules(100)


# Counters that do what they must not.


def test_a_reloaded_driver_counts_from_zero() -> None:
    meter = begun(look(0, 90_000))
    assert meter.measure(look(5, 250, most=700)) == joules(250, observed=False)
    assert (meter.total_millijoules, meter.problems) == (90_250_000, {"reset": 1})
    assert meter.measure(look(10, 400, most=700)) == joules(150)


def test_an_impossible_increase_is_not_charged_and_the_next_sample_has_all_energy() -> None:
    meter = begun(look(0, 1000))
    assert meter.measure(look(5, 10_000_000, most=700)) is None
    assert meter.measure(look(10, 3000, most=700)) == joules(2000)
    assert meter.problems == {"implausible": 1}


def test_a_decrease_that_is_no_reset_is_not_charged() -> None:
    meter = begun(look(0, 90_000))
    assert meter.measure(look(5, 89_000, most=700)) is None
    assert meter.measure(look(10, 90_500, most=700)) == joules(500)
    assert meter.problems == {"implausible": 1}


@pytest.mark.parametrize("moved", [10_000_000, 50_000])
def test_a_counter_that_stays_at_another_value_is_continued_at_the_third_sample(moved: float) -> None:
    meter = begun(look(0, 90_000))
    looks = [look(5 * n, moved + n, most=700) for n in (1, 2, 3)]
    assert measure(meter, looks) == [None, None, joules(0)]
    assert (meter.total_millijoules, meter.problems) == (90_000_000, {"implausible": 3})
    assert meter.measure(look(20, moved + 500, most=700)) == joules(497)


def test_only_consecutive_samples_move_the_counter() -> None:
    meter = begun(look(0, 90_000))
    for at in range(10, 60, 10):
        assert meter.measure(look(at - 5, 10_000_000, most=700)) is None
        assert meter.measure(look(at, 90_000 + at, most=700)) == joules(10)
    assert meter.total_millijoules == 90_050_000


@pytest.mark.parametrize(("most", "fits"), [(700, 8000), (None, 31_000)])
def test_twice_the_power_limit_plus_a_kilojoule_is_the_maximum_of_a_window(
    most: float | None, fits: float
) -> None:
    assert begun(look(0, 0)).measure(look(5, fits, most=most)) == joules(fits)
    assert begun(look(0, 0)).measure(look(5, fits + 0.001, most=most)) is None


# The power.


def test_without_a_counter_the_energy_is_the_trapezoidal_integral_of_power() -> None:
    meter = integrated(100)
    assert (meter.source, meter.total_millijoules, meter.settled) == ("integrated", 0, True)
    assert meter.measure(look(5, None, 200)) == joules(750)
    assert meter.measure(look(7.5, None, 0)) == joules(250)
    assert meter.measure(look(10, None, 0)) == joules(0)
    assert meter.total_millijoules == 1_000_000


def test_fractions_of_a_millijoule_are_kept_for_the_next_window() -> None:
    meter = integrated(1)
    parts = [meter.measure(look(n / 4000, None, 1)) for n in range(1, 9)]
    assert [part.millijoules if part else None for part in parts] == [0, 0, 0, 1, 0, 0, 0, 1]


def test_a_counter_unreadable_at_the_first_sample_may_appear_at_the_next() -> None:
    meter = Meter(LONGEST * SECOND)
    assert not meter.begin(look(0, None, 300))
    assert meter.begin(look(5, 1000, 300))
    assert meter.source == "counter"


def test_without_counter_and_power_there_is_no_energy() -> None:
    meter = Meter(LONGEST * SECOND)
    assert [meter.begin(look(n, None)) for n in range(5)] == [False] * 5
    assert (meter.source, meter.settled) == (None, False)


def test_one_missing_power_value_is_bridged() -> None:
    meter = integrated(100)
    assert meter.measure(look(5, None, None)) is None
    assert meter.measure(look(10, None, 100)) == joules(1000)


def test_a_longer_gap_in_power_is_not_filled() -> None:
    meter = integrated(100)
    assert meter.measure(look(61, None, 100)) == joules(0, observed=False)
    assert meter.measure(look(62, None, 100)) == joules(100)


def test_permanently_missing_power_charges_no_owner() -> None:
    meter = integrated(100)
    assert measure(meter, [look(60, None), look(65, None)]) == [None, joules(0, observed=False)]
    assert meter.measure(look(66, None, 100)) == joules(0, observed=False)


def test_a_card_without_a_counter_does_not_switch_when_one_appears() -> None:
    meter = integrated(100)
    assert meter.measure(look(5, 777, 100)) == joules(500)
    assert meter.source == "integrated"


@given(st.lists(st.integers(1, 60 * SECOND), max_size=20), st.integers(0, 5_000_000))
def test_any_sampling_of_constant_power_gives_the_same_energy(lengths: list[int], milliwatts: int) -> None:
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


def test_energy_used_without_an_exporter_is_reported() -> None:
    before = begun(look(0, 1000))
    before.measure(look(5, 1500))
    after, unobserved = resumed(before, look(1, 1800, 300))
    assert unobserved == 300_000
    assert (after.source, after.total_millijoules, after.settled) == ("counter", 1_800_000, True)
    assert after.measure(look(6, 1900, 300)) == joules(100)


def test_a_total_that_differs_from_the_counter_stays_different() -> None:
    before = begun(look(0, 90_000))
    before.measure(look(5, 250, most=700))
    after, unobserved = resumed(before, look(10, 300, most=700))
    assert (after.total_millijoules, unobserved) == (90_300_000, 50_000)


@pytest.mark.parametrize("counter", [None, 999.999])
def test_a_counter_that_does_not_continue_is_not_resumed(counter: float | None) -> None:
    after, unobserved = resumed(begun(look(0, 1000)), look(5, counter, 300))
    assert (after.source, unobserved) == (None, None)


def test_power_is_resumed_with_the_fraction_of_a_millijoule() -> None:
    before = integrated(1)
    before.measure(look(0.00175, None, 1))
    after, unobserved = resumed(before, look(100, None, 1))
    assert (after.source, after.total_millijoules, unobserved) == ("integrated", 1, 0)
    assert after.measure(look(100.00025, None, 1)) == Measured(1)


def test_a_rejected_counter_stays_rejected_after_a_restart() -> None:
    before = begun(look(0, 1000, 300))
    measure(before, [look(5 * n, 1000, 300) for n in (1, 2, 3)])
    after, unobserved = resumed(before, look(20, 1000, 300))
    assert (after.source, after.total_millijoules, unobserved) == ("integrated", 5_500_000, 0)
    again, _ = resumed(after, look(25, 1000, 300))
    assert again.source == "integrated"


def test_a_card_with_a_counter_after_the_restart_begins_a_new_ledger() -> None:
    assert resumed(integrated(), look(5, 1000, 100))[1] is None


def test_without_power_the_integral_cannot_be_resumed() -> None:
    assert resumed(integrated(), look(5, 1000))[1] is None
