"""The chart in a cluster with the real Prometheus operator: from a fault on a GPU to the message about it."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.rules import rule_groups
from gputally.model import Process, Reading
from tests.e2e.conftest import Keeper
from tests.e2e.kubernetes import CHART, Namespace, Object, node_pids, pod, until
from tests.system.alerting import Inbox, Message, inbox
from tests.system.test_verify import gputally, levels
from tests.worlds import play, world
from tools import programs, prometheus_operator
from tools.prometheus_operator import Generated
from tools.standin.build import LIBRARY_NAME, build_library
from tools.standin.scenario import SCENARIO_VARIABLE, Fault, FaultKind
from tools.test_cluster import layout
from tools.test_cluster.cluster import Cluster
from tools.test_cluster.images import RELOADER

pytestmark = pytest.mark.timeout(600)

CLUSTER = "north"
WAIT = "import signal; signal.sigwait([signal.SIGTERM])"
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


@dataclass(frozen=True, slots=True)
class Installation:
    """The chart, what the operator runs for it, and who hears of alerts."""

    namespace: Namespace
    gpus: tuple[Reading, ...]
    scenario: Path
    inbox: Inbox

    def address(self, name: str, port: int) -> str:
        """Of a pod, as soon as it has one."""
        given = until(
            f"{name} has an address", lambda: self.namespace.get("pod", name)["status"].get("podIP")
        )
        return f"http://{given}:{port}"

    @property
    def prometheus(self) -> str:
        return self.address("prometheus-all-0", 9090)

    @property
    def alertmanager(self) -> str:
        return self.address("alertmanager-all-0", 9093)

    @property
    def exporter(self) -> str:
        (found,) = self.namespace.pods_of("gputally")
        return self.address(found["metadata"]["name"], 9400)

    def ask(self, path: str, **query: str) -> Any:
        """Prometheus. Raises OSError."""
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]


@pytest.fixture(scope="module")
def installation(keeper: Keeper) -> Iterator[Installation]:
    cluster = keeper.cluster()
    cluster.plane.kubectl("apply", "--server-side", f"--filename={programs.path('prometheus-operator-crds')}")
    cluster.plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    with Namespace.made(cluster.plane, "operator") as namespace, inbox(layout.HOST_ADDRESS) as box:
        (pid,) = node_pids(namespace.run(pod("train", WAIT)))
        listed = Process(pid=pid, kind="compute", name="python", memory_used_bytes=1 << 30)
        first, second = world("h100", gpus=2)
        gpus = (replace(first, processes=(listed,)), replace(second, processes=()))
        driver = mounted_driver(cluster)
        found = Installation(namespace, gpus, play(driver / "scenario", gpus), box)
        namespace.apply(secret(box))
        namespace.install("gputally", values(driver))
        shorten_times(namespace)
        namespace.apply(*access(namespace), *managed(namespace))
        # It finds all of it, and so its first configurations are the last ones.
        with prometheus_operator.operating(cluster.plane, reloader=RELOADER):
            yield found
            # Or else new pods come for those that are deleted.
            namespace.kubectl("delete", "prometheus,alertmanager", "--all", "--cascade=foreground")
        namespace.uninstall("gputally")


def mounted_driver(cluster: Cluster) -> Path:
    """A folder with the stand-in's library, as the driver's is on a node."""
    driver = cluster.place.folder / "driver-beside-operator"
    (driver / "lib64").mkdir(parents=True, exist_ok=True)
    shutil.copy(build_library() / LIBRARY_NAME, driver / "lib64")
    return driver


def values(driver: Path) -> dict[str, Any]:
    scenario = {"name": SCENARIO_VARIABLE, "value": "/usr/local/nvidia/scenario"}
    return {
        "cluster": CLUSTER,
        "driver": {"hostPath": str(driver)},
        "exporter": {"reader": "nvml", "interval": "1s", "extraEnv": [scenario]},
        "scrapeConfig": {"enabled": True, "relabelings": OWN_POD},
        "prometheusRule": {"enabled": True},
        "alertmanagerConfig": {"enabled": True},
        "routing": {"secret": "receivers", "critical": "webhook", "default": "webhook"},
        "rules": {
            "settings": {"scrapeInterval": "1s", "scrapeTimeout": "1s"},
            "alerts": {"GPUTallyGpuLost": {"for": "0s"}},
        },
    }


def shorten_times(namespace: Namespace) -> None:
    """Rules and routes are the chart's, but for minutes and hours that no value is for."""
    rules = namespace.get("prometheusrule", "gputally")
    for group in rules["spec"]["groups"]:
        group["interval"] = "2s"
    routing = namespace.get("alertmanagerconfig", "gputally")
    for route in routing["spec"]["route"]["routes"]:
        route |= {"groupWait": "1s", "groupInterval": "2s"}
    for changed in (rules, routing):
        namespace.kubectl("replace", "--filename=-", given=json.dumps(changed))


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


