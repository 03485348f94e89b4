"""The committed dashboards are without fault, and their checker finds each kind of fault."""

import copy
import json
import subprocess
import sys
from typing import Any

import pytest

from alerts import promql
from dashboards import Json, check, palette, registry
from dashboards.build import dashboard, row, text_of
from dashboards.links import by_label, by_row, link
from dashboards.panels import Panel, now, over_time, rows, stat, timeseries
from dashboards.reading import fill_variables, used_variables
from dashboards.tables import column, table
from dashboards.variables import CLUSTER, Variable
from tests.support.texts import missing
from tools import ROOT

SCHEMA: promql.SeriesLabels = {
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


def faults(*panels: Panel, variables: tuple[Variable, ...] = (CLUSTER, NODE)) -> list[str]:
    made = dashboard("test", "Test", "d", row("", GRAPH, *panels), variables=variables)
    return check.problems({"test": json.loads(text_of(made))}, SCHEMA)


def graph(expr: str, legend: str = "", **more: Any) -> Panel:
    return timeseries("Graph", "d", over_time(expr, legend), unit="watt", **more)


def list_of(**more: Any) -> Panel:
    return table("List", "d", rows(f"sum by (node, gpu) ({POWER})"), **more)


def changed(path: str, value: object) -> list[str]:
    """The faults of a correct dashboard after one value in its JSON is changed."""
    made: Json = json.loads(
        text_of(dashboard("test", "Test", "d", row("", GRAPH), variables=(CLUSTER, NODE)))
    )
    inner: Any = made
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in way:
        inner = inner[key]
    inner[last] = value
    return check.problems({"test": made}, SCHEMA)


def test_the_dashboards_have_no_fault() -> None:
    assert check.problems() == []


def test_a_correct_dashboard_has_no_fault() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("panel", "words"),
    [
        (graph("sum("), "test: Graph A: not PromQL"),
        (graph(f"gputally_gpu_powr_watts{CHOSEN}"), "gputally_gpu_powr_watts"),
        (graph(f"sum by (pod) ({POWER})"), "has no label pod"),
        (graph("gputally_gpu_power_watts"), 'without cluster=~"$cluster"'),
        (graph('gputally_gpu_power_watts{cluster=~"$culster"}'), "unknown variable culster"),
        (graph(POWER, "{{pod}}"), "uses pod, but the result has cluster, gpu, node"),
        (graph(f"sum({POWER})", "{{node}}"), "uses node, but the result has no labels"),
        (graph(REPLAYS), "gputally_gpu_pcie_replays_total is a counter"),
        (graph(f"sum by (node) ({REPLAYS})"), "gputally_gpu_pcie_replays_total is a counter"),
        (graph(f"rate({REPLAYS}[5m])"), "rate() over 0:05:00: use $__rate_interval"),
        (graph(f"rate({POWER}[$__rate_interval])"), "gputally_gpu_power_watts is not a counter"),
        (graph(POWER, links=[link("Nowhere", "nowhere")]), "gputally-nowhere, which is not a dashboard"),
        (graph(POWER, links=[link("Back", "test", pod="x")]), "gputally-test has no variable pod"),
        (graph(POWER, links=[link("Back", "test", "pod")]), "no variable pod to pass on"),
        (graph(POWER, links=[{"title": "Out", "url": "/explore"}]), "/explore is neither"),
        (graph(POWER, links=[{"title": "Now", "url": "/d/gputally-test"}]), "the time range"),
        (
            graph(f"sum by (gpu) ({POWER})", links=[by_label("B", "test", "node")]),
            "uses node, but A has",
        ),
        (graph(POWER, "all", overrides=[column("none", width=1)]), "no series has the name none"),
        (list_of(hidden=("pod",)), "List: organize: no column pod"),
        (list_of(order=("pod",)), "List: organize: no column pod"),
        (list_of(columns=(column("pod", width=1),)), "List: an override is for pod"),
        (list_of(columns=(column("gpu", width=1),), hidden=("gpu",)), "an override is for gpu"),
        (list_of(sort_by="Watts"), "sorted by Watts"),
        (table("List", "d", rows(f"topk(3, {POWER})")), "List: a column shows the metric name"),
        (list_of(only_with="Value #A"), "filterByValue: no column Value #A"),
        (
            list_of(columns=(column("gpu", link=by_row("B", "test", "node")),), hidden=("node",)),
            "link B: no column node",
        ),
        (stat("Stat", "", now(f"sum({POWER})"), unit="watt"), "Stat: no description"),
        (stat("Stat", "d", now(f"sum({POWER})"), unit=""), "Stat: no unit"),
        (timeseries("", "d", over_time(POWER), unit="watt"), "no title"),
        (
            graph(POWER, overrides=[column("x", steps={"steps": [{"color": "red"}]})]),
            "red is not a colour of the",
        ),
        (graph(POWER, width=25), "Graph: wider than 24 columns"),
    ],
)
def test_a_fault_of_a_panel_is_found(panel: Panel, words: str) -> None:
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
def test_a_correct_panel_has_no_fault(panel: Panel) -> None:
    assert faults(copy.deepcopy(panel)) == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ((CLUSTER, NODE, Variable("gpu", "GPU", "gputally_gpu_info")), "variable gpu is not used"),
        ((NODE, CLUSTER), "variable node: cluster is not defined before it"),
        ((CLUSTER, Variable("node", "Node", "gputally_gpu_inf")), "variable node: "),
        (
            (CLUSTER, Variable("node", "Node", "gputally_gpu_info", of="pod")),
            "gputally_gpu_info has no label pod",
        ),
        (
            (CLUSTER, Variable("node", "Node", "")),
            "variable node: the query is not label_values",
        ),
    ],
)
def test_a_fault_of_a_variable_is_found(variables: tuple[Variable, ...], words: str) -> None:
    found = faults(variables=variables)
    assert any(words in fault for fault in found), found


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("uid", "another", "test: the uid is another, expected gputally-test"),
        ("description", "", "test: no description"),
        ("annotations/list/0/expr", "ALERTS(", "annotation Alerts A: not PromQL"),
        ("annotations/list/1/titleFormat", "{{pod}}", "annotation XIDs A: the legend uses pod"),
        ("annotations/list/1/iconColor", "red", "annotation XIDs: red is not a colour of the palette"),
        ("links/0/tags", ["others"], "link GPUTally: no dashboard has the tag others"),
    ],
)
def test_a_fault_of_the_page_is_found(path: str, value: object, words: str) -> None:
    assert any(words in fault for fault in changed(path, value)), changed(path, value)


