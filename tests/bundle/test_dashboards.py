"""The dashboards as they stand, and their checker: each kind of fault is found and said with its place."""

import copy
import json
import subprocess
import sys
from typing import Any

import pytest

from alerts import promql
from dashboards import check, every, palette
from dashboards.build import dashboard, row, text_of
from dashboards.fields import column
from dashboards.links import by_label, by_row, link
from dashboards.panels import Modern, now, over_time, rows, stat, table, timeseries
from dashboards.reading import fill, used_variables
from dashboards.variables import CLUSTER, Variable
from tools import environment

Json = dict[str, Any]

SCHEMA: promql.Schema = {
    "gputally_gpu_info": frozenset({"cluster", "node", "gpu"}),
    "gputally_gpu_power_watts": frozenset({"cluster", "node", "gpu"}),
    "gputally_gpu_pcie_replays_total": frozenset({"cluster", "node", "gpu"}),
    "gputally_gpu_xid_last_timestamp_seconds": frozenset({"cluster", "node", "gpu", "xid"}),
    "ALERTS": frozenset({promql.ANY}),
    "ALERTS_FOR_STATE": frozenset({promql.ANY}),
}
CHOSEN = '{cluster=~"$cluster", node=~"$node"}'
POWER = f"gputally_gpu_power_watts{CHOSEN}"
REPLAYS = f"gputally_gpu_pcie_replays_total{CHOSEN}"
NODE = Variable("node", "Node", 'gputally_gpu_info{cluster=~"$cluster"}')
GRAPH = timeseries("Power", "d", over_time(POWER, "{{node}}"), unit="watt")


def faults(*panels: Modern, variables: tuple[Variable, ...] = (CLUSTER, NODE)) -> list[str]:
    made = dashboard("test", "Test", "d", row("", GRAPH, *panels), variables=variables)
    return check.problems({"test": json.loads(text_of(made))}, SCHEMA)


def graph(expr: str, legend: str = "", **more: Any) -> Modern:
    return timeseries("Graph", "d", over_time(expr, legend), unit="watt", **more)


def list_of(**more: Any) -> Modern:
    return table("List", "d", rows(f"sum by (node, gpu) ({POWER})"), **more)


def changed(path: str, value: object) -> list[str]:
    """What is said of a good dashboard in whose JSON one thing is another."""
    made: Json = json.loads(
        text_of(dashboard("test", "Test", "d", row("", GRAPH), variables=(CLUSTER, NODE)))
    )
    inner: Any = made
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in way:
        inner = inner[key]
    inner[last] = value
    return check.problems({"test": made}, SCHEMA)


def test_nothing_is_wrong_with_the_dashboards() -> None:
    assert check.problems() == []


def test_nothing_is_wrong_with_a_good_one() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("panel", "words"),
    [
        (graph("sum("), "test: Graph A: not PromQL"),
        (graph(f"gputally_gpu_powr_watts{CHOSEN}"), "there is no metric gputally_gpu_powr_watts"),
        (graph(f"sum by (pod) ({POWER})"), "has no label pod"),
        (graph("gputally_gpu_power_watts"), 'is asked for without cluster=~"$cluster"'),
        (graph('gputally_gpu_power_watts{cluster=~"$culster"}'), "there is no variable culster"),
        (graph(POWER, "{{pod}}"), "its legend uses pod, and the result has cluster, gpu, node"),
        (graph(f"sum({POWER})", "{{node}}"), "its legend uses node, and the result has no labels"),
        (graph(REPLAYS), "gputally_gpu_pcie_replays_total is a counter"),
        (graph(f"sum by (node) ({REPLAYS})"), "gputally_gpu_pcie_replays_total is a counter"),
        (graph(f"rate({REPLAYS}[5m])"), "rate() over 0:05:00: take $__rate_interval"),
        (graph(f"rate({POWER}[$__rate_interval])"), "gputally_gpu_power_watts is not a counter"),
        (graph(POWER, links=[link("Nowhere", "nowhere")]), "gputally-nowhere, which is no dashboard"),
        (graph(POWER, links=[link("Back", "test", pod="x")]), "gputally-test has no variable pod"),
        (graph(POWER, links=[link("Back", "test", "pod")]), "there is no variable pod here to take along"),
        (graph(POWER, links=[{"title": "Out", "url": "/explore"}]), "neither a dashboard nor a page"),
        (graph(POWER, links=[{"title": "Now", "url": "/d/gputally-test"}]), "does not take the time range"),
        (
            graph(f"sum by (gpu) ({POWER})", links=[by_label("B", "test", "node")]),
            "its link uses node, and A has",
        ),
        (graph(POWER, "all", overrides=[column("none", width=1)]), "no series is called none"),
        (list_of(hidden=("pod",)), "List: organize: there is no column pod"),
        (list_of(order=("pod",)), "List: organize: there is no column pod"),
        (list_of(columns=(column("pod", width=1),)), "List: there is no column pod to change"),
        (list_of(columns=(column("gpu", width=1),), hidden=("gpu",)), "there is no column gpu to change"),
        (list_of(sort_by="Watts"), "it is sorted by Watts, which is no column"),
        (table("List", "d", rows(f"topk(3, {POWER})")), "List: it has a column with the metric's name"),
        (list_of(only_with="Value #A"), "filterByValue: there is no column Value #A"),
        (
            list_of(columns=(column("gpu", link=by_row("B", "test", "node")),), hidden=("node",)),
            "link B: there is no column node",
        ),
        (stat("Stat", "", now(f"sum({POWER})"), unit="watt"), "Stat: it has no description"),
        (stat("Stat", "d", now(f"sum({POWER})"), unit=""), "Stat: it has no unit"),
        (timeseries("", "d", over_time(POWER), unit="watt"), "has no title"),
        (
            graph(POWER, overrides=[column("x", steps={"steps": [{"color": "red"}]})]),
            "red is not a colour of the",
        ),
        (graph(POWER, width=25), "Graph: it does not fit into 24 columns"),
    ],
)
def test_a_fault_of_a_panel_is_said_with_its_place(panel: Modern, words: str) -> None:
    found = faults(copy.deepcopy(panel))
    assert any(words in fault for fault in found), found


