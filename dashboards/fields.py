"""Appearance of values: thresholds, value mappings, and overrides for single fields."""

from collections.abc import Mapping
from typing import Any

from dashboards import Json, palette


def thresholds(*steps: tuple[float, str], base: str = palette.GOOD) -> Json:
    """`base` below the first step; each step's colour from its value on."""
    first: Json = {"color": base, "value": None}
    return {"mode": "absolute", "steps": [first, *({"color": c, "value": v} for v, c in steps)]}


PLAIN = thresholds(base=palette.NEUTRAL)
"""No value is good or bad."""
NO_COLOUR = thresholds(base=palette.CLEAR)
POWER = thresholds(base=palette.POWER)
HIGHER_IS_BETTER = thresholds((0.3, palette.WARNING), (0.6, palette.GOOD), base=palette.CRITICAL)
LOWER_IS_BETTER = thresholds((0.2, palette.WARNING), (0.5, palette.CRITICAL))
ANY_IS_CRITICAL = thresholds((1, palette.CRITICAL))
ANY_IS_WARNING = thresholds((1, palette.WARNING))
ANY_IS_IDLE = thresholds((0.5, palette.IDLE))
HOT = thresholds((80, palette.WARNING), (90, palette.CRITICAL))
# In a table only the cells that need attention have a colour.
CELL_ANY_IS_CRITICAL = thresholds((1, palette.CRITICAL), base=palette.CLEAR)
CELL_ANY_IS_IDLE = thresholds((0.5, palette.IDLE), base=palette.CLEAR)
CELL_HOT = thresholds((80, palette.WARNING), (90, palette.CRITICAL), base=palette.CLEAR)

MONEY: Json = {"unit": "none", "decimals": 2}


def value_texts(meanings: Mapping[Any, tuple[str, str]]) -> list[Json]:
    """A text and a colour for each value."""
    options = {
        str(value): {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(meanings.items())
    }
    return [{"type": "value", "options": options}]


def above(value: float, text: str, color: str) -> list[Json]:
    """A text and a colour for all larger values."""
    result = {"text": text, "color": color, "index": 0}
    return [{"type": "range", "options": {"from": value, "to": 1e300, "result": result}}]


def texts(meanings: Mapping[str, str]) -> list[Json]:
    """Texts for values, without colours."""
    options = {value: {"text": text, "index": index} for index, (value, text) in enumerate(meanings.items())}
    return [{"type": "value", "options": options}]


UP = value_texts({0: ("down", palette.CRITICAL), 1: ("up", palette.GOOD)})


ERROR_TYPES = value_texts(
    {
        "corrected": ("corrected", palette.HELD),
        "deferred": ("deferred", palette.WARNING),
        "uncorrected": ("uncorrected", palette.CRITICAL),
    }
)


def override(field: str, **properties: Any) -> Json:
    """Properties of the field of this name; `custom__width=80` sets `custom.width`."""
    return _override({"id": "byName", "options": field}, properties)


def override_matching(pattern: str, **properties: Any) -> Json:
    return _override({"id": "byRegexp", "options": pattern}, properties)


def override_text(**properties: Any) -> Json:
    """Properties of all text fields, such as the labels in a table."""
    return _override({"id": "byType", "options": "string"}, properties)


def color_of(field: str, color: str) -> Json:
    return override(field, color={"mode": "fixed", "fixedColor": color})


def colors_of(meanings: Mapping[str, str]) -> list[Json]:
    return [color_of(field, color) for field, color in meanings.items()]


def _override(matcher: Json, properties: Mapping[str, Any]) -> Json:
    listed = [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()]
    return {"matcher": matcher, "properties": listed}