def test_overlapping_panels_are_found() -> None:
    made: Json = json.loads(
        text_of(dashboard("test", "Test", "d", row("", GRAPH, graph(POWER)), variables=(CLUSTER, NODE)))
    )
    made["panels"][1]["gridPos"]["x"] -= 1
    (problem,) = check.problems({"test": made}, SCHEMA)
    assert missing(problem, "test: ", "Power", "Graph", "overlap") == []


def test_two_dashboards_with_one_uid_are_found() -> None:
    made: Json = json.loads(
        text_of(dashboard("test", "Test", "d", row("", GRAPH), variables=(CLUSTER, NODE)))
    )
    found = check.problems({"test": made, "other": made}, SCHEMA)
    assert any(problem.startswith("uid gputally-test ") for problem in found)
    assert any(problem.startswith("title GPUTally / Test ") for problem in found)


def test_every_dashboard_starts_with_key_figures() -> None:
    for name, text in registry.texts().items():
        first = json.loads(text)["panels"][0]
        assert first["type"] == "stat", f"{name} starts with {first.get('title')}"


def test_different_meanings_have_different_colours() -> None:
    meanings = [palette.GOOD, palette.WARNING, palette.CRITICAL, palette.FREE, palette.UNKNOWN]
    meanings += [palette.BUSY, palette.HELD, palette.IDLE, palette.NEUTRAL]
    assert len(set(meanings)) == len(meanings)


def test_another_process_renders_the_same() -> None:
    program = "from dashboards import registry; print(*registry.texts().values(), sep='', end='')"
    again = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert again.stdout == "".join(registry.texts().values())


@pytest.mark.parametrize("path", registry.files())
def test_the_chart_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == registry.files()[path], "run tools/render"


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
    assert fill_variables(text, {"node": "n1", "step": "1m"}) == filled
