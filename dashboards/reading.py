"""Finds the way in the JSON of a dashboard: its panels, queries and variables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::\w+)?\}|(?P<bare>[A-Za-z_]\w*))")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")
_IN_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Query:
    """One question to Prometheus, and where it stands."""

    place: str
    """The panel's title, or which variable or annotation it is."""
    expr: str
    legend: str = ""
    instant: bool = False
    ref_id: str = "A"


def panels(dashboard: Json) -> Iterator[Json]:
    """Every panel, also those that a collapsed row holds; not the headings of rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def called(panel: Json) -> str:
    """What to call it, title or not."""
    return panel.get("title") or f"panel {panel['id']}"


def column_names(panel: Json) -> dict[str, str]:
    """Of a table: name of a column -> what stands above it."""
    return {
        override["matcher"]["options"]: changed["value"]
        for override in panel["fieldConfig"]["overrides"]
        for changed in override["properties"]
        if changed["id"] == "displayName"
    }


def panel_queries(panel: Json) -> list[Query]:
    return [
        Query(called(panel), target["expr"], target["legendFormat"], target["instant"], target["refId"])
        for target in panel.get("targets", ())
    ]


def annotation_queries(dashboard: Json) -> list[Query]:
    """Their texts are in the place of a legend: both name labels."""
    return [
        Query(f"annotation {each['name']}", each["expr"], each["titleFormat"] + each["textFormat"])
        for each in dashboard["annotations"]["list"]
    ]


def variables(dashboard: Json) -> dict[str, Json]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def asked_by(variable: Json) -> tuple[str, str]:
    """The selector and the label of `label_values(selector, label)`; both empty if it is something else."""
    query = variable["query"]
    found = _LABEL_VALUES.fullmatch(query["query"] if isinstance(query, dict) else query)
    return (found["selector"], found["label"]) if found else ("", "")


def used_variables(text: str) -> list[str]:
    return [found["braced"] or found["bare"] for found in _VARIABLE.finditer(text)]


def labels_in(legend: str) -> list[str]:
    return _IN_LEGEND.findall(legend)


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with values in place of variables; those that have none stay."""
    return _VARIABLE.sub(lambda found: values.get(found["braced"] or found["bare"], found[0]), text)
