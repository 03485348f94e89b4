"""The chart in a cluster with the real Prometheus operator: from a fault on a GPU to the message about it."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import yaml

from alerts import promql, schema
from alerts.groups import GROUPS
from alerts.rules import rule_groups
from gputally.metrics.catalog import CATALOG
from gputally.model import FABRIC_PROBLEMS, Labelled, ProcessSample, Reading
from gputally.simulator.scenario import MigLayout
from tests.e2e.conftest import Keeper
from tests.e2e.driver import Driver, on_a_gpu
from tests.e2e.kubernetes import CHART, SECONDS, TIMEOUT, WAIT, Namespace, Object, node_pids, pod, until
from tests.support.alerting import Inbox, Message, inbox
from tests.support.command_line import levels, run
from tests.support.worlds import world
from tools import Failed
from tools.dependencies import programs
from tools.rendering.metrics_page import readers_of
from tools.servers import prometheus_operator
from tools.servers.prometheus import Prometheus
from tools.servers.prometheus_operator import Generated
from tools.standin.scenario import Fault, FaultKind, Frame, write_scenario
from tools.test_cluster import audit, layout
from tools.test_cluster.cluster import Cluster
from tools.test_cluster.images import RELOADER

pytestmark = pytest.mark.timeout(900)

CLUSTER = "north"
SECONDS_TO_PLAY = 600
SPARE = 2
"""The GPU that falls off the bus."""
NOBODY = 1 << 22
"""The first number that no process can have."""
# What our Prometheus reads: pods by the ScrapeConfig, and where its Alertmanager is.
READS = [
    {"apiGroups": [""], "resources": ["pods", "services", "endpoints"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]},
]
# Labels that many give to all their targets, and by which a scrape that does not honour ours is seen.
OWN_POD = [
    {"sourceLabels": ["__meta_kubernetes_namespace"], "targetLabel": "namespace"},
    {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "pod"},
]


def every_kind() -> tuple[Reading, ...]:
    """Four GPUs that together have every value that NVIDIA's driver gives and a rule reads."""
    idle: dict[str, Any] = {"workloads": (), "faults": ()}
    (cut,) = world("h100", 1, mig=(MigLayout(gpus=(0,), profiles=("4g.40gb",)),), **idle)
    _, used, spare = world("h100", 3, **idle)
    *_, old = world("t4", 4, **idle)
    # Only newer GPUs report these.
    healthy: Labelled = {(problem,): 0.0 for problem in FABRIC_PROBLEMS}
    return cut, replace(used, xid_errors={("13",): 1}, fabric_problem=healthy), spare, old


@dataclass(frozen=True, slots=True)
class Gpus:
    """Those of `every_kind`, with a process on the second one."""

    driver: Driver
    pid: int
    readings: tuple[Reading, ...] = field(default_factory=every_kind)
    began: float = field(default_factory=time.time)

    def play(self, *faults: Fault, beside: Sequence[int] = ()) -> None:
        """From now on, with these faults, and with these processes on the GPU that is spare."""
        unreadable = Fault(FaultKind.ERROR, "nvmlDeviceGetPerformanceState", gpu=3, value=999)
        write_scenario(
            self.driver.scenario,
            [Frame(float(second), self._after(second, beside)) for second in range(SECONDS_TO_PLAY)],
            faults=(unreadable, *faults),
            start=self.began,
        )

    def _after(self, second: int, beside: Sequence[int]) -> tuple[Reading, ...]:
        cut, used, spare, old = self.readings
        moment = round((self.began + second) * 1_000_000)
        sample = ProcessSample(self.pid, moment, 0.5, memory_ratio=0.2, encoder_ratio=0, decoder_ratio=0)
        return (
            cut,
            replace(used, processes=(on_a_gpu(self.pid),), process_samples=(sample,)),
            replace(spare, processes=tuple(map(on_a_gpu, beside))),
            old,
        )


