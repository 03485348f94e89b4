"""Markdown tables and the numbers in them."""

import math
from collections.abc import Sequence

from tools.benchmark.figures import Spread


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
