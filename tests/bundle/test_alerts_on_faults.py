"""The rules on a real Prometheus: each alert fires for its fault, and none fires on a healthy fleet."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alerts.groups import GROUPS, capacity
from alerts.rules import rule_groups
from tests.bundle.scenarios import fleet
from tests.support.exporter import Exporter, Samples, parse_samples
from tests.support.prometheus import prometheus_in
from tools.replay.firing import Firing, firing
from tools.replay.fleet import Period
from tools.servers.prometheus import UNMERGED, Prometheus, serving
from tools.servers.waiting import wait_until

# The first test simulates the fleet.
pytestmark = pytest.mark.timeout(900)

LOST = {"GPUTallyGpuLost"}
"""No further alerts: neither for its missing values nor for its idle pod."""
EXPECTED: dict[str, set[str]] = {
    # scenarios/cards.toml
    "cards, GPU 0": {"GPUTallyXidCritical"},
    "cards, GPU 1": {"GPUTallyXidWarning"},
    # GPU 2: program errors raise no alert
    "cards, GPU 3": {"GPUTallyContainedEcc"},
    "cards, GPU 4": {"GPUTallyRowRemapPending"},
    "cards, GPU 5": {"GPUTallyRowRemapFailure"},
    "cards, GPU 6": {"GPUTallyRecoveryNeeded"},
    # A GPU in thermal slowdown is hot.
    "cards, GPU 7": {"GPUTallyThermalSlowdown", "GPUTallyTemperatureNearLimit"},
    "cards, GPU 8": {"GPUTallyPowerBrake"},
    # The memory of a hot GPU is hot, too.
    "cards, GPU 9": {"GPUTallyTemperatureNearLimit", "GPUTallyMemoryTemperatureNearLimit"},
    "cards, GPU 10": {"GPUTallyNvlinkCrcErrors"},
    "cards, GPU 11": {"GPUTallyNvlinkErrors", "GPUTallyNvlinkRecovering"},
    "cards, GPU 12": {"GPUTallyNvlinkDown"},
    "cards, GPU 13": {"GPUTallyPcieDegraded"},
    "cards, GPU 14": {"GPUTallyPcieReplays"},
    "cards, GPU 15": LOST,
    # The XID is the cause; Alertmanager sends one of the two.
    "cards, GPU 16": {*LOST, "GPUTallyXidCritical"},
    "cards, GPU 17": {"GPUTallyEnergyCounterStuck"},
    "cards, GPU 18": {"GPUTallyRetiredPagesPending"},
    "cards, GPU 19": {"GPUTallyFabricNotReady"},
    "cards, GPU 20": {"GPUTallyFabricDegraded"},
    "cards, GPU 21": {"GPUTallyUncorrectableEcc"},
    "cards, GPU 22": {"GPUTallyResetWanted"},
    "cards, GPU 23": {"GPUTallySoftwareThermalSlowdown", "GPUTallyTemperatureNearLimit"},
    # scenarios/instinct.toml
    "instinct, GPU 0": {"GPUTallyRasUncorrected"},
    "instinct, GPU 1": {"GPUTallyRasErrors"},
    "instinct, GPU 2": {"GPUTallyRasErrors"},
    "instinct, GPU 3": {"GPUTallyXgmiDown"},
    "instinct, GPU 4": {"GPUTallyTemperatureNearLimit"},
    "instinct, GPU 5": {"GPUTallyMemoryTemperatureNearLimit"},
    "instinct, GPU 6": {"GPUTallyTemperatureNearLimit", "GPUTallyMemoryTemperatureNearLimit"},
    "instinct, GPU 7": {"GPUTallySuspectedHang"},
    "instinct, GPU 8": LOST,
    # scenarios/teams.toml
    "pod sleepy/done-0": {"GPUTallyHeldIdle"},
    # An info alert after an hour, a warning after two.
    "pod sleepy/forgotten-0": {"GPUTallyHeldIdle", "GPUTallyHeldIdleLong"},
    "pod curious/jupyter-0": {"GPUTallyHeldUnderused"},
    "pod media/thumbnailer-0": {"GPUTallyUnrequestedUse"},
    "pod chat/leaky-0": {"GPUTallyMemoryLeak"},
    "teams": {"GPUTallyUnattributedProcesses"},
    "pod chat/large-0": {"GPUTallyMemoryNearlyFull"},
    "pod chat/small-0": {"GPUTallyMemoryNearlyFull"},
    "teams, GPU 7": {"GPUTallySuspectedHang"},
    # scenarios/drifting.toml; less work in the namespace's only pod is less work of the namespace
    "drifting, GPU 0": {"GPUTallyAnomalyGpu"},
    "namespace drift": {"GPUTallyAnomalyNamespace"},
    # Namespace burst runs a bigger job than yesterday, which is no fault.
    # scenarios/fleet.py
    # Nothing shows that the node is alive: Alertmanager sends one of the two.
    "silent": {"GPUTallyNodeDark", "GPUTallyExporterDown"},
    "evicted": {"GPUTallyExporterMissing"},
    "cluster dark": {"GPUTallyAllExportersDown"},
    "driverless": {"GPUTallyDriverUnavailable"},
    "podless": {"GPUTallySourceFailing"},
    "restarting": {"GPUTallyExporterRestarting"},
    "shrunk": {"GPUTallyGpusMissing"},
    "hungry": {"GPUTallyNodePowerOverBudget"},
    "namespace lavish": {"GPUTallyNamespaceOverBudget"},
    # Processes without a known owner cannot be charged; on `teams` their energy is below the threshold.
    "nameless": {"GPUTallyUnattributedProcesses", "GPUTallyUnattributedEnergy"},
    "crowded": {"GPUTallyTooManySamples"},
    "cluster full": {"GPUTallyNoFreeGpu"},
    "all AMD Radeon RX 7900 XT/7900 XTX/7900 GRE": {"GPUTallyModelUnpriced"},
    "all NVIDIA GeForce RTX 4090": {"GPUTallyGpusUnallocated", "GPUTallyModelUnpriced"},
}
WHEN_ALL_IS_GONE = {"GPUTallyExporterAbsent"}
ALERTS = [alert for group in GROUPS if not group.stack for alert in group.alerts]
"""test_stack_watches_itself.py has the others."""
NOT_SIMULATED = {
    "GPUTallySnapshotStale": "needs an exporter that is stuck",
    "GPUTallyClockSkew": "needs a clock that differs from Prometheus's",
    "GPUTallyLedgerGap": "needs a day of history before the fault",
    "GPUTallyReadErrors": "needs a driver that fails for single values",
    "GPUTallySourceSlow": "needs a source that takes real time",
    "GPUTallyCheckpointFailing": "needs a disk: a replay has no state file",
    "GPUTallyLedgerError": "needs a bug in the ledger, or lost series",
    "GPUTallyScrapeSlow": "needs a network: every scrape of a replay takes the same time",
    **dict.fromkeys(
        (alert.name for alert in capacity.GROUP.alerts),
        "needs kube-state-metrics or Kueue: see test_chart_kube_state_metrics.py",
    ),
    "GPUTallyEnergyUnobserved": "needs an exporter that is late, but not restarted: a replay samples in time",
}
"""Faults that the simulator does not have; only promtool's cases test these alerts."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The simulated fleet and its alerts."""

    url: str
    rules: Path
    fired: list[Firing]


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    directory = tmp_path_factory.mktemp("fleet")
    rules = fleet.write(directory)
    with serving(directory / "data", UNMERGED) as prometheus:
        yield Replay(prometheus.url, rules, firing(prometheus.url, [rules], fleet.TWO_DAYS))


