"""The combinations: complete, allowed, and few."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.bundle.pairwise import pairs, pairwise

SWITCHES = st.lists(st.integers(min_value=1, max_value=4), min_size=2, max_size=6).map(
    lambda sizes: {
        f"switch{n}": [f"option{option}" for option in range(size)] for n, size in enumerate(sizes)
    }
)


@given(SWITCHES)
def test_every_two_options_meet(switches: dict[str, list[str]]) -> None:
    made = pairwise(switches)
    met = {frozenset(two) for row in made for two in combinations(row.items(), 2)}
    assert met == set(pairs(switches))


def test_what_is_refused_together_never_meets_and_all_else_does() -> None:
    switches = {name: ["on", "off"] for name in "abcde"}
    two = frozenset({("a", "on"), ("b", "off")})
    three = frozenset({("c", "on"), ("d", "off"), ("e", "on")})
    made = pairwise(switches, {two, three})
    assert not any(together <= row.items() for row in made for together in (two, three))
    met = {frozenset(pair) for row in made for pair in combinations(row.items(), 2)}
    assert met == set(pairs(switches)) - {two}


def test_many_switches_take_few_combinations() -> None:
    switches = {f"switch{n}": ["on", "off"] for n in range(30)}
    assert len(pairwise(switches)) <= 14
