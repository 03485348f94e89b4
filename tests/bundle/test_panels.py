"""The layer over grafanalib writes what Grafana reads today, and what a page of panels needs besides."""

import json
from typing import Any

import pytest

from dashboards import fields, links, palette
from dashboards.build import Row, dashboard, row, text_of
from dashboards.panels import (
    Modern,
    alert_list,
    bar_gauge,
    gauge,
    heatmap,
    now,
    over_time,
    pie,
    rows,
    stat,
    state_timeline,
    table,
    text,
    timed,
    timeseries,
)
from dashboards.variables import CLUSTER, Variable

Json = dict[str, Any]
ON = fields.words({1: ("on", palette.GOOD)})
NODE = Variable("node", "Node", 'gputally_gpu_info{cluster=~"$cluster"}', multi=False)


def page(*given: Row, variables: tuple[Variable, ...] = (CLUSTER,)) -> Json:
    made: Json = json.loads(text_of(dashboard("test", "Test", "d", *given, variables=variables)))
    return made


def written(panel: Modern) -> Json:
    first: Json = page(row("", panel))["panels"][0]
    return first


def box(width: int, height: int = 4) -> Modern:
    return stat("Stat", "d", now("up"), unit="short", width=width, height=height)


def place(panel: Json) -> tuple[int, int]:
    return panel["gridPos"]["x"], panel["gridPos"]["y"]


def test_a_stat_is_written_whole_and_with_nothing_else() -> None:
    assert written(stat("Up", "Whether it is.", now("up", "it"), unit="short", decimals=1)) == {
        "id": 1,
        "type": "stat",
        "title": "Up",
        "description": "Whether it is.",
        "gridPos": {"h": 4, "w": 4, "x": 0, "y": 0},
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "targets": [
            {
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "editorMode": "code",
                "expr": "up",
                "legendFormat": "it",
                "refId": "A",
                "instant": True,
                "range": False,
                "format": "time_series",
            }
        ],
        "fieldConfig": {
            "defaults": {
                "unit": "short",
                "decimals": 1,
                "color": {"mode": "thresholds"},
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"color": palette.NEUTRAL, "value": None}],
                },
                "mappings": [],
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "center",
            "orientation": "auto",
            "textMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    }


@pytest.mark.parametrize(
    "panel",
    [
        timeseries("T", "d", over_time("up"), unit="short"),
        gauge("T", "d", now("up"), unit="short", most=1),
        bar_gauge("T", "d", now("up"), unit="short"),
        pie("T", "d", now("up"), unit="short"),
        state_timeline("T", "d", over_time("up"), mappings=ON),
        heatmap("T", "d", over_time("up"), unit="short"),
        table("T", "d", rows("up")),
        alert_list("T", "d"),
        text("words"),
    ],
    ids=lambda panel: panel.kind,
)
def test_no_panel_has_what_grafana_would_have_to_migrate(panel: Modern) -> None:
    old = {"columns", "fontSize", "editable", "error", "span", "height", "renderer", "maxDataPoints", "yaxes"}
    made = written(panel)
    assert made["type"] == panel.kind
    assert not old & made.keys()
    assert None not in made.values()


def test_queries_are_lettered_in_their_order() -> None:
    made = written(table("T", "d", rows("a"), rows("b"), rows("c")))
    assert [(each["refId"], each["expr"]) for each in made["targets"]] == [("A", "a"), ("B", "b"), ("C", "c")]


def test_several_queries_of_a_table_are_put_together_before_columns_are_ordered() -> None:
    made = written(table("T", "d", rows("a"), rows("b"), hidden=("cluster",), order=("node", "Value #A")))
    assert [step["id"] for step in made["transformations"]] == ["merge", "organize"]
    assert made["transformations"][1]["options"] == {
        "excludeByName": {"Time": True, "cluster": True},
        "indexByName": {"node": 0, "Value #A": 1},
        "renameByName": {},
    }


def test_what_an_empty_table_says_is_not_said_in_each_empty_cell() -> None:
    made = written(table("T", "d", rows("a"), columns=(fields.column("node", width=9),), no_value="Nothing"))
    assert made["fieldConfig"]["defaults"]["noValue"] == "Nothing"
    _, everywhere, node = made["fieldConfig"]["overrides"]
    assert everywhere["matcher"]["options"] == ".*"
    assert everywhere["properties"] == [{"id": "noValue", "value": ""}]
    assert node["matcher"]["options"] == "node"


def test_a_label_that_looks_like_a_number_is_shown_as_it_is() -> None:
    made = written(table("T", "d", rows("a"), unit="bytes"))
    first = made["fieldConfig"]["overrides"][0]
    assert first["matcher"] == {"id": "byType", "options": "string"}
    assert first["properties"] == [{"id": "unit", "value": "string"}]