def location(alert: Firing) -> str:
    """The object of the alert, as in EXPECTED."""
    labels = dict(alert.labels)
    if "pod" in labels:
        return f"pod {labels['namespace']}/{labels['pod']}"
    if "namespace" in labels:
        return f"namespace {labels['namespace']}"
    if "gpu" in labels:
        return f"{labels['node']}, GPU {labels['gpu']}"
    if "node" in labels:
        return labels["node"]
    if "model" in labels:
        return f"all {labels['model']}"
    return f"cluster {labels['cluster']}" if "cluster" in labels else "everywhere"


def is_healthy(alert: Firing) -> bool:
    return ("cluster", "well") in alert.labels


def test_nothing_fires_on_a_healthy_fleet_in_two_days(replay: Replay) -> None:
    on_by_default = {alert.name for alert in ALERTS if alert.enabled}
    assert [found for found in replay.fired if is_healthy(found) and found.alert in on_by_default] == []


def test_each_fault_fires_its_alerts_and_nothing_else(replay: Replay) -> None:
    fired: dict[str, set[str]] = {}
    for found in replay.fired:
        if not is_healthy(found):
            fired.setdefault(location(found), set()).add(found.alert)
    assert fired == EXPECTED


def test_when_no_exporter_is_left_there_is_one_alert_and_not_one_for_each_gpu(replay: Replay) -> None:
    after = Period(fleet.END + 10 * fleet.MINUTE, fleet.END + 40 * fleet.MINUTE, fleet.STEP)
    assert {found.alert for found in firing(replay.url, [replay.rules], after)} == WHEN_ALL_IS_GONE


