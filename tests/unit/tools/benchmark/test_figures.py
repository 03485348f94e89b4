"""The arithmetic of tools/bench."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.benchmark.figures import fit_line, last_step_growth, percentile, spread

FINITE = st.floats(min_value=-1e9, max_value=1e9)


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert percentile(ordered, 50) == 50
    assert percentile(ordered, 99) == 99
    assert percentile(ordered, 100) == 100
    assert percentile([7.0], 99) == 7


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(FINITE, min_size=1), st.floats(min_value=0, max_value=100))
def test_at_least_that_share_does_not_exceed_a_percentile(values: list[float], percent: float) -> None:
    value = percentile(sorted(values), percent)
    assert value in values
    assert sum(one <= value for one in values) >= len(values) * percent / 100
    assert sum(one < value for one in values) <= len(values) * percent / 100


@given(st.lists(FINITE, min_size=1))
def test_the_median_of_the_rounds_is_between_minimum_and_maximum(values: list[float]) -> None:
    found = spread(values)
    assert found.low == min(values)
    assert found.high == max(values)
    assert found.low <= found.middle <= found.high


def test_one_outlier_does_not_change_the_median() -> None:
    assert spread([1.0, 1.1, 50.0]).middle == 1.1


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_a_line_is_fitted_to_its_points(base: float, per_unit: float) -> None:
    units = [1.0, 2.0, 4.0, 8.0, 16.0]
    line = fit_line(units, [base + per_unit * unit for unit in units])
    assert line.base == pytest.approx(base, abs=1e-6)
    assert line.per_unit == pytest.approx(per_unit, abs=1e-6)


def test_a_line_needs_two_points() -> None:
    with pytest.raises(ValueError, match="two different"):
        fit_line([3.0, 3.0], [1.0, 2.0])


def test_linear_growth_is_one_whatever_the_base() -> None:
    units = [0.0, 10.0, 100.0, 1000.0]
    assert last_step_growth(units, [5 + 0.1 * unit for unit in units]) == pytest.approx(1)


def test_quadratic_growth_is_recognised() -> None:
    units = [1.0, 2.0, 4.0, 8.0, 16.0]
    growth = last_step_growth(units, [unit**2 for unit in units])
    assert growth is not None
    assert growth > 2.5


def test_growth_is_unknown_without_an_earlier_value() -> None:
    assert last_step_growth([0.0, 10.0, 100.0], [3.0, 2.0, 3.0]) is None
    assert last_step_growth([0.0, 10.0, 100.0], [3.0, 3.0, 4.0]) is None
