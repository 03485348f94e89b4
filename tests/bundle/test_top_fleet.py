"""`gputally top` on a fleet of 1,000 nodes: a real Prometheus with our recording rules over its history.

Each query must return no more series than the screen shows.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from alerts.rules import rule_groups
from gputally.commands.servers import PrometheusApi, RemoteServer
from gputally.commands.top.fleet import Fleet
from gputally.commands.top.page import GPUS, NODES, OWNERS, SORTS, Page, Query
from gputally.model import Unavailable
from tests.support.terminal import in_terminal
from tools.replay.blocks import write_history
from tools.replay.fleet import GpuNode, Period
from tools.replay.rules import record_rules
from tools.servers.prometheus import serving

pytestmark = pytest.mark.timeout(900)

NODE_COUNT, MINUTES = 1000, 10
LOADS = (20, 40, 60, 80)
GROUPS = ("devices", "owners", "ledger", "fleet", "prices")
ROWS = 18
COLUMNS = 8
"""The most columns of a view that are series."""
SCENARIO = """
gpus = 1
seed = {load}

[[workload]]
shape = "training"
load = "{load}%"
pod = "team-{load}/train"
"""
LOST = SCENARIO + '[[fault]]\nkind = "lost"\ngpus = [0]\n'


OF_THE_BILL = {"device:gputally_share:ratio", "pod:gputally_workload:info"}
"""The only records of the bill that those groups read."""


@dataclass(frozen=True, slots=True)
class Counting(RemoteServer):
    """Notes the number of series in each result."""

    counts: list[int] = field(default_factory=list)

    def get_json(self, path: str, **query: str) -> Any:
        answer = RemoteServer.get_json(self, path, **query)
        self.counts.append(len(answer["data"]["result"]))
        return answer


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("fleet")
    now = time.time()
    period = Period(now - MINUTES * 60, now - 1, 60)
    each = NODE_COUNT // len(LOADS)
    nodes = [
        GpuNode(
            name=f"gpu-{load}-000",
            scenario=SCENARIO.format(load=load),
            clones=tuple(f"gpu-{load}-{number:03}" for number in range(1, each)),
        )
        for load in LOADS[1:]
    ]
    few = tuple(f"gpu-{LOADS[0]}-{number:03}" for number in range(2, each))
    nodes.append(GpuNode(name=f"gpu-{LOADS[0]}-001", scenario=SCENARIO.format(load=LOADS[0]), clones=few))
    nodes.append(GpuNode(name="gpu-lost", scenario=LOST.format(load=LOADS[0])))
    write_history(nodes, period, directory, cluster="large", began_at=now - 3600)
    rules = directory / "rules.json"
    recording = [
        {
            "name": group["name"],
            "rules": [
                rule
                for rule in group["rules"]
                if "record" in rule
                and (group["name"].removeprefix("gputally-") in GROUPS or rule["record"] in OF_THE_BILL)
            ],
        }
        for group in rule_groups()
    ]
    rules.write_text(json.dumps({"groups": recording}))
    record_rules(directory, [rules], period)
    # On a busy machine the data is minutes old by now.
    with serving(directory, "--query.lookback-delta=2h") as prometheus:
        yield prometheus.url


@dataclass(slots=True)
class Asked:
    url: str
    counts: list[int] = field(default_factory=list)

    def page(self, **query: Any) -> Page:
        return Fleet(PrometheusApi(Counting(self.url, counts=self.counts), "")).page(
            Query(limit=ROWS, **query)
        )


@pytest.fixture
def fleet(url: str) -> Asked:
    return Asked(url)


@pytest.mark.parametrize("view", [NODES, GPUS, OWNERS])
def test_no_query_returns_more_than_the_screen_shows(view: str, fleet: Asked) -> None:
    for sort in SORTS[view]:
        for reverse in (False, True):
            for offset in (0, ROWS, 500, 990):
                page = fleet.page(view=view, sort=sort, reverse=reverse, offset=offset)
                assert len(page.rows) == ROWS
    assert max(fleet.counts) <= ROWS * COLUMNS
    # The rows themselves, and what is counted by Prometheus.
    assert sorted(fleet.counts)[len(fleet.counts) // 2] <= ROWS


def test_the_totals_are_those_of_the_whole_fleet(fleet: Asked) -> None:
    page = fleet.page(view=NODES)
    assert (page.totals.nodes, page.totals.gpus, page.totals.gpus_up) == (
        NODE_COUNT,
        NODE_COUNT,
        NODE_COUNT - 1,
    )
    assert page.row_count == NODE_COUNT
    assert page.totals.utilization_ratio == pytest.approx(0.5, abs=0.1)


def test_pages_follow_each_other_in_order(fleet: Asked) -> None:
    pages = [fleet.page(view=NODES, sort="utilization", offset=at * ROWS) for at in range(5)]
    rows = [row for page in pages for row in page.rows]
    assert len({row.node for row in rows}) == 5 * ROWS
    values = [row.utilization_ratio or 0 for row in rows]
    assert values == sorted(values, reverse=True)
    last = fleet.page(view=NODES, sort="utilization", offset=10**6)
    assert last.offset == NODE_COUNT - ROWS
    assert "gpu-lost" in {row.node for row in last.rows}


def test_the_worst_problem_is_first_by_state(fleet: Asked) -> None:
    page = fleet.page(view=NODES, sort="state")
    assert (page.rows[0].node, page.problems[0].subject) == ("gpu-lost", "gpu-lost: GPU 0")
    assert page.problems[0].severity == "critical"
    (gpu,) = fleet.page(view=GPUS, node="gpu-lost").rows
    assert gpu.utilization_ratio is None


def test_a_namespace_and_a_pod_are_selected_by_prometheus(fleet: Asked) -> None:
    page = fleet.page(view=OWNERS, namespace="team-80")
    assert page.row_count == NODE_COUNT // len(LOADS)
    assert {row.namespace for row in page.rows} == {"team-80"}  # type: ignore[union-attr]
    followed = fleet.page(view=OWNERS, pod=("team-80", "train-gpu-80-007"))
    (row,) = followed.rows
    assert row.node == "gpu-80-007"
    assert row.utilization_ratio == pytest.approx(0.8, abs=0.1)
    assert followed.utilization_graph
    assert followed.utilization_graph.values[-1] == pytest.approx(0.8, abs=0.1)


def test_a_prometheus_without_the_rules_is_reported_with_the_fix(fleet: Asked) -> None:
    other = Fleet(PrometheusApi(RemoteServer(fleet.url), "", "elsewhere"))
    with pytest.raises(Unavailable, match="no recorded series") as error:
        other.page(Query(view=NODES))
    assert "rules" in error.value.fix


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_the_fleet_is_shown_in_a_terminal(columns: int, lines: int, url: str) -> None:
    with in_terminal(["top", "--prometheus", url, "--sort", "state"], columns, lines) as terminal:
        text = terminal.wait_for("999 of 1000 GPUs up", "1000 nodes", "gpu-lost", "of 1000")
        assert "!! lost" in text
        terminal.press("\x1b[F")
        terminal.wait_for("-1000 of 1000")
        terminal.press("\r")
        terminal.wait_for("1 of 1")