def test_every_alert_has_its_fault_or_a_reason_to_have_none() -> None:
    provoked = set().union(WHEN_ALL_IS_GONE, *EXPECTED.values())
    assert provoked & NOT_SIMULATED.keys() == set()
    assert provoked | NOT_SIMULATED.keys() == {alert.name for alert in ALERTS}


LIVELY = """
model = ["h100", "a100", "mi300x", "t4"]

[[mig]]
gpus = [1]
profiles = ["3g.20gb", "1g.5gb"]

[[workload]]
shape = "training"
gpus = [0, 2]
pod = "nlp/pretrain-0"
controller = "Job/pretrain"

[[workload]]
shape = "inference"
gpus = [0, 1]
pod = "search/ranker-0"
container = "server"

[[workload]]
shape = "inference"
gpus = [0]
pod = "search/ranker-0"
container = "cache"

[[workload]]
shape = "unrequested"
gpus = [0]
pod = "media/thumbnailer-0"

[[workload]]
shape = "hang"
gpus = [3]
owner = "slurm/42"

[[workload]]
shape = "notebook"
gpus = [3]

[[fault]]
kind = "xid"
gpus = [0, 3]
code = 79
at = 1

[[fault]]
kind = "lost"
gpus = [3]
start = 5
"""


def test_no_rule_fails_while_two_exporters_of_a_node_are_there(tmp_path: Path) -> None:
    """As during an update: every GPU and pod exists twice, and no rule may match many to many."""
    groups = [group | {"interval": "1s"} for group in rule_groups(disabled_too=True)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": groups}))
    scenario = tmp_path / "lively.toml"
    scenario.write_text(LIVELY)
    with Exporter(
        tmp_path / "exporter.log", "simulate", "--scenario", str(scenario), "--interval", "1s"
    ) as exporter:
        twice = [
            {
                "targets": [exporter.address],
                "labels": {"node": "n1", "instance": pod, "namespace": "gputally", "pod": pod},
            }
            for pod in ("old", "new")
        ]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "gputally", "honor_labels": True, "static_configs": twice}],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        with prometheus_in(tmp_path) as prometheus:
            prometheus.wait_for("count(up == 1) == 2")
            prometheus.wait_for('ALERTS{alertname="GPUTallyXidCritical"}')
            wait_for_evaluations(prometheus, groups)
            rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
            failures = own_samples(prometheus)["prometheus_rule_evaluation_failures_total"]
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    assert sum(failures.values()) == 0


def own_samples(prometheus: Prometheus) -> Samples:
    """Prometheus's own metrics."""
    with urllib.request.urlopen(f"{prometheus.url}/metrics", timeout=10) as response:
        return parse_samples(response.read().decode())


def wait_for_evaluations(prometheus: Prometheus, groups: list[dict[str, Any]]) -> None:
    """Waits until every rule was evaluated ten more times, enough for rules that read each other."""

    def evaluated() -> dict[tuple[str, ...], float]:
        return own_samples(prometheus)["prometheus_rule_evaluations_total"]

    rules = {group["name"]: len(group["rules"]) for group in groups}
    before = evaluated()

    def evaluated_ten_times() -> bool:
        now = evaluated()
        return all(now[group] - before[group] >= 10 * rules[group[0].rpartition(";")[2]] for group in before)

    wait_until(evaluated_ten_times, "Prometheus evaluates the rules", 90)
    assert len(before) == len(groups)
