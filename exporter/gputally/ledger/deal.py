"""Dealing whole numbers out so that nothing is lost and nothing is made up."""

from collections.abc import Mapping
from typing import Any, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])


def deal(amount: int, weights: Mapping[Key, int]) -> dict[Key, int]:
    """Whole parts of the amount in proportion to the weights, which add up to it exactly.

    By largest remainder: no part is a whole unit away from its exact share. Equal remainders go by key,
    so that the order in which the weights come changes nothing. Without any weight all get the same.
    """
    total = sum(weights.values())
    if total == 0:
        weights = dict.fromkeys(weights, 1)
        total = len(weights)
    parts: dict[Key, int] = {}
    remainders: list[tuple[int, Key]] = []
    left = amount
    for key, weight in weights.items():
        part, remainder = divmod(amount * weight, total)
        parts[key] = part
        left -= part
        remainders.append((-remainder, key))
    if left:
        remainders.sort()
        for _, key in remainders[:left]:
            parts[key] += 1
    return parts