@dataclass(frozen=True, slots=True)
class Installation:
    """The chart, what the operator runs for it, and the receiver of its alerts."""

    cluster: Cluster
    namespace: Namespace
    gpus: Gpus
    inbox: Inbox

    def address(self, name: str, port: int) -> str:
        """Of a pod, as soon as it has one."""
        given = until(
            f"{name} has an address", lambda: self.namespace.get("pod", name)["status"].get("podIP")
        )
        return f"http://{given}:{port}"

    @property
    def prometheus(self) -> Prometheus:
        return Prometheus(self.address("prometheus-all-0", 9090))

    @property
    def alertmanager(self) -> str:
        return self.address("alertmanager-all-0", 9093)

    @property
    def exporter(self) -> str:
        (found,) = self.namespace.pods_of("gputally")
        return self.address(found["metadata"]["name"], 9400)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The result of a query as soon as it has a series."""
        return self.prometheus.wait_for(query, seconds=SECONDS)


@pytest.fixture(scope="module")
def installation(keeper: Keeper) -> Iterator[Installation]:
    cluster = keeper.cluster()
    cluster.plane.kubectl("apply", "--server-side", f"--filename={programs.path('prometheus-operator-crds')}")
    cluster.plane.kubectl("wait", "--for=condition=Established", "crd", "--all", TIMEOUT)
    with Namespace.made(cluster.plane, "operator") as namespace, inbox(layout.HOST_ADDRESS) as box:
        (pid,) = node_pids(namespace.run(pod("train", WAIT, labels={"team": "nlp"})))
        gpus = Gpus(Driver.installed(cluster, "beside-operator"), pid)
        gpus.play()
        found = Installation(cluster, namespace, gpus, box)
        namespace.apply(secret(box))
        namespace.install("gputally", values(gpus.driver))
        evaluate_often(namespace)
        namespace.apply(*access(namespace), *managed(namespace))
        # It finds all of it, and so its first configurations are the last ones.
        with prometheus_operator.operating(cluster.plane, reloader=RELOADER):
            until("Prometheus has rules", lambda: found.prometheus.api("rules")["groups"])
            yield found
            # Or else new pods come for those that are deleted.
            namespace.kubectl("delete", "prometheus,alertmanager", "--all", "--cascade=foreground")
        namespace.uninstall("gputally")


def values(driver: Driver) -> dict[str, Any]:
    return {
        **driver.values(interval="1s"),
        "cluster": CLUSTER,
        "kubernetes": {"enabled": True, "podLabels": ["team"], "nodeLabels": ["nvidia.com/gpu.present"]},
        "scrapeConfig": {"enabled": True, "relabelings": OWN_POD},
        "prometheusRule": {"enabled": True},
        "alertmanagerConfig": {"enabled": True},
        "routing": {
            "secret": "receivers",
            "critical": "webhook",
            "default": "webhook",
            "timing": {"critical": {"groupWait": "1s", "groupInterval": "2s"}},
        },
        "rules": {
            "settings": {"scrapeInterval": "1s", "scrapeTimeout": "1s"},
            "alerts": {"GPUTallyGpuLost": {"for": "0s"}},
        },
    }


def evaluate_often(namespace: Namespace) -> None:
    """The rules are the chart's, but for how often they are evaluated, which no value is for."""
    rules = namespace.get("prometheusrule", "gputally")
    for group in rules["spec"]["groups"]:
        group["interval"] = "2s"
    namespace.kubectl("replace", "--filename=-", given=json.dumps(rules))


def secret(box: Inbox) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "receivers"},
        "stringData": {"webhook-url": f"http://{layout.HOST_ADDRESS}:{box.port}/webhook"},
    }


def access(namespace: Namespace) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    named = {"metadata": {"name": "prometheus"}}
    rules = [{**rule, "verbs": ["get", "list", "watch"]} for rule in READS]
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace.name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", **named},
        {"apiVersion": f"{group}/v1", "kind": "Role", **named, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            **named,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "prometheus"},
            "subjects": [subject],
        },
    ]


def managed(namespace: Namespace) -> list[Object]:
    """A Prometheus and an Alertmanager that take what is in their namespace."""
    stack = yaml.safe_load((CHART / "values.yaml").read_text())["stack"]
    alertmanagers = [{"namespace": namespace.name, "name": "alertmanager-operated", "port": "web"}]
    specs: dict[str, Object] = {
        "Prometheus": {
            "serviceAccountName": "prometheus",
            "scrapeConfigSelector": {},
            "ruleSelector": {},
            "alerting": {"alertmanagers": alertmanagers},
        },
        "Alertmanager": {
            "alertmanagerConfigSelector": {},
            "alertmanagerConfigMatcherStrategy": {"type": "None"},
        },
    }
    made = []
    for kind, spec in specs.items():
        image = stack[kind.lower()]["image"]
        named = {"image": f"{image['repository']}:{image['tag']}", "version": image["tag"]}
        made.append(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": kind,
                "metadata": {"name": "all"},
                "spec": {"replicas": 1, **named, **spec},
            }
        )
    return made


def test_prometheus_runs_with_the_configuration_that_the_operator_generates(
    installation: Installation,
) -> None:
    namespace = installation.namespace
    generated = Generated(namespace.plane, namespace.name)

    loaded = yaml.safe_load(installation.prometheus.api("status/config")["yaml"])

    (written,) = yaml.safe_load(generated.prometheus("all"))["scrape_configs"]
    (job,) = loaded["scrape_configs"]
    assert job["job_name"] == written["job_name"] == f"scrapeConfig/{namespace.name}/gputally"
    refused = [said for said in generated.warnings() if not said.startswith("Pod ")]
    assert refused == []


def test_the_exporter_is_scraped_and_series_have_the_labels_of_the_workload(
    installation: Installation,
) -> None:
    namespace = installation.namespace

    (row,) = installation.rows("gputally_pod_active")

    own = {"cluster": CLUSTER, "node": layout.NODE_NAME, "instance": layout.NODE_NAME, "job": "gputally"}
    whose = {"namespace": namespace.name, "pod": "train", "container": "main"}
    assert row["metric"].items() >= (own | whose).items()
    assert not [label for label in row["metric"] if label.startswith("exported_")]
    (target,) = installation.prometheus.api("targets")["activeTargets"]
    (exporter,) = namespace.pods_of("gputally")
    assert (target["health"], target["lastError"]) == ("up", "")
    assert target["labels"]["pod"] == exporter["metadata"]["name"]


