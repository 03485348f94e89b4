"""Apportions a whole number so that the parts add up to it exactly."""

from collections.abc import Mapping
from typing import Any, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...])


def apportion(amount: int, weights: Mapping[Key, int]) -> dict[Key, int]:
    """Whole parts of the amount in proportion to the weights, which add up to it exactly.

    By largest remainder: no part differs from its exact share by a whole unit. Equal remainders go by key,
    so the order of the weights does not matter. If all weights are zero, the parts are equal.
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
