"""Every query of every dashboard has a result on a Prometheus with a simulated fleet."""

import json
import re
from collections.abc import Iterator

import pytest

from dashboards import Json, registry
from dashboards.reading import (
    PanelQuery,
    annotation_queries,
    fill_variables,
    label_values_query,
    panel_queries,
    panels,
    variables,
)
from dashboards.variables import ALL
from tests.bundle.lab.choices import EMPTY, EVERYTHING, ONE, Choice, default_range_seconds
from tests.bundle.lab.data import END, STEP
from tools.servers.prometheus import Prometheus

# Making the data takes a minute, on a busy machine several.

DASHBOARDS: dict[str, Json] = {name: json.loads(text) for name, text in registry.texts().items()}
MOST_POINTS = 1000
"""About the width of a graph in pixels."""


def choose(choice: Choice) -> Choice:
    """The values as Grafana writes them into a regular expression, All for the others."""
    one = {
        name: value if value == ALL else re.escape(value).replace("\\", r"\\")
        for name, value in choice.items()
    }
    return {**EVERYTHING, **one}


def result(lab: Prometheus, dashboard: Json, query: PanelQuery, choice: Choice) -> list[Json]:
    seconds = default_range_seconds(dashboard)
    step = max(STEP, seconds // MOST_POINTS)
    grafana_variables = {
        "__interval": f"{step}s",
        "__rate_interval": f"{max(step + STEP, 4 * STEP)}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
    }
    expr = fill_variables(query.expr, {**choose(choice), **grafana_variables})
    if query.instant:
        found = lab.api("query", query=expr, time=str(END))
    else:
        found = lab.api("query_range", query=expr, start=str(END - seconds), end=str(END), step=str(step))
    samples: list[Json] = found["result"]
    return samples


def queries(dashboard: Json) -> Iterator[PanelQuery]:
    for panel in panels(dashboard):
        yield from panel_queries(panel)


def expected_to_be_empty(name: str) -> set[tuple[str, str]]:
    return {(panel, ref_id) for dashboard, panel, ref_id in EMPTY if dashboard == name}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_has_a_result_for_all(name: str, lab: Prometheus) -> None:
    dashboard = DASHBOARDS[name]
    empty = {
        (query.location, query.ref_id)
        for query in queries(dashboard)
        if not result(lab, dashboard, query, EVERYTHING)
    }
    assert empty == expected_to_be_empty(name)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_has_a_result_for_one_value_of_each_variable(name: str, lab: Prometheus) -> None:
    dashboard = DASHBOARDS[name]
    empty = {
        (query.location, query.ref_id)
        for query in queries(dashboard)
        if not any(result(lab, dashboard, query, choice) for choice in ONE[name])
    }
    assert empty == expected_to_be_empty(name)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_offers_the_chosen_values(name: str, lab: Prometheus) -> None:
    dashboard = DASHBOARDS[name]
    for variable in variables(dashboard).values():
        selector, label = label_values_query(variable)
        if selector:
            found = lab.api(
                "series",
                **{
                    "match[]": fill_variables(selector, EVERYTHING),
                    "start": str(END - default_range_seconds(dashboard)),
                },
            )
            offered = {series.get(label, "") for series in found} - {""}
            wanted = {choice[variable["name"]] for choice in ONE[name]}
            assert wanted <= offered, f"{variable['name']} offers {sorted(offered)}"


@pytest.mark.parametrize("name", [name for name in DASHBOARDS if DASHBOARDS[name]["annotations"]["list"]])
def test_alerts_and_xids_are_annotated(name: str, lab: Prometheus) -> None:
    hours = {**DASHBOARDS[name], "time": {"from": "now-6h"}}
    for query in annotation_queries(DASHBOARDS[name]):
        assert result(lab, hours, query, EVERYTHING), query.location


def test_queries_expected_to_be_empty_exist() -> None:
    existing = {
        (name, query.location, query.ref_id) for name, made in DASHBOARDS.items() for query in queries(made)
    }
    assert EMPTY.keys() <= existing


def test_every_dashboard_has_a_choice_for_its_variables() -> None:
    for name, dashboard in DASHBOARDS.items():
        wanted = {each for each, variable in variables(dashboard).items() if variable["type"] == "query"}
        assert all(choice.keys() == wanted for choice in ONE[name]), name
