"""What is learned of a GPU's power: the idle floor, and the weights of compute and memory time."""

import json
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.ledger.power import BY_SM_TIME, Fit, PowerModel, RollingMinimum, Weights, WindowActivity
from tests.support.ledger_samples import SECOND

HOUR = 3600 * SECOND
MILLIJOULES = st.integers(0, 10**7)
LENGTHS = st.integers(1, 60 * SECOND)


def window(
    at: float, watts: float, *, busy: float | None = 0.0, memory: float | None = 0.0, resident: bool = True
) -> WindowActivity:
    """Five seconds; `busy` and `memory` are ratios of them."""
    return WindowActivity(
        round(at * SECOND),
        5 * SECOND,
        round(watts * 5000),
        resident,
        None if busy is None else round(busy * 5 * SECOND),
        None if memory is None else round(memory * 5 * SECOND),
    )


def learned(*windows: WindowActivity) -> PowerModel:
    model = PowerModel()
    for one in windows:
        model.learn(one)
    return model


# The floor.


def test_before_the_gpu_was_idle_there_is_no_floor() -> None:
    model = learned(window(5, 300, busy=0.5), window(10, 70))
    assert model.floor_milliwatts(resident=True) is None
    assert model.floor_millijoules(window(15, 300, busy=0.5)) == 0


def test_the_floor_is_the_lowest_of_two_idle_windows_in_a_row_each_by_the_higher() -> None:
    model = learned(window(5, 90), window(10, 80), window(15, 70), window(20, 75))
    assert model.floor_milliwatts(resident=True) == 75_000


def test_a_counter_that_stood_still_for_a_window_is_no_floor() -> None:
    model = learned(window(5, 70), window(10, 0), window(15, 140), window(20, 70))
    assert model.floor_milliwatts(resident=True) == 70_000


def test_idle_windows_with_work_in_between_are_not_in_a_row() -> None:
    model = learned(window(5, 70), window(10, 300, busy=0.01), window(15, 70))
    assert model.floor_milliwatts(resident=True) is None


@pytest.mark.parametrize("unknown", [window(5, 70, busy=None), WindowActivity(0, 999_999, 1, True, 0, 0)])
def test_windows_of_unknown_activity_and_short_ones_give_no_floor(unknown: WindowActivity) -> None:
    assert learned(unknown, unknown, unknown).floor_milliwatts(resident=True) is None


def test_processes_raise_the_floor_and_without_one_the_lower_floor_is_taken() -> None:
    empty = [window(5, 60, resident=False), window(10, 60, resident=False)]
    assert learned(*empty).floor_milliwatts(resident=True) == 60_000
    both = learned(*empty, window(15, 110), window(20, 110))
    assert both.floor_milliwatts(resident=True) == 110_000
    assert both.floor_milliwatts(resident=False) == 60_000


@given(MILLIJOULES, LENGTHS)
def test_the_floor_of_a_window_is_never_more_than_its_energy(millijoules: int, length_us: int) -> None:
    model = learned(window(5, 70), window(10, 70))
    floor = model.floor_millijoules(WindowActivity(0, length_us, millijoules, True, 1, 0))
    assert 0 <= floor <= millijoules
    assert floor <= 70 * length_us / 1000


@given(st.lists(st.tuples(st.integers(0, 30 * HOUR), st.integers(0, 10**6)), min_size=1, max_size=40))
def test_a_rolling_minimum_has_the_last_day_and_nothing_older_than_two(
    steps: list[tuple[int, int]],
) -> None:
    minimum, at, seen = RollingMinimum(), 0, []
    for step, value in steps:
        at += step
        seen.append((at, value))
        minimum.note(at, value)
        assert minimum.value is not None
        assert minimum.value <= min(v for when, v in seen if when > at - 24 * HOUR)
        assert minimum.value in {v for _, v in seen}
    again = RollingMinimum()
    again.resume(json.loads(json.dumps(minimum.state(at))), 5)
    assert again.value == minimum.value


def test_a_floor_that_was_too_low_is_forgotten_after_two_days() -> None:
    minimum = RollingMinimum()
    for hour in range(100):
        minimum.note(hour * HOUR, 10 if hour < 3 else 70)
    assert minimum.value == 70


# The weights.


