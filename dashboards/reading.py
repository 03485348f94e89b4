"""Reads panels, queries and variables from the JSON of a dashboard."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dashboards import Json

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?::\w+)?\}|(?P<bare>[A-Za-z_]\w*))")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")
_IN_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """A query to Prometheus and where it occurs."""

    location: str
    """The title of the panel, or the name of the variable or annotation."""
    expr: str
    legend: str = ""
    instant: bool = False
    ref_id: str = "A"


def panels(dashboard: Json) -> Iterator[Json]:
    """Every panel, including those of collapsed rows; no row headings."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def panel_name(panel: Json) -> str:
    """Its title, or its id if it has none."""
    return panel.get("title") or f"panel {panel['id']}"


def column_names(panel: Json) -> dict[str, str]:
    """The titles of a table's columns, by field name."""
    return {
        override["matcher"]["options"]: changed["value"]
        for override in panel["fieldConfig"]["overrides"]
        for changed in override["properties"]
        if changed["id"] == "displayName"
    }


def panel_queries(panel: Json) -> list[PanelQuery]:
    return [
        PanelQuery(
            panel_name(panel), target["expr"], target["legendFormat"], target["instant"], target["refId"]
        )
        for target in panel.get("targets", ())
    ]


def annotation_queries(dashboard: Json) -> list[PanelQuery]:
    """Queries of the annotations; their texts are the legend, because both refer to labels."""
    return [
        PanelQuery(f"annotation {each['name']}", each["expr"], each["titleFormat"] + each["textFormat"])
        for each in dashboard["annotations"]["list"]
    ]


def variables(dashboard: Json) -> dict[str, Json]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def label_values_query(variable: Json) -> tuple[str, str]:
    """The selector and the label of `label_values(selector, label)`; both empty for any other query."""
    query = variable["query"]
    found = _LABEL_VALUES.fullmatch(query["query"] if isinstance(query, dict) else query)
    return (found["selector"], found["label"]) if found else ("", "")


def used_variables(text: str) -> list[str]:
    return [found["braced"] or found["bare"] for found in _VARIABLE.finditer(text)]


def labels_in(legend: str) -> list[str]:
    return _IN_LEGEND.findall(legend)


def fill_variables(text: str, values: Mapping[str, str]) -> str:
    """The text with variables replaced by their values; variables without a value stay."""
    return _VARIABLE.sub(lambda found: values.get(found["braced"] or found["bare"], found[0]), text)
