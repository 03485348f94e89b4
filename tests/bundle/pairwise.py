"""Combinations of options in which every two options of different switches meet at least once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

Option = tuple[str, str]
"""A switch and what it is set to."""
Options = frozenset[Option]


def pairwise(
    switches: Mapping[str, Sequence[str]], refused: Collection[Options] = ()
) -> list[dict[str, str]]:
    """switch -> option, for each combination. No combination holds all of what is refused together."""
    # With the switches that have most options first, there are fewest combinations.
    switches = dict(sorted(switches.items(), key=lambda switch: -len(switch[1])))
    waiting = dict.fromkeys(pairs(switches, refused))
    made: list[dict[str, str]] = []
    while waiting:
        row = dict(next(iter(waiting)))
        for switch, options in switches.items():
            if switch not in row:
                allowed = [option for option in options if not _refused({**row, switch: option}, refused)]
                taken = [old[switch] for old in made]
                # Of equals, the one that was taken least often.
                worth = {
                    option: (_new((switch, option), row, waiting), -taken.count(option)) for option in allowed
                }
                row[switch] = max(allowed, key=worth.__getitem__)
        made.append(row)
        waiting = {pair: None for pair in waiting if not pair <= row.items()}
    return made


def pairs(switches: Mapping[str, Sequence[str]], refused: Collection[Options] = ()) -> Iterator[Options]:
    """Every two options that can be had together."""
    for one, other in combinations(switches, 2):
        for first, second in product(switches[one], switches[other]):
            pair = {one: first, other: second}
            if not _refused(pair, refused):
                yield frozenset(pair.items())


def _refused(row: Mapping[str, str], refused: Collection[Options]) -> bool:
    return any(together <= row.items() for together in refused)


def _new(option: Option, row: Mapping[str, str], waiting: Collection[Options]) -> int:
    """How many pairs that have not met yet an option brings together with those chosen."""
    return sum(frozenset({option, chosen}) in waiting for chosen in row.items())