@pytest.mark.parametrize(
    "panel",
    [
        graph(f"increase({REPLAYS}[$__range])"),
        graph(f"sum by (node) (rate({REPLAYS}[$__rate_interval]))", "{{node}}"),
        graph(POWER, "{{node}} GPU {{gpu}}", overrides=[column("n1 GPU 0", width=1)]),
        graph(POWER, "busy", overrides=[column("busy", width=1)], links=[by_label("B", "test", "node")]),
        list_of(columns=(column("gpu", name="GPU", link=by_row("B", "test", "node")),), sort_by="GPU"),
        table("T", "d", rows(f"max by (gpu) ({POWER})"), rows(f"{POWER} * 2"), only_with="Value #A"),
        table("T", "d", rows(f"{POWER} > 9"), rows(POWER), order=("Value #B",), hidden=("__name__",)),
    ],
)
def test_what_is_right_is_not_called_wrong(panel: Modern) -> None:
    assert faults(copy.deepcopy(panel)) == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ((CLUSTER, NODE, Variable("gpu", "GPU", "gputally_gpu_info")), "variable gpu is used by no panel"),
        ((NODE, CLUSTER), "variable node: cluster does not stand before it"),
        ((CLUSTER, Variable("node", "Node", "gputally_gpu_inf")), "variable node: there is no metric"),
        (
            (CLUSTER, Variable("node", "Node", "gputally_gpu_info", of="pod")),
            "gputally_gpu_info has no label pod",
        ),
        ((CLUSTER, Variable("node", "Node", "")), "variable node: it is not label_values(selector, label)"),
    ],
)
def test_a_fault_of_a_variable_is_found(variables: tuple[Variable, ...], words: str) -> None:
    found = faults(variables=variables)
    assert any(words in fault for fault in found), found


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("uid", "another", "test: its uid is another, and is to be gputally-test"),
        ("description", "", "test: it has no description"),
        ("annotations/list/0/expr", "ALERTS(", "annotation Alerts A: not PromQL"),
        ("annotations/list/1/titleFormat", "{{pod}}", "annotation XIDs A: its legend uses pod"),
        ("annotations/list/1/iconColor", "red", "annotation XIDs: red is not a colour of the palette"),
        ("links/0/tags", ["others"], "link GPUTally: no dashboard has the tag others"),
    ],
)
def test_a_fault_of_the_page_is_found(path: str, value: object, words: str) -> None:
    assert any(words in fault for fault in changed(path, value)), changed(path, value)


def test_panels_that_lie_upon_each_other_are_found() -> None:
    made: Json = json.loads(
        text_of(dashboard("test", "Test", "d", row("", GRAPH, graph(POWER)), variables=(CLUSTER, NODE)))
    )
    made["panels"][1]["gridPos"]["x"] -= 1
    assert check.problems({"test": made}, SCHEMA) == ["test: Power and Graph lie upon each other"]


def test_two_dashboards_with_one_uid_are_found() -> None:
    made: Json = json.loads(
        text_of(dashboard("test", "Test", "d", row("", GRAPH), variables=(CLUSTER, NODE)))
    )
    found = check.problems({"test": made, "other": made}, SCHEMA)
    assert {"uid gputally-test is there 2 times", "title GPUTally / Test is there 2 times"} <= set(found)


def test_every_dashboard_says_on_its_first_screen_what_it_is_about() -> None:
    for name, text in every.texts().items():
        first = json.loads(text)["panels"][0]
        assert first["type"] == "stat", f"{name} begins with {first.get('title')}"


def test_the_colours_are_all_different_where_they_mean_something_different() -> None:
    meanings = [palette.GOOD, palette.WARNING, palette.CRITICAL, palette.FREE, palette.UNKNOWN]
    meanings += [palette.BUSY, palette.HELD, palette.IDLE, palette.NEUTRAL]
    assert len(set(meanings)) == len(meanings)


def test_another_process_renders_the_same() -> None:
    program = "from dashboards import every; print(*every.texts().values(), sep='', end='')"
    again = subprocess.run(
        [sys.executable, "-c", program],
        cwd=environment.ROOT,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(environment.ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert again.stdout == "".join(every.texts().values())


@pytest.mark.parametrize("path", every.files())
def test_the_chart_has_what_the_source_says(path: str) -> None:
    assert (environment.ROOT / path).read_text() == every.files()[path], "tools/render brings it up to date"


@pytest.mark.parametrize(
    ("text", "names", "filled"),
    [
        ('x{a=~"$node"}', ["node"], 'x{a=~"n1"}'),
        ("x[$__range:${step}]", ["__range", "step"], "x[$__range:1m]"),
        ('label_replace(x, "a", "$1", "b", "(.*)")', [], 'label_replace(x, "a", "$1", "b", "(.*)")'),
        ("${node:regex}", ["node"], "n1"),
    ],
)
def test_variables_are_found_and_filled(text: str, names: list[str], filled: str) -> None:
    assert used_variables(text) == names
    assert fill(text, {"node": "n1", "step": "1m"}) == filled
