"""Dealing whole numbers out so that nothing is lost and nothing is made up."""

from collections.abc import Mapping
from typing import Any, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])


def deal(amount: int, weights: Mapping[Key, int]) -> dict[Key, int]:
    """Whole parts of the amount in proportion to the weights, which add up to it exactly.

    By largest remainder: no part is a whole unit away from its exact share. Equal remainders go by key,
    so that the order in which the weights come changes nothing. Without any weight all get the same.
    """
    if len(weights) == 1:
        return dict.fromkeys(weights, amount)
    total = sum(weights.values())
    if total == 0:
        weights = dict.fromkeys(weights, 1)
        total = len(weights)
    parts = {key: amount * weight // total for key, weight in weights.items()}
    left = amount - sum(parts.values())
    if left:
        remainders = [(-(amount * weight % total), key) for key, weight in weights.items()]
        remainders.sort()
        for _, key in remainders[:left]:
            parts[key] += 1
    return parts
