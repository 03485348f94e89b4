"""The past of a simulated fleet in a real Prometheus, and a real exporter that goes on from there."""

import time
from pathlib import Path
from typing import Any

import pytest

from gputally.simulator import simulated_reader
from tests.support.exporter import Exporter
from tests.support.prometheus import prometheus_scraping
from tools import Failed
from tools.replay.blocks import write_history
from tools.replay.firing import firing
from tools.replay.fleet import WARM_UP_SECONDS, GpuNode, Period
from tools.replay.rules import record_rules
from tools.servers.ports import free_port
from tools.servers.prometheus import Prometheus, serving

START = 1_794_700_800
SCENARIO = """
gpus = 2

[[workload]]
shape = "training"
gpus = [0]
pod = "nlp/train"

[[workload]]
shape = "inference"
gpus = [0]
pod = "web/{name}"
requested = false

[[workload]]
shape = "training"
gpus = [1]
stop = "10m"
every = "30m"
owner = "slurm/{run}"
""".replace("{name}", "visitor")
RULES = """
groups:
  - name: late
    rules:
      - record: cluster:power_watts:sum
        expr: sum by (cluster) (node:power_watts:sum)
      - alert: Busy
        expr: cluster:power_watts:sum > 0
        for: 10m
        labels: {severity: info}
      - alert: ExporterDown
        expr: up == 0
        for: 5m
        keep_firing_for: 10m
  - name: early
    interval: 30s
    rules:
      - record: node:power_watts:sum
        expr: sum by (cluster, node) (gputally_gpu_power_watts)
"""
ENERGY = "gputally_gpu_energy_joules_total"
OF_THE_PROCESS = ("process_", "gputally_source_", "gputally_exporter_info", "scrape_", "gputally_snapshot_")


def matrix(prometheus: Prometheus, query: str, period: Period) -> dict[str, dict[float, float]]:
    """node -> second -> value."""
    answer = prometheus.api(
        "query_range", query=query, start=str(period.first), end=str(period.last), step=str(period.step)
    )
    return {
        series["metric"].get("node", ""): {at: float(value) for at, value in series["values"]}
        for series in answer["result"]
    }


