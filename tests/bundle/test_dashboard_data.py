"""Every query of every dashboard, asked of a Prometheus with a simulated fleet: it must have an answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards import every
from dashboards.reading import (
    Query,
    annotation_queries,
    asked_by,
    fill,
    panel_queries,
    panels,
    variables,
)
from dashboards.variables import ALL
from tests.bundle.lab.choices import EMPTY, EVERYTHING, ONE, Choice
from tests.bundle.lab.data import END, STEP
from tools.replay.prometheus import Prometheus

Json = dict[str, Any]

# The data take a minute to make, and on a busy machine several.
pytestmark = pytest.mark.timeout(600)

DASHBOARDS: dict[str, Json] = {name: json.loads(text) for name, text in every.texts().items()}
SECONDS = {"h": 3600, "d": 86_400}
MOST_POINTS = 1000
"""About as many as a graph is wide."""


def span(dashboard: Json) -> int:
    """How many seconds it shows, as long as nobody chooses another range."""
    found = re.fullmatch(r"now-(\d+)([hd])", dashboard["time"]["from"])
    assert found, dashboard["time"]
    return int(found[1]) * SECONDS[found[2]]


def choose(choice: Choice) -> Choice:
    """The choice as Grafana writes it into a regular expression, and All for what is not chosen."""
    one = {
        name: value if value == ALL else re.escape(value).replace("\\", r"\\")
        for name, value in choice.items()
    }
    return {**EVERYTHING, **one}


def answer(lab: Prometheus, dashboard: Json, query: Query, choice: Choice) -> list[Json]:
    seconds = span(dashboard)
    step = max(STEP, seconds // MOST_POINTS)
    grafanas = {
        "__interval": f"{step}s",
        "__rate_interval": f"{max(step + STEP, 4 * STEP)}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
    }
    expr = fill(query.expr, {**choose(choice), **grafanas})
    if query.instant:
        found = lab.ask("query", query=expr, time=str(END))
    else:
        found = lab.ask("query_range", query=expr, start=str(END - seconds), end=str(END), step=str(step))
    result: list[Json] = found["result"]
    return result


def queries(dashboard: Json) -> Iterator[Query]:
    for panel in panels(dashboard):
        yield from panel_queries(panel)


def expected_to_be_empty(name: str) -> set[tuple[str, str]]:
    return {(panel, ref_id) for dashboard, panel, ref_id in EMPTY if dashboard == name}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_has_an_answer_when_all_is_chosen(name: str, lab: Prometheus) -> None:
    dashboard = DASHBOARDS[name]
    empty = {
        (query.place, query.ref_id)
        for query in queries(dashboard)
        if not answer(lab, dashboard, query, EVERYTHING)
    }
    assert empty == expected_to_be_empty(name)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_has_an_answer_when_one_of_each_is_chosen(name: str, lab: Prometheus) -> None:
    dashboard = DASHBOARDS[name]
    empty = {
        (query.place, query.ref_id)
        for query in queries(dashboard)
        if not any(answer(lab, dashboard, query, choice) for choice in ONE[name])
    }
    assert empty == expected_to_be_empty(name)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_offers_what_one_can_choose(name: str, lab: Prometheus) -> None:
    dashboard = DASHBOARDS[name]
    for variable in variables(dashboard).values():
        selector, label = asked_by(variable)
        if selector:
            found = lab.ask(
                "series", **{"match[]": fill(selector, EVERYTHING), "start": str(END - span(dashboard))}
            )
            offered = {series.get(label, "") for series in found} - {""}
            wanted = {choice[variable["name"]] for choice in ONE[name]}
            assert wanted <= offered, f"{variable['name']} offers {sorted(offered)}"


@pytest.mark.parametrize("name", [name for name in DASHBOARDS if DASHBOARDS[name]["annotations"]["list"]])
def test_alerts_and_xids_are_marked(name: str, lab: Prometheus) -> None:
    hours = {**DASHBOARDS[name], "time": {"from": "now-6h"}}
    for query in annotation_queries(DASHBOARDS[name]):
        assert answer(lab, hours, query, EVERYTHING), query.place


def test_what_is_said_to_be_empty_is_a_query_that_there_is() -> None:
    there = {
        (name, query.place, query.ref_id) for name, made in DASHBOARDS.items() for query in queries(made)
    }
    assert EMPTY.keys() <= there


def test_one_can_choose_something_on_every_dashboard() -> None:
    for name, dashboard in DASHBOARDS.items():
        wanted = {each for each, variable in variables(dashboard).items() if variable["type"] == "query"}
        assert all(choice.keys() == wanted for choice in ONE[name]), name
