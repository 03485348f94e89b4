"""Apportioning: the parts add up to the amount, and none is a whole unit away from its exact share."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.ledger.apportion import apportion

AMOUNTS = st.integers(0, 20) | st.integers(0, 10**15)
WEIGHTS = st.dictionaries(
    st.tuples(st.integers(0, 50)),
    st.one_of(st.integers(0, 5), st.integers(0, 10**12)),
    min_size=1,
    max_size=8,
)


@given(AMOUNTS, WEIGHTS)
def test_the_parts_are_integers_and_add_up_to_the_amount(amount: int, weights: dict[tuple[int], int]) -> None:
    parts = apportion(amount, weights)
    assert parts.keys() == weights.keys()
    assert sum(parts.values()) == amount
    assert min(parts.values()) >= 0


@given(AMOUNTS, WEIGHTS.filter(lambda weights: any(weights.values())))
def test_no_part_is_a_whole_unit_away_from_its_exact_share(
    amount: int, weights: dict[tuple[int], int]
) -> None:
    total = sum(weights.values())
    for key, part in apportion(amount, weights).items():
        assert abs(part - Fraction(amount * weights[key], total)) < 1
        assert weights[key] or part == 0


@given(AMOUNTS, WEIGHTS)
def test_the_order_of_the_weights_changes_nothing(amount: int, weights: dict[tuple[int], int]) -> None:
    assert apportion(amount, dict(reversed(weights.items()))) == apportion(amount, weights)


@pytest.mark.parametrize(
    ("amount", "weights", "parts"),
    [
        (200_000, [60, 40], [120_000, 80_000]),
        (10, [0, 0, 0], [4, 3, 3]),
        (10, [1, 1, 1], [4, 3, 3]),
        (1, [1, 2], [0, 1]),
        (7, [0, 5], [0, 7]),
        (0, [3, 4], [0, 0]),
        (5, [9], [5]),
        (100, [1, 1, 4], [17, 17, 66]),  # 16.67, 16.67, 66.67: the two ones by key
    ],
)
def test_by_weight_then_by_largest_remainder_then_by_key(
    amount: int, weights: list[int], parts: list[int]
) -> None:
    apportioned = apportion(amount, {(position,): weight for position, weight in enumerate(weights)})
    assert list(apportioned.values()) == parts