def test_every_scrape_of_the_history_has_the_values_of_its_time(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    period = Period(START, START + 3 * 3600, 60)
    node = GpuNode(name="n1", scenario=tmp_path / "scenario.toml")
    write_history([node], period, tmp_path / "data")
    now = 0.0
    reader = simulated_reader(
        scenario=tmp_path / "scenario.toml", began_at=START - WARM_UP_SECONDS, clock=lambda: now
    )
    with serving(tmp_path / "data") as prometheus:
        energy = matrix(prometheus, f'{ENERGY}{{gpu="0"}} * 1000', period)["n1"]
        power = matrix(prometheus, 'gputally_gpu_power_watts{gpu="0"}', period)["n1"]
    assert list(energy) == list(period.times())
    for now in energy:
        reading = reader.read().readings[0]
        assert (round(energy[now]), power[now]) == (reading.energy_millijoules, reading.power_watts)


def test_an_exporter_continues_the_history(tmp_path: Path) -> None:
    """As one target with one life: the same series, and no counter that begins anew."""
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    port = free_port()
    now = time.time()
    period = Period(now - 900, now, 30)
    node = GpuNode(
        name="n1",
        scenario=tmp_path / "scenario.toml",
        labels={"instance": f"127.0.0.1:{port}", "node": "", "cluster": ""},
        state_file=tmp_path / "ledger",
    )
    write_history([node], period, tmp_path / "data")
    simulator = (
        *("simulate", "--scenario", str(tmp_path / "scenario.toml"), "--port", str(port)),
        *("--scenario-start", str(period.first - WARM_UP_SECONDS), "--state-file", str(tmp_path / "ledger")),
        *("--interval", "500ms"),
    )
    with (
        Exporter(tmp_path / "log", *simulator) as exporter,
        prometheus_scraping(exporter, tmp_path, "PrometheusText0.0.4") as prometheus,
    ):
        prometheus.wait_for("count_over_time(up[20s]) > 5")  # more than the past has in that time
        before, after = (
            {
                tuple(sorted(found["metric"].items())): float(found["value"][1])
                for found in prometheus.api("query", query='{__name__=~".+"}', time=str(at))["result"]
                if not found["metric"]["__name__"].startswith(OF_THE_PROCESS)
            }
            for at in (now, time.time())
        )
        assert before.keys() == after.keys()
        counters = prometheus.api("query", query='{__name__=~"gputally_.+_total"}[1h]')["result"]
    for counter in counters:
        values = [float(value) for _, value in counter["values"]]
        assert values == sorted(values), counter["metric"]
    energy = {dict(labels)["gpu"]: labels for labels in before if dict(labels)["__name__"] == ENERGY}
    assert len(energy) == 2
    assert all(after[labels] > before[labels] for labels in energy.values())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes and a clone; one of them is down from the 60th to the 75th minute."""
    directory = tmp_path_factory.mktemp("fleet")
    period = Period(START, START + 3 * 3600, 60)
    nodes = [
        GpuNode(name="n1", scenario=SCENARIO, clones=("n3",)),
        GpuNode(name="n2", scenario="seed = 1\n" + SCENARIO, down=((START + 3600, START + 4500),)),
    ]
    written = write_history(nodes, period, directory / "data", cluster="blue")
    assert written.samples > 100_000
    (directory / "rules.yml").write_text(RULES)
    (directory / "more.yml").write_text("groups: [{name: early, rules: [{record: nodes, expr: sum(up)}]}]")
    assert record_rules(directory / "data", [directory / "rules.yml", directory / "more.yml"], period) == 3
    return directory


def test_rules_are_recorded_over_the_history_including_rules_that_read_others(fleet: Path) -> None:
    period = Period(START + 600, START + 3 * 3600, 60)
    with serving(fleet / "data") as prometheus:
        recorded = matrix(prometheus, "cluster:power_watts:sum", period)[""]
        up = matrix(prometheus, "nodes", period)[""]
        nodes = matrix(prometheus, "count by (cluster) (node:power_watts:sum)", period)[""]
    assert len(recorded) == len(period)
    assert min(recorded.values()) > 100
    assert set(up.values()) == {2, 3}
    assert (nodes[START + 3600 - 60], nodes[START + 4200], nodes[START + 3 * 3600]) == (3, 2, 3)


def test_alerts_of_the_history_are_recorded(fleet: Path) -> None:
    with serving(fleet / "data") as prometheus:
        found = firing(prometheus.url, [fleet / "rules.yml"], Period(START, START + 3 * 3600, 60))
    busy, down = found
    assert (busy.alert, busy.labels) == ("Busy", (("cluster", "blue"), ("severity", "info")))
    assert (busy.first - START <= 720, busy.last) == (True, START + 3 * 3600)
    assert (down.alert, dict(down.labels)["node"]) == ("ExporterDown", "n2")
    # It is down from 3600 s on, waits for 300 s, is up again at 4500 s and kept for 600 s.
    assert (down.first - START, down.last - START) == (3900, 5040)


def test_a_query_with_too_many_points_is_split(fleet: Path) -> None:
    with serving(fleet / "data") as prometheus:
        found = firing(prometheus.url, [fleet / "rules.yml"], Period(START, START + 3 * 3600, 0.5))
    down = next(one for one in found if one.alert == "ExporterDown")
    assert (down.first - START, down.last - START) == (3900, 5099.5)


def test_a_wrong_expression_fails_with_the_error_of_prometheus(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.yml").write_text("groups: [{name: a, rules: [{alert: A, expr: 'sum('}]}]")
    period = Period(START, START + 600, 60)
    with serving(fleet / "data") as prometheus, pytest.raises(Failed, match="parse error"):
        firing(prometheus.url, [tmp_path / "wrong.yml"], period)
    (tmp_path / "wrong.yml").write_text("groups: [{name: a, rules: [{record: a, expr: 'sum('}]}]")
    with pytest.raises(Failed, match="promtool did not record"):
        record_rules(fleet / "data", [tmp_path / "wrong.yml"], period)


def test_a_node_that_is_down_has_no_series_and_a_clone_has_its_own_names(fleet: Path) -> None:
    def labels(query: str, at: float) -> list[dict[str, Any]]:
        answer = prometheus.api("query", query=query, time=str(at))
        return [found["metric"] for found in answer["result"]]

    with serving(fleet / "data") as prometheus:
        assert labels("gputally_gpu_up", START + 3540) != []
        assert {found["node"] for found in labels("gputally_gpu_up", START + 3600)} == {"n1", "n3"}
        assert {found["node"] for found in labels("up == 0", START + 3600)} == {"n2"}
        gpus = labels("gputally_gpu_info", START + 60)
        pods = labels("gputally_pod_energy_joules_total", START + 60)
    assert len({found["uuid"] for found in gpus}) == len(gpus) == 6
    assert {found["pod"] for found in pods} >= {"train", "train-n3"}
