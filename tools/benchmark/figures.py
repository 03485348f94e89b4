"""Percentiles, medians of several rounds, and growth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed; `ordered` is sorted."""
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over several rounds: the median and the range."""

    middle: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Line:
    """cost = base + per_unit * units, fitted by least squares."""

    base: float
    per_unit: float


def fit_line(units: Sequence[float], costs: Sequence[float]) -> Line:
    count = len(units)
    mean_units, mean_cost = sum(units) / count, sum(costs) / count
    variance = sum((unit - mean_units) ** 2 for unit in units)
    if not variance:
        raise ValueError("a line needs two different numbers of units")
    covariance = sum((u - mean_units) * (c - mean_cost) for u, c in zip(units, costs, strict=True))
    per_unit = covariance / variance
    return Line(mean_cost - per_unit * mean_units, per_unit)


def last_step_growth(units: Sequence[float], costs: Sequence[float]) -> float | None:
    """The cost of a unit in the last step, as a multiple of its cost in the steps before.

    1 is linear growth, more is worse than linear. None when the steps before show no growth.
    """
    before = (costs[-2] - costs[0]) / (units[-2] - units[0])
    last = (costs[-1] - costs[-2]) / (units[-1] - units[-2])
    return last / before if before > 0 else None