def test_prometheus_runs_on_what_the_operator_makes_of_the_chart(installation: Installation) -> None:
    namespace = installation.namespace
    generated = Generated(namespace.plane, namespace.name)

    loaded = yaml.safe_load(until("Prometheus answers", lambda: installation.ask("status/config"))["yaml"])

    (written,) = yaml.safe_load(generated.prometheus("all"))["scrape_configs"]
    (job,) = loaded["scrape_configs"]
    assert job["job_name"] == written["job_name"] == f"scrapeConfig/{namespace.name}/gputally"
    refused = [said for said in generated.warnings() if not said.startswith("Pod ")]
    assert refused == []


def test_the_exporter_is_scraped_and_its_labels_are_those_of_the_workload(installation: Installation) -> None:
    namespace = installation.namespace

    (row,) = until(
        "a pod is named",
        lambda: installation.ask("query", query="gputally_pod_active")["result"],
    )

    own = {"cluster": CLUSTER, "node": layout.NODE_NAME, "instance": layout.NODE_NAME, "job": "gputally"}
    whose = {"namespace": namespace.name, "pod": "train", "container": "main"}
    assert row["metric"].items() >= (own | whose).items()
    assert not [label for label in row["metric"] if label.startswith("exported_")]
    (target,) = installation.ask("targets")["activeTargets"]
    (exporter,) = namespace.pods_of("gputally")
    assert (target["health"], target["lastError"]) == ("up", "")
    assert target["labels"]["pod"] == exporter["metadata"]["name"]


def test_every_rule_is_loaded_and_can_be_evaluated(installation: Installation) -> None:
    def evaluated() -> list[Any]:
        groups: list[Any] = installation.ask("rules")["groups"]
        known = [rule["health"] for group in groups for rule in group["rules"]]
        return groups if "unknown" not in known else []

    groups = until("all rules were evaluated", evaluated)

    wanted = {group["name"]: len(group["rules"]) for group in rule_groups()}
    assert {group["name"]: len(group["rules"]) for group in groups} == wanted
    failing = {
        rule["name"]: rule["lastError"] for g in groups for rule in g["rules"] if rule["health"] != "ok"
    }
    assert failing == {}


def test_verify_finds_nothing_wrong(installation: Installation) -> None:
    report = gputally(
        *("verify", "--exporter", installation.exporter, "--prometheus", installation.prometheus),
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


def test_a_lost_gpu_is_reported_and_so_is_its_return(installation: Installation) -> None:
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

    gone = installation.gpus[1].gpu
    play(installation.scenario, installation.gpus, faults=(Fault(FaultKind.LOST, gpu=1),))

    firing = wait_for("firing")

    about = {
        "cluster": CLUSTER,
        "node": layout.NODE_NAME,
        "gpu": "1",
        "uuid": gone.uuid,
        "severity": "critical",
    }
    assert firing.items() >= about.items()

    play(installation.scenario, installation.gpus)

    assert wait_for("resolved") == firing
