"""How values look: thresholds, mappings from values to words, and exceptions for single fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards import palette

Json = dict[str, Any]


def thresholds(*steps: tuple[float, str], base: str = palette.GOOD) -> Json:
    """`base` below the first step; each step's colour from its value on."""
    first: Json = {"color": base, "value": None}
    return {"mode": "absolute", "steps": [first, *({"color": c, "value": v} for v, c in steps)]}


PLAIN = thresholds(base=palette.NEUTRAL)
"""No value of this is good or bad."""


def words(meanings: Mapping[Any, tuple[str, str]]) -> list[Json]:
    """A word and a colour for each of these values."""
    options = {
        str(value): {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(meanings.items())
    }
    return [{"type": "value", "options": options}]


def beyond(value: float, text: str, color: str) -> list[Json]:
    """A word and a colour for whatever is larger."""
    result = {"text": text, "color": color, "index": 0}
    return [{"type": "range", "options": {"from": value, "to": 1e300, "result": result}}]


def texts(meanings: Mapping[str, str]) -> list[Json]:
    """Other words for these values, and no colours."""
    options = {value: {"text": text, "index": index} for index, (value, text) in enumerate(meanings.items())}
    return [{"type": "value", "options": options}]


YES_IS_BAD = words({0: ("no", palette.GOOD), 1: ("yes", palette.CRITICAL)})
UP = words({0: ("down", palette.CRITICAL), 1: ("up", palette.GOOD)})


def override(field: str, **properties: Any) -> Json:
    """Changes for the field of this name. Names with a dot are given as `custom__width=80`."""
    return _override({"id": "byName", "options": field}, properties)


def override_matching(pattern: str, **properties: Any) -> Json:
    return _override({"id": "byRegexp", "options": pattern}, properties)


def override_text(**properties: Any) -> Json:
    """Changes for all fields that are text: the labels, in a table."""
    return _override({"id": "byType", "options": "string"}, properties)


def color_of(field: str, color: str) -> Json:
    return override(field, color={"mode": "fixed", "fixedColor": color})


def colors_of(meanings: Mapping[str, str]) -> list[Json]:
    return [color_of(field, color) for field, color in meanings.items()]


def hide(*fields: str) -> list[Json]:
    """Table columns that are only there for links."""
    return [override(field, custom__hidden=True) for field in fields]


def column(
    field: str,
    *,
    name: str = "",
    unit: str = "",
    decimals: int | None = None,
    width: int | None = None,
    link: Json | None = None,
    mappings: Sequence[Json] = (),
    bar_up_to: float | None = None,
    steps: Json | None = None,
) -> Json:
    """A column of a table; `bar_up_to` draws it as a bar, `steps` and `mappings` colour its cells."""
    properties: Json = {}
    if name:
        properties["displayName"] = name
    if unit:
        properties["unit"] = unit
    if decimals is not None:
        properties["decimals"] = decimals
    if width:
        properties["custom__width"] = width
    if link:
        properties["links"] = [link]
    if mappings:
        properties["mappings"] = list(mappings)
        properties["thresholds"] = thresholds(base=palette.CLEAR)
        properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic"}
        properties["custom__align"] = "center"
    if steps:
        properties["thresholds"] = steps
        properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic"}
    if bar_up_to is not None:
        properties |= {"min": 0, "max": bar_up_to}
        properties["custom__cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    return override(field, **properties)


def share(field: str, name: str, *, width: int | None = None, decimals: int = 0) -> Json:
    """A column of shares of a whole, as bars."""
    return column(field, name=name, unit="percentunit", decimals=decimals, bar_up_to=1, width=width)


def _override(matcher: Json, properties: Mapping[str, Any]) -> Json:
    listed = [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()]
    return {"matcher": matcher, "properties": listed}
