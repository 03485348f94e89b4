"""The builders of panels, tables, rows, variables and links; the committed JSON pins the rest."""

import json

import pytest

from dashboards import Json, fields, links, palette
from dashboards.build import PanelRow, dashboard, row, text_of
from dashboards.panels import Panel, now, rows, stat, timed
from dashboards.tables import alert_list, column, table, value_columns
from dashboards.variables import CLUSTER, Variable

NODE = Variable("node", "Node", 'gputally_gpu_info{cluster=~"$cluster"}', multi=False)


def page(*given: PanelRow, variables: tuple[Variable, ...] = (CLUSTER,)) -> Json:
    made: Json = json.loads(text_of(dashboard("test", "Test", "d", *given, variables=variables)))
    return made


def written(panel: Panel) -> Json:
    first: Json = page(row("", panel))["panels"][0]
    return first


def box(width: int, height: int = 4) -> Panel:
    return stat("Stat", "d", now("up"), unit="short", width=width, height=height)


def position(panel: Json) -> tuple[int, int]:
    return panel["gridPos"]["x"], panel["gridPos"]["y"]


def test_queries_are_lettered_in_order() -> None:
    made = written(table("T", "d", rows("a"), rows("b"), rows("c")))
    assert [(each["refId"], each["expr"]) for each in made["targets"]] == [("A", "a"), ("B", "b"), ("C", "c")]
    assert value_columns(3) == ("Value #A", "Value #B", "Value #C")


def test_several_queries_of_a_table_are_merged_before_columns_are_ordered() -> None:
    made = written(table("T", "d", rows("a"), rows("b"), hidden=("cluster",), order=("node", "Value #A")))
    merge, organize = made["transformations"]
    assert (merge["id"], organize["id"]) == ("merge", "organize")
    assert organize["options"]["excludeByName"].keys() == {"Time", "cluster"}
    assert organize["options"]["indexByName"] == {"node": 0, "Value #A": 1}


def test_the_text_of_an_empty_table_is_not_in_each_empty_cell() -> None:
    made = written(table("T", "d", rows("a"), columns=(column("node", width=9),), no_value="Nothing"))
    assert made["fieldConfig"]["defaults"]["noValue"] == "Nothing"
    _, everywhere, node = made["fieldConfig"]["overrides"]
    assert everywhere["matcher"]["options"] == ".*"
    assert everywhere["properties"] == [{"id": "noValue", "value": ""}]
    assert node["matcher"]["options"] == "node"


@pytest.mark.parametrize(("ascending", "descending"), [(False, True), (True, False)])
def test_a_table_is_sorted_with_the_largest_first_by_default(ascending: bool, descending: bool) -> None:
    made = written(table("T", "d", rows("a"), sort_by="Watts", ascending=ascending))
    assert made["options"]["sortBy"] == [{"displayName": "Watts", "desc": descending}]


def test_the_most_severe_alerts_come_first() -> None:
    made = written(alert_list("Alerts", "d", chosen='node=~"$node"'))
    (expr,) = (target["expr"] for target in made["targets"])
    for severity, number in (("critical", 3), ("warning", 2), ("info", 1)):
        assert f'node=~"$node", severity="{severity}"}}) * {number}' in expr
    assert made["options"]["sortBy"] == [{"displayName": "Severity", "desc": True}]


def test_a_mapped_cell_has_its_colour_and_an_empty_one_none() -> None:
    mapped = column("Value", mappings=fields.value_texts({1: ("on", palette.GOOD)}))
    properties = {each["id"]: each["value"] for each in mapped["properties"]}
    assert properties["mappings"][0]["options"]["1"]["color"] == palette.GOOD
    assert properties["thresholds"]["steps"] == [{"color": palette.CLEAR, "value": None}]


def test_a_panel_can_have_its_own_step_and_range() -> None:
    made = written(timed(box(4), step="5m", since="now/d"))
    assert (made["interval"], made["timeFrom"], made["hideTimeOverride"]) == ("5m", "now/d", True)
    assert not {"interval", "timeFrom"} & written(box(4)).keys()


def test_panels_go_from_left_to_right_and_then_below_the_tallest() -> None:
    made = page(row("", box(12, 9), box(12, 4), box(6)), row("More", box(24)))["panels"]
    assert [position(panel) for panel in made] == [(0, 0), (12, 0), (0, 9), (0, 13), (0, 14)]


def test_a_collapsed_row_contains_its_panels_and_takes_one_line() -> None:
    first, folded, after, last = page(
        row("", box(4)), row("Folded", box(4), box(4), collapsed=True), row("After", box(4))
    )["panels"]
    assert (first["type"], folded["type"], after["type"], last["type"]) == ("stat", "row", "row", "stat")
    assert [panel["title"] for panel in folded["panels"]] == ["Stat", "Stat"]
    assert position(after)[1] == position(folded)[1] + 1
    ids = [panel["id"] for panel in (first, folded, *folded["panels"], after, last)]
    assert ids == [1, 2, 3, 4, 5, 6]


def test_annotations_are_of_the_chosen_node_where_a_node_can_be_chosen() -> None:
    fleet, node = (page(row("", box(4)), variables=chosen) for chosen in ((CLUSTER,), (CLUSTER, NODE)))
    for made, is_matched in ((fleet, False), (node, True)):
        for annotation in made["annotations"]["list"]:
            assert 'cluster=~"$cluster"' in annotation["expr"]
            assert ('node=~"$node"' in annotation["expr"]) is is_matched


def test_a_variable_offers_all_unless_it_has_one_value() -> None:
    datasource, cluster, node = page(row("", box(4)), variables=(CLUSTER, NODE))["templating"]["list"]
    assert (datasource["name"], datasource["type"]) == ("datasource", "datasource")
    assert (cluster["includeAll"], cluster["allValue"], cluster["multi"]) == (True, ".*", True)
    assert (node["includeAll"], node["multi"], "allValue" in node) == (False, False, False)


def test_a_link_passes_on_the_time_range_and_the_variables() -> None:
    address = links.by_row("GPU", "node", "node", "gpu")["url"]
    assert address.startswith("/d/gputally-node?${datasource:queryparam}&${cluster:queryparam}&")
    assert 'var-node=${__data.fields["node"]}&var-gpu=${__data.fields["gpu"]}' in address
    assert address.endswith("&${__url_time_range}")
