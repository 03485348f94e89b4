"""kube-state-metrics as the chart runs it, with a real API server and scheduler, and records that read it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import schema
from alerts.groups import capacity
from alerts.rules import rule_groups
from tests.bundle import chart
from tests.support.prometheus import prometheus_in
from tools.dependencies import programs
from tools.servers import control_plane
from tools.servers.children import Child, Children
from tools.servers.control_plane import ControlPlane
from tools.servers.ports import HOST, free_port
from tools.servers.prometheus import Prometheus
from tools.servers.waiting import responds, wait_until

pytestmark = pytest.mark.timeout(600)

NAME = "gputally-kube-state-metrics"
NAMESPACE = "monitoring"
VALUES = {"stack": {"enabled": True, "kubeStateMetrics": {"enabled": True}}, "cluster": "lab"}
GPU = "nvidia.com/gpu"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
WAITING = {
    "name": "main",
    "image": "none",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "state": {"waiting": {"reason": "ImagePullBackOff"}},
}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


@dataclass(frozen=True, slots=True)
class Cluster:
    plane: ControlPlane
    prometheus: Prometheus

    def values(self, expr: str, *labels: str) -> dict[tuple[str, ...], float]:
        found = self.prometheus.api("query", query=expr)["result"]
        return {
            tuple(one["metric"].get(name, "") for name in labels): float(one["value"][1]) for one in found
        }

    def wait_for(self, expr: str, labels: tuple[str, ...], expected: Mapping[tuple[str, ...], float]) -> None:
        def there() -> bool:
            # Without a kubelet, the controller would regard the node as lost.
            ready(self.plane)
            return self.values(expr, *labels) == expected

        wait_until(there, f"{expr} is {expected}", 120, state=lambda: self.values(expr, *labels))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("capacity")
    with ExitStack() as exits:
        children = exits.enter_context(Children())
        plane = exits.enter_context(control_plane.running(directory / "plane", scheduler=True))
        address = run_kube_state_metrics(plane, children, directory)
        write_objects(plane)
        write_prometheus(directory, address)
        yield Cluster(plane, exits.enter_context(prometheus_in(directory)))


def run_kube_state_metrics(plane: ControlPlane, children: Children, directory: Path) -> str:
    """With the arguments, the account and the role of the chart; returns its address."""
    rendered = [
        made for made in chart.render(VALUES, namespace=NAMESPACE) if NAME in made["metadata"]["name"]
    ]
    plane.kubectl("create", "namespace", NAMESPACE)
    identity = [
        made for made in rendered if made["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    ]
    apply(plane, *identity)
    (pod,) = chart.pods(rendered)
    (container,) = pod.containers
    own = [flag for flag in container["args"] if "port=" not in flag]
    port, telemetry = free_port(), free_port()
    ports = [f"--host={HOST}", f"--port={port}", f"--telemetry-host={HOST}", f"--telemetry-port={telemetry}"]
    kubeconfig = write_kubeconfig(plane, directory / "kubeconfig")
    command = [programs.path("kube-state-metrics"), *own, *ports, f"--kubeconfig={kubeconfig}"]
    children.start(Child(NAME, command, directory, directory / "kube-state-metrics.log"))
    ready_path, live_path = (
        container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")
    )
    wait_until(
        lambda: responds(f"http://{HOST}:{telemetry}{ready_path}"), "it is ready", check=children.check
    )
    wait_until(lambda: responds(f"http://{HOST}:{port}{live_path}"), "it is alive", check=children.check)
    return f"{HOST}:{port}"


def write_kubeconfig(plane: ControlPlane, file: Path) -> Path:
    """A kubeconfig with the token of the chart's service account."""
    token = plane.kubectl("create", "token", NAME, "-n", NAMESPACE).strip()
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "administrator", "user": {"token": token}}]
    file.write_text(json.dumps(config))
    return file


def write_prometheus(directory: Path, address: str) -> None:
    """The chart's job, and the rules about capacity each second."""
    (config,) = (
        yaml.safe_load(made["data"]["prometheus.yml"])
        for made in chart.objects("ConfigMap", VALUES, namespace=NAMESPACE)
        if "prometheus.yml" in made["data"]
    )
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "kube-state-metrics")
    job["static_configs"][0]["targets"] = [address]
    (group,) = rule_groups((capacity.GROUP,))
    (directory / "rules.yml").write_text(json.dumps({"groups": [{**group, "interval": "1s"}]}))
    each_second = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    settings = {"global": each_second, "rule_files": ["rules.yml"], "scrape_configs": [job]}
    (directory / "prometheus.yml").write_text(json.dumps(settings))


