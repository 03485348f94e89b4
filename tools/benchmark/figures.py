"""Statistics of several rounds, and Markdown tables of them."""

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
class FittedLine:
    """cost = base + per_unit * units, fitted by least squares."""

    base: float
    per_unit: float


def fit_line(units: Sequence[float], costs: Sequence[float]) -> FittedLine:
    count = len(units)
    mean_units, mean_cost = sum(units) / count, sum(costs) / count
    variance = sum((unit - mean_units) ** 2 for unit in units)
    if not variance:
        raise ValueError("a line needs two different numbers of units")
    covariance = sum((u - mean_units) * (c - mean_cost) for u, c in zip(units, costs, strict=True))
    per_unit = covariance / variance
    return FittedLine(mean_cost - per_unit * mean_units, per_unit)


def last_step_growth(units: Sequence[float], costs: Sequence[float]) -> float | None:
    """The cost of a unit in the last step, as a multiple of its cost in the steps before.

    1 is linear growth, more is worse than linear. None when the steps before show no growth.
    """
    before = (costs[-2] - costs[0]) / (units[-2] - units[0])
    last = (costs[-1] - costs[-2]) / (units[-1] - units[-2])
    return last / before if before > 0 else None


def number(value: float | None, digits: int = 3) -> str:
    """The value with this number of significant digits and no exponent; a dash for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def range_of(spread: Spread, digits: int = 3) -> str:
    """The median, and the range in brackets if it differs."""
    low, middle, high = (number(value, digits) for value in (spread.low, spread.middle, spread.high))
    return middle if low == high else f"{middle} ({low}-{high})"


def ratio(value: float | None, base: float | None) -> str:
    """The ratio to the base."""
    if value is None or not base:
        return "-"
    return f"{number(value / base, 2)}x"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with text in the first column and right-aligned numbers in the others."""
    rule = ["---", *("--:" for _ in heads[1:])]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in (heads, rule, *rows))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