def test_every_rule_is_loaded_and_can_be_evaluated(installation: Installation) -> None:
    def evaluated() -> list[Any]:
        groups: list[Any] = installation.prometheus.api("rules")["groups"]
        known = [rule["health"] for group in groups for rule in group["rules"]]
        return groups if "unknown" not in known else []

    groups = until("all rules were evaluated", evaluated)

    wanted = {group["name"]: len(group["rules"]) for group in rule_groups()}
    assert {group["name"]: len(group["rules"]) for group in groups} == wanted
    failing = {
        rule["name"]: rule["lastError"] for g in groups for rule in g["rules"] if rule["health"] != "ok"
    }
    assert failing == {}


def test_every_rule_reads_existing_series(installation: Installation) -> None:
    loaded = [rule for group in installation.prometheus.api("rules")["groups"] for rule in group["rules"]]
    recorded = {rule["name"] for rule in loaded if rule["type"] == "recording"}
    elsewhere = {
        # Only other drivers have these...
        *(metric.name for metric in CATALOG if (readers := readers_of(metric)) and "nvml" not in readers),
        # ... and these are recorded once there are rows in a table of the values.
        *(record.name for group in GROUPS for record in group.records if record.each),
        # An H100 has none.
        "gputally_gpu_memory_temperature_limit_celsius",
        # Optional parts of a cluster.
        *schema.KUBE_STATE_METRICS,
        *schema.KUEUE,
    }

    def all_there() -> bool:
        here = installation.prometheus.api("label/__name__/values")
        known = dict.fromkeys([*here, *recorded, *elsewhere], frozenset({promql.ANY}))
        if unread := dict(unreadable(loaded, known)):
            raise Failed(str(unread))
        return True

    # Of GPUs in use, some metrics are about processes of the node itself, and about unattributed processes.
    installation.gpus.play(beside=[installation.cluster.node_pid("kubelet"), NOBODY])
    until("every rule finds its metrics", all_there)
    installation.gpus.play()


def unreadable(rules: list[Any], known: promql.SeriesLabels) -> Iterator[tuple[str, str]]:
    """The rule, and what is wrong."""
    for rule in rules:
        try:
            promql.names_in(rule["query"], known)
        except promql.Wrong as wrong:
            yield rule["name"], str(wrong)


def test_the_exporter_has_exactly_the_api_permissions_that_it_uses(installation: Installation) -> None:
    namespace = installation.namespace
    (role,) = json.loads(
        namespace.plane.kubectl(
            "get", "clusterroles", "--selector=app.kubernetes.io/instance=gputally", "--output=json"
        )
    )["items"]

    installation.rows(f'gputally_pod_info{{namespace="{namespace.name}",label_team="nlp"}}')
    installation.rows("gputally_node_labels_info")

    asked = audit.asked(installation.cluster.place.directory, namespace.name, "gputally")
    assert [each for each in asked if each.refused] == []
    assert {(each.verb, each.resource) for each in asked} == {
        (verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }


def test_verify_reports_no_fault(installation: Installation) -> None:
    report = run(
        *("verify", "--exporter", installation.exporter, "--prometheus", installation.prometheus.url),
        *("--alertmanager", installation.alertmanager, "--cluster", CLUSTER),
        *("--rule-groups", str(len(rule_groups())), "--wait", "60s"),
    )

    assert report.returncode == 0, report.stdout
    found = levels(report.stdout)
    assert {subject for subject, level in found.items() if level == "not checked"} == {
        "dashboards",
        "data source",
    }
    assert set(found.values()) == {"ok", "not checked"}, report.stdout


def test_a_lost_gpu_and_its_return_are_notified(installation: Installation) -> None:
    def lost(message: Message) -> list[Any]:
        return [a for a in message.whole["alerts"] if a["labels"]["alertname"] == "GPUTallyGpuLost"]

    def wait_for(status: str) -> dict[str, str]:
        def wanted(message: Message) -> bool:
            return any(alert["status"] == status for alert in lost(message))

        message = installation.inbox.wait_for(wanted, f"a GPU that is lost: {status}")
        assert message.receiver == "webhook"
        (alert,) = lost(message)
        labels: dict[str, str] = alert["labels"]
        return labels

    gone = installation.gpus.readings[SPARE].gpu
    installation.gpus.play(Fault(FaultKind.LOST, gpu=SPARE))

    firing = wait_for("firing")

    about = {
        "cluster": CLUSTER,
        "node": layout.NODE_NAME,
        "gpu": str(SPARE),
        "uuid": gone.uuid,
        "severity": "critical",
    }
    assert firing.items() >= about.items()

    installation.gpus.play()

    assert wait_for("resolved") == firing