def write_objects(plane: ControlPlane) -> None:
    """A node with four GPUs, and pods in every state; `train` runs on one of them."""
    taint = {"key": "gpu", "value": "true", "effect": "PreferNoSchedule"}
    apply(
        plane,
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}, "spec": {"taints": [taint]}},
    )
    ready(plane)
    plane.kubectl("create", "namespace", "ml")
    wait_until(
        lambda: "default" in plane.kubectl("get", "serviceaccounts", "-n", "ml"), "the account is there"
    )
    plane.kubectl("create", "quota", "gpus", "-n", "ml", f"--hard=requests.{GPU}=64,pods=99")
    apply(
        plane,
        pod("train", 1, nodeName="gpu-1"),
        pod("stuck", 1, nodeName="gpu-1"),
        pod("large", 8),
        pod("gated", 2, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        pod("unseen", 3, schedulerName="none"),
        pod("web", 0),
    )
    status(plane, "train", phase="Running", conditions=[SCHEDULED])
    status(plane, "stuck", phase="Pending", conditions=[SCHEDULED], containerStatuses=[WAITING])


def pod(name: str, gpus: int, **spec: Any) -> chart.Object:
    resources = {"limits": {GPU: gpus}} if gpus else {"requests": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": resources}], **spec},
    }


def apply(plane: ControlPlane, *objects: chart.Object) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", "-f", "-", given=json.dumps(listed))


def ready(plane: ControlPlane) -> None:
    amounts = {GPU: "4", "cpu": "64", "memory": "1Ti", "pods": "110"}
    fresh = {"capacity": amounts, "allocatable": amounts, "conditions": [READY]}
    plane.kubectl("patch", "node", "gpu-1", "--subresource=status", "-p", json.dumps({"status": fresh}))


def status(plane: ControlPlane, name: str, **given: Any) -> None:
    patch = json.dumps({"status": given})
    plane.kubectl("patch", "pod", name, "-n", "ml", "--subresource=status", "-p", patch)


def test_a_pod_that_waits_for_a_gpu_is_seen_with_the_reason(cluster: Cluster) -> None:
    cluster.wait_for(
        "pod:gputally_pending:devices",
        ("cluster", "namespace", "pod", "resource", "reason"),
        {
            ("lab", "ml", name, "nvidia_com_gpu", reason): gpus
            for name, reason, gpus in (
                ("large", "Unschedulable", 8),
                ("gated", "SchedulingGated", 2),
                ("stuck", "Starting", 1),
                ("unseen", "NotScheduled", 3),
            )
        },
    )
    waited = cluster.values("pod:gputally_pending:seconds", "pod")
    assert waited.keys() == {("large",), ("gated",), ("stuck",), ("unseen",)}
    assert all(0 <= seconds < 600 for seconds in waited.values())


def test_what_pods_request_and_nodes_have_is_counted(cluster: Cluster) -> None:
    gpu = ("nvidia_com_gpu",)
    cluster.wait_for("resource:gputally_requested:devices", ("resource",), {gpu: 15})
    cluster.wait_for("resource:gputally_allocatable:devices", ("resource",), {gpu: 4})
    cluster.wait_for("node:gputally_requestable:devices", ("node",), {("gpu-1",): 2})


def test_a_cordoned_node_has_nothing_to_request(cluster: Cluster) -> None:
    cluster.plane.kubectl("cordon", "gpu-1")
    try:
        cluster.wait_for("node:gputally_allocatable:devices", ("node",), {})
    finally:
        cluster.plane.kubectl("uncordon", "gpu-1")
    cluster.wait_for("node:gputally_allocatable:devices", ("node",), {("gpu-1",): 4})


def test_it_exports_every_series_that_the_rules_read_and_no_other(cluster: Cluster) -> None:
    def exported() -> set[str]:
        return {name for (name,) in cluster.values('{__name__=~"kube_.+"}', "__name__")}

    wait_until(lambda: exported() == schema.KUBE_STATE_METRICS.keys(), "all are there", 120, state=exported)
    for name, labels in schema.KUBE_STATE_METRICS.items():
        for one in cluster.prometheus.api("query", query=name)["result"]:
            # A pod that waits has no node.
            assert labels - {"node"} <= one["metric"].keys(), name


def test_resources_other_than_gpus_are_not_stored(cluster: Cluster) -> None:
    cluster.wait_for(
        "count by (resource) (kube_node_status_allocatable)", ("resource",), {("nvidia_com_gpu",): 1}
    )
    assert cluster.values('kube_pod_container_resource_requests{pod="web"}', "pod") == {}
    phases = {phase for (phase,) in cluster.values("kube_pod_status_phase", "phase")}
    assert phases == {"Pending", "Running"}