def fitted(
    watts_compute: float, watts_memory: float, shares: list[float], *, noise: float = 0.0, blocks: int = 60
) -> Weights:
    """From one minute at each memory share of the SM time, in turn."""
    luck, fit = Random(7), Fit()
    for number in range(blocks):
        share, busy = shares[number % len(shares)], 0.3 + 0.7 * luck.random()
        watts = busy * ((1 - share) * watts_compute + share * watts_memory) + luck.gauss(0, noise)
        fit.note(
            60 * SECOND, round(busy * 60 * SECOND), round(share * busy * 60 * SECOND), round(watts * 60_000)
        )
    return fit.weights


@pytest.mark.parametrize("watts", [(600, 300), (300, 600), (500, 200)])
def test_the_weights_are_the_watts_of_the_two_kinds_of_time(watts: tuple[int, int]) -> None:
    weights = fitted(*watts, shares=[0.1, 0.5, 0.9], noise=10)
    assert weights.compute / weights.memory == pytest.approx(watts[0] / watts[1], rel=0.05)
    assert max(weights) == 1000


def test_a_mix_that_never_changes_leaves_the_weights_by_sm_time() -> None:
    assert fitted(600, 200, [0.50, 0.52]) == BY_SM_TIME


def test_few_minutes_leave_the_weights_by_sm_time() -> None:
    assert fitted(600, 200, [0.1, 0.9], blocks=9) == BY_SM_TIME


def test_a_memory_share_that_does_not_explain_the_power_is_not_used() -> None:
    assert fitted(500, 450, [0.1, 0.9], noise=100) == BY_SM_TIME


@pytest.mark.parametrize(
    "shares_watts", [([0.05, 0.4], 600, -200), ([0.6, 0.95], -200, 600), ([0.1, 0.9], 600, 1)]
)
def test_the_lower_weight_is_at_least_a_quarter_of_the_higher(
    shares_watts: tuple[list[float], int, int],
) -> None:
    shares, compute, memory = shares_watts
    assert sorted(fitted(compute, memory, shares)) == [250, 1000]


@given(
    st.lists(
        st.tuples(LENGTHS, st.floats(0, 1), st.floats(0, 1), MILLIJOULES),
        max_size=60,
    )
)
def test_the_weights_stay_within_their_bounds_for_any_windows(
    windows: list[tuple[int, float, float, int]],
) -> None:
    fit = Fit()
    for length_us, busy, memory, millijoules in windows:
        busy_us = round(length_us * busy)
        fit.note(length_us, busy_us, round(busy_us * memory), millijoules)
        assert all(250 <= weight <= 1000 for weight in fit.weights)
        assert max(fit.weights) == 1000


def test_only_windows_with_a_floor_are_fitted_and_their_floor_is_taken_off() -> None:
    at = count(0, 5)
    busy = [(1.0, 0.1, 660), (1.0, 0.9, 260)]  # 100 W floor; 610 and 110 W above it

    def work(model: PowerModel) -> Weights:
        for _ in range(30):
            for sm, memory, watts in busy:
                for _ in range(12):
                    model.learn(window(next(at), watts, busy=sm, memory=memory * sm))
        return model.weights

    assert work(PowerModel()) == BY_SM_TIME
    weights = work(learned(window(next(at), 100), window(next(at), 100)))
    assert weights == Weights(1000, 250)


def test_a_window_without_memory_activity_is_not_fitted() -> None:
    model = learned(window(0, 100), window(5, 100))
    for at in range(10, 4000, 5):
        model.learn(window(at, 300 + at % 300, busy=at % 7 / 7, memory=None))
    assert model.weights == BY_SM_TIME


def test_floors_and_weights_are_resumed() -> None:
    model = learned(
        window(0, 60, resident=False), window(5, 60, resident=False), window(10, 90), window(15, 90)
    )
    for at in range(20, 4000, 5):
        memory = 0.1 if at // 120 % 2 else 0.9
        model.learn(window(at, 690 - 400 * memory, busy=1.0, memory=memory))
    again = PowerModel()
    again.resume(json.loads(json.dumps(model.state(4000 * SECOND))), 7)
    assert again.weights == model.weights != BY_SM_TIME
    assert again.floor_milliwatts(resident=True) == 90_000
    assert again.floor_milliwatts(resident=False) == 60_000
    assert again.state(7) == model.state(4000 * SECOND)
