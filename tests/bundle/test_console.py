"""The console dashboards use only what OpenShift's console supports."""

import json
import re
from collections.abc import Iterator

import jsonschema
import pytest

from alerts import promql
from alerts.check import full_schema
from dashboards import Json, console
from tests.bundle.lab.data import END, STEP
from tools.servers.prometheus import Prometheus

# Making the data takes a minute, on a busy machine several.

DASHBOARDS: dict[str, Json] = {name: json.loads(text) for name, text in console.texts().items()}
UNITS = ["Bytes", "bytes", "bps", "Bps", "pps", "ms", "s", "percentunit", "short"]
COLORS = ["blue", "green", "orange", "purple", "red", "yellow"]
RANGE = 1800
"""The console's default range in seconds."""


def closed(properties: Json, *optional: str) -> Json:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in properties if name not in optional],
        "properties": properties,
    }


def array(items: Json, least: int = 1, most: int = 26) -> Json:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


TEXT: Json = {"type": "string", "minLength": 1}
NUMBER: Json = {"type": "number"}
TARGET = {"refId": {"type": "string", "pattern": "^[A-Z]$"}, "expr": TEXT}
EVERY_PANEL = {
    "id": {"type": "integer"},
    "title": TEXT,
    "span": {"type": "integer", "minimum": 3, "maximum": 12},
}
STEP_OF_COLOR = closed({"value": NUMBER, "color": {"enum": COLORS}})
SINGLESTAT = closed(
    {
        **EVERY_PANEL,
        "type": {"const": "singlestat"},
        "format": {"enum": UNITS},
        "decimals": NUMBER,
        "options": closed({"fieldOptions": closed({"thresholds": array(STEP_OF_COLOR, least=0)})}),
        # Only the first query is run.
        "targets": array(closed(TARGET), most=1),
    }
)
GRAPH = closed(
    {
        **EVERY_PANEL,
        "type": {"const": "graph"},
        "stack": {"type": "boolean"},
        "legend": closed({"show": {"type": "boolean"}}),
        "yaxes": array(closed({"format": {"enum": UNITS}}), most=1),
        "targets": array(closed({**TARGET, "legendFormat": TEXT})),
    }
)
LABEL_COLUMN = closed(
    {"pattern": {"type": "string", "pattern": "^[a-z]+$"}, "alias": TEXT, "type": {"const": "string"}}
)
VALUE_COLUMN = closed(
    {
        "pattern": {"type": "string", "pattern": "^Value #[A-Z]$"},
        "alias": TEXT,
        "type": {"const": "number"},
        "unit": {"enum": UNITS},
        "decimals": NUMBER,
    }
)
TABLE = closed(
    {
        **EVERY_PANEL,
        "type": {"const": "table"},
        "styles": array({"oneOf": [LABEL_COLUMN, VALUE_COLUMN]}),
        "targets": array(closed(TARGET)),
    }
)
VARIABLE = closed(
    {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "type": {"const": "query"},
        # A string, unlike the object of newer Grafana versions.
        "query": {"type": "string", "pattern": r"^label_values\(.+, [a-z]+\)$"},
        "includeAll": {"const": True},
        "hide": {"const": 0},
        "options": array({}, least=0, most=0),
    }
)
DASHBOARD = closed(
    {
        "title": TEXT,
        "tags": array(TEXT),
        "templating": closed({"list": array(VARIABLE, least=0)}),
        "rows": array(
            closed(
                {
                    "title": {"type": "string"},
                    "showTitle": {"type": "boolean"},
                    "collapse": {"type": "boolean"},
                    "panels": array({"oneOf": [SINGLESTAT, GRAPH, TABLE]}),
                }
            )
        ),
    }
)
"""The part of the schema that the console reads."""


def panels(dashboard: Json) -> Iterator[Json]:
    for row in dashboard["rows"]:
        yield from row["panels"]


def filled(expr: str, namespace: str = ".+") -> str:
    """The expression with variables filled in as the console does, without braces."""
    return re.sub(r"\$namespace\b", namespace, re.sub(r"\$__range\b", f"{RANGE}s", expr))


def labels_of(expr: str) -> promql.LabelNames:
    return promql.labels_of(filled(expr), full_schema())


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_console_dashboard_uses_only_what_the_console_supports(name: str) -> None:
    jsonschema.Draft7Validator(DASHBOARD).validate(DASHBOARDS[name])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_and_queries_have_unique_ids(name: str) -> None:
    ids = [panel["id"] for panel in panels(DASHBOARDS[name])]
    assert len(set(ids)) == len(ids)
    for panel in panels(DASHBOARDS[name]):
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_queries_use_existing_metrics_and_legends_existing_labels(name: str) -> None:
    for panel in panels(DASHBOARDS[name]):
        for target in panel["targets"]:
            assert "$" not in filled(target["expr"])
            has = labels_of(target["expr"])
            used = re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))
            assert set(used) <= has, panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_table_has_a_column_for_every_query_and_every_label(name: str) -> None:
    """The console joins rows with equal labels."""
    for panel in panels(DASHBOARDS[name]):
        if panel["type"] == "table":
            columns = [style["pattern"] for style in panel["styles"]]
            values = [f"Value #{target['refId']}" for target in panel["targets"]]
            labels = [column for column in columns if column not in values]
            assert columns == labels + values
            for target in panel["targets"]:
                assert labels_of(target["expr"]) == set(labels), target["expr"]


def test_there_is_no_variable_for_a_label_that_can_be_missing() -> None:
    """All is `.+`, which does not match series without the label."""
    for name, dashboard in DASHBOARDS.items():
        for variable in dashboard["templating"]["list"]:
            assert variable["name"] != "cluster", name


@pytest.mark.parametrize("namespace", [".+", "nlp"])
@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_has_a_result(name: str, namespace: str, lab: Prometheus) -> None:
    empty = []
    for panel in panels(DASHBOARDS[name]):
        for target in panel["targets"]:
            expr = filled(target["expr"], namespace)
            over = {"start": str(END - RANGE), "end": str(END), "step": str(STEP)}
            found = (
                lab.api("query_range", query=expr, **over)
                if panel["type"] == "graph"
                else lab.api("query", query=expr, time=str(END))
            )
            if not found["result"]:
                empty.append((panel["title"], target["refId"]))
    assert empty == []
