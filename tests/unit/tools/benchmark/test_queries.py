"""What Grafana would ask when a dashboard is opened."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.build import dashboard, row, text_of
from dashboards.panels import heatmap, now, over_time, stat, timed, timeseries
from dashboards.reading import used_variables
from dashboards.variables import CLUSTER
from tools.benchmark.queries import ApiRequest, View, queries, step_between_points

END = 20 * 86_400 + 5 * 3600
VIEW = View(end=END, seconds=6 * 3600, pixels=1920, scrape_seconds=15)
UP = 'gputally_gpu_up{cluster=~"$cluster"}'
PAGE = json.loads(
    text_of(
        dashboard(
            "a-page",
            "A page",
            "For a test.",
            row(
                "",
                stat("Now", "d", now(UP), unit="short"),
                timed(stat("Today", "d", now(f"sum_over_time({UP}[$__range])"), unit="short"), since="now/d"),
                timeseries("Wide", "d", over_time(UP), over_time(f"{UP} * 2"), unit="short", width=24),
                timeseries("Narrow", "d", over_time(UP), unit="short", width=8),
            ),
            row(
                "More", timed(heatmap("Coarse", "d", over_time(UP), unit="short"), step="5m"), collapsed=True
            ),
            variables=(CLUSTER,),
        )
    )
)


def asked(place: str) -> ApiRequest:
    (found,) = [query for query in queries(PAGE, VIEW) if query.place == place]
    return found


@pytest.mark.parametrize(
    ("exact", "least", "step"),
    [
        (11.25, 15, 15),
        (22.5, 15, 20),
        (25.0, 15, 30),
        (33.75, 15, 30),
        (33.75, 60, 60),
        (200, 60, 120),
        (9e9, 1, 86400),
    ],
)
def test_points_have_the_step_of_grafana(exact: float, least: float, step: float) -> None:
    assert step_between_points(exact, least) == step


@given(st.floats(0.01, 1e6), st.floats(1, 600))
def test_points_have_at_least_the_minimum_step(exact: float, least: float) -> None:
    assert step_between_points(exact, least) >= least


def test_instant_panels_are_queried_at_the_end_only() -> None:
    query = asked("Now, A")
    assert query.path == "query"
    assert query.parameters["time"] == str(END)
    assert "step" not in query.parameters


def test_a_graph_has_a_point_for_about_each_pixel_of_its_width() -> None:
    wide, narrow = asked("Wide, B").parameters, asked("Narrow, A").parameters
    assert (wide["step"], narrow["step"]) == ("15", "30")
    assert (wide["start"], wide["end"]) == (str(END - 6 * 3600), str(END))


def test_a_panel_with_a_step_of_its_own_keeps_it_also_in_a_collapsed_row() -> None:
    assert asked("Coarse, A").parameters["step"] == "300"


def test_today_starts_at_midnight() -> None:
    assert f"[{5 * 3600}s]" in asked("Today, A").parameters["query"]


def test_annotations_and_variables_are_queried() -> None:
    marks = asked("annotation XIDs")
    assert (marks.path, marks.parameters["step"]) == ("query_range", "60")
    variable = asked("variable cluster")
    assert variable.path == "label/cluster/values"
    assert variable.parameters["match[]"] == "gputally_gpu_info"


def test_every_variable_of_a_query_is_replaced() -> None:
    for query in queries(PAGE, VIEW):
        assert not used_variables(query.parameters.get("query", "")), query.place
        assert "$" not in query.parameters.get("query", "")