@pytest.mark.parametrize(("ascending", "descending"), [(False, True), (True, False)])
def test_a_table_is_sorted_with_the_largest_first_unless_told(ascending: bool, descending: bool) -> None:
    made = written(table("T", "d", rows("a"), sort_by="Watts", ascending=ascending))
    assert made["options"]["sortBy"] == [{"displayName": "Watts", "desc": descending}]


def test_the_gravest_alerts_come_first() -> None:
    made = written(alert_list("Alerts", "d", chosen='node=~"$node"'))
    (expr,) = (target["expr"] for target in made["targets"])
    for severity, number in (("critical", 3), ("warning", 2), ("info", 1)):
        assert f'node=~"$node", severity="{severity}"}}) * {number}' in expr
    assert made["options"]["sortBy"] == [{"displayName": "Severity", "desc": True}]


def test_a_cell_with_a_word_has_its_colour_and_an_empty_one_none() -> None:
    column = fields.column("Value", mappings=ON)
    properties = {each["id"]: each["value"] for each in column["properties"]}
    assert properties["mappings"][0]["options"]["1"]["color"] == palette.GOOD
    assert properties["thresholds"]["steps"] == [{"color": palette.CLEAR, "value": None}]


def test_the_words_of_a_state_timeline_are_in_its_legend() -> None:
    # Grafana shows ranges with `thresholds`, and nothing with a continuous scale.
    made = written(state_timeline("T", "d", over_time("up"), mappings=ON))
    assert made["fieldConfig"]["defaults"]["color"]["mode"] == "fixed"


def test_ranges_that_are_counted_already_are_not_counted_again() -> None:
    assert written(heatmap("T", "d", over_time("up"), unit="short"))["options"]["calculate"] is True
    counted = written(heatmap("T", "d", over_time("up"), unit="short", counted=True))
    assert counted["options"]["calculate"] is False


def test_parts_that_are_stacked_have_no_lines_of_their_own() -> None:
    for stack, width in ((True, 0), (False, 1)):
        made = written(timeseries("T", "d", over_time("up"), unit="short", stack=stack))
        assert made["fieldConfig"]["defaults"]["custom"]["lineWidth"] == width


def test_a_panel_may_have_steps_and_a_range_of_its_own() -> None:
    made = written(timed(box(4), step="5m", since="now/d"))
    assert (made["interval"], made["timeFrom"], made["hideTimeOverride"]) == ("5m", "now/d", True)
    assert not {"interval", "timeFrom"} & written(box(4)).keys()


def test_panels_go_from_left_to_right_and_then_below_the_highest() -> None:
    made = page(row("", box(12, 9), box(12, 4), box(6)), row("More", box(24)))["panels"]
    assert [place(panel) for panel in made] == [(0, 0), (12, 0), (0, 9), (0, 13), (0, 14)]


def test_a_collapsed_row_holds_its_panels_and_takes_one_line() -> None:
    first, folded, after, last = page(
        row("", box(4)), row("Folded", box(4), box(4), collapsed=True), row("After", box(4))
    )["panels"]
    assert (first["type"], folded["type"], after["type"], last["type"]) == ("stat", "row", "row", "stat")
    assert [panel["title"] for panel in folded["panels"]] == ["Stat", "Stat"]
    assert place(after)[1] == place(folded)[1] + 1
    numbers = [
        first["id"],
        folded["id"],
        *(panel["id"] for panel in folded["panels"]),
        after["id"],
        last["id"],
    ]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_marks_are_of_the_nodes_that_are_chosen_where_one_can_choose() -> None:
    fleet, node = (page(row("", box(4)), variables=chosen) for chosen in ((CLUSTER,), (CLUSTER, NODE)))
    for made, is_asked in ((fleet, False), (node, True)):
        for mark in made["annotations"]["list"]:
            assert 'cluster=~"$cluster"' in mark["expr"]
            assert ('node=~"$node"' in mark["expr"]) is is_asked


def test_a_variable_offers_all_unless_it_is_for_one() -> None:
    datasource, cluster, node = page(row("", box(4)), variables=(CLUSTER, NODE))["templating"]["list"]
    assert (datasource["name"], datasource["type"]) == ("datasource", "datasource")
    assert (cluster["includeAll"], cluster["allValue"], cluster["multi"]) == (True, ".*", True)
    assert (node["includeAll"], node["multi"], "allValue" in node) == (False, False, False)


def test_a_link_takes_the_time_and_what_is_chosen_along() -> None:
    address = links.by_row("GPU", "node", "node", "gpu")["url"]
    assert address.startswith("/d/gputally-node?${datasource:queryparam}&${cluster:queryparam}&")
    assert 'var-node=${__data.fields["node"]}&var-gpu=${__data.fields["gpu"]}' in address
    assert address.endswith("&${__url_time_range}")
