"""Finds faults in the dashboards: one line per fault, with dashboard and panel."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from alerts import promql, schema
from alerts.check import full_schema
from dashboards import Json, check_links, check_queries, palette, registry
from dashboards.build import WIDTH
from dashboards.links import uid
from dashboards.reading import panel_name, panels

COLORS = frozenset(
    value for name, value in vars(palette).items() if name.isupper() and isinstance(value, str)
)
_COLOR_KEYS = ("color", "fixedColor", "iconColor")


def problems(
    dashboards: Mapping[str, Json] | None = None, known: promql.SeriesLabels | None = None
) -> list[str]:
    """All faults; empty if there are none. `dashboards` is JSON by dashboard name."""
    if dashboards is None:
        dashboards = {name: json.loads(text) for name, text in registry.texts().items()}
    if known is None:
        known = {**full_schema(), **schema.compat()}
    found = [*_identities(dashboards)]
    for name, dashboard in dashboards.items():
        faults = (
            *_texts(dashboard),
            *_layout(dashboard),
            *_colors(dashboard),
            *check_queries.faults(dashboard, known),
            *check_links.faults(dashboard, dashboards, known),
        )
        found += (f"{name}: {fault}" for fault in faults)
    return found


def _identities(dashboards: Mapping[str, Json]) -> Iterator[str]:
    for key in ("uid", "title"):
        for value, count in Counter(dashboard[key] for dashboard in dashboards.values()).items():
            if count > 1:
                yield f"{key} {value} occurs {count} times"
    for name, dashboard in dashboards.items():
        if dashboard["uid"] != uid(name):
            yield f"{name}: the uid is {dashboard['uid']}, expected {uid(name)}"
        for number, count in Counter(panel["id"] for panel in panels(dashboard)).items():
            if count > 1:
                yield f"{name}: {count} panels have the id {number}"


def _texts(dashboard: Json) -> Iterator[str]:
    if not dashboard["description"]:
        yield "no description"
    for panel in panels(dashboard):
        if panel["type"] == "text":
            continue
        name = panel_name(panel)
        if not panel.get("title"):
            yield f"{name}: no title"
        if not panel.get("description"):
            yield f"{name}: no description"
        if not _unit(panel):
            yield f"{name}: no unit"


def _unit(panel: Json) -> Any:
    if panel["type"] == "heatmap":
        return panel["options"]["yAxis"].get("unit")
    return panel["fieldConfig"]["defaults"].get("unit")


def _layout(dashboard: Json) -> Iterator[str]:
    yield from _overlaps(dashboard["panels"])
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from _overlaps(panel["panels"])


def _overlaps(siblings: list[Json]) -> Iterator[str]:
    for panel in siblings:
        position = panel["gridPos"]
        if position["x"] < 0 or position["x"] + position["w"] > WIDTH:
            yield f"{panel_name(panel)}: wider than {WIDTH} columns"
    for one, other in combinations(siblings, 2):
        if _share_a_cell(one["gridPos"], other["gridPos"]):
            yield f"{panel_name(one)} and {panel_name(other)} overlap"


def _share_a_cell(one: Json, other: Json) -> bool:
    def overlap(start: str, length: str) -> bool:
        least = min(one[start] + one[length], other[start] + other[length])
        return bool(max(one[start], other[start]) < least)

    return overlap("x", "w") and overlap("y", "h")


def _colors(dashboard: Json) -> Iterator[str]:
    for panel in panels(dashboard):
        for color in sorted(set(_colors_in(panel)) - COLORS):
            yield f"{panel_name(panel)}: {color} is not a colour of the palette"
    for annotation in dashboard["annotations"]["list"]:
        for color in sorted(set(_colors_in(annotation)) - COLORS):
            yield f"annotation {annotation['name']}: {color} is not a colour of the palette"


def _colors_in(content: object) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key in _COLOR_KEYS and isinstance(value, str):
                yield value
            else:
                yield from _colors_in(value)
    elif isinstance(content, list):
        for value in content:
            yield from _colors_in(value)
