"""tools/verify on a real API server: it finds problems, and its fixes work."""

import json
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gputally.commands import FAILURE, OK, Finding
from tests.bundle.chart import CHART
from tests.bundle.cluster import Release, resources
from tests.support.texts import missing, numbers
from tools import ROOT, Failed
from tools.dependencies import programs
from tools.servers import control_plane
from tools.servers.control_plane import ControlPlane
from tools.servers.waiting import wait_until
from tools.verification.command import check_installation
from tools.verification.kubectl import Kubectl
from tools.verification.reach import Wanted

DEFINITIONS = (
    *("prometheuses", "alertmanagers", "scrapeconfigs", "servicemonitors", "podmonitors"),
    *("prometheusrules", "alertmanagerconfigs"),
)
GPUS = "nvidia.com/gpu"
LABELLED = {"nvidia.com/gpu.present": "true"}

pytestmark = pytest.mark.one_cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane.running(tmp_path_factory.mktemp("cluster"), scheduler=True) as running:
        make_node(running, "cpu-1")
        yield running


@pytest.fixture(autouse=True)
def as_administrator(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in plane.environment.items():
        monkeypatch.setenv(name, value)


def make_node(plane: ControlPlane, name: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
    """A node without a kubelet. Nodes named gpu-* have GPUs."""
    metadata = {"name": name, "labels": {"kubernetes.io/os": "linux", **(labels or {})}}
    plane.kubectl(
        "apply",
        "--filename=-",
        given=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}),
    )
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "99", **({GPUS: "8"} if name.startswith("gpu-") else {})}
    set_status(plane, "node", name, {"capacity": amounts, "allocatable": amounts})


def set_status(plane: ControlPlane, kind: str, name: str, status: Any, *flags: str) -> None:
    patch = json.dumps({"status": status})
    plane.kubectl("patch", kind, name, "--subresource=status", "--type=merge", f"--patch={patch}", *flags)


def install(plane: ControlPlane, namespace: str, values: dict[str, Any] | None = None) -> None:
    """Install or upgrade the release with these values."""
    release = Release(plane, namespace, "gputally")
    release.upgrade(CHART, values or {}, "--install", "--create-namespace")


def verify(namespace: str = "", name: str = "") -> list[Finding]:
    return check_installation(Kubectl(str(programs.path("kubectl"))), namespace, name, Wanted())


def failures(namespace: str, subject: str) -> list[Finding]:
    found = verify(namespace)
    return [one for one in found if one.level == FAILURE and one.subject == subject]


def wait_for_failure(namespace: str, subject: str) -> list[Finding]:
    found: list[Finding] = []

    def fails() -> bool:
        found[:] = failures(namespace, subject)
        return bool(found)

    wait_until(fails, "the check fails", state=lambda: verify(namespace))
    return found


def run_fix(plane: ControlPlane, fix: str, program: str) -> None:
    """Run the command of a fix, up to its first comma or semicolon."""
    command = shlex.split(fix.partition(";")[0].partition(",")[0])
    assert command[0] == program
    subprocess.run([programs.path(program), *command[1:]], env=plane.environment, check=True)


def test_without_a_release_it_prints_the_install_command() -> None:
    with pytest.raises(Failed, match="helm install"):
        verify()


def test_without_gpu_nodes_it_lists_the_node_labels(plane: ControlPlane) -> None:
    install(plane, "no-gpus")
    (found,) = failures("no-gpus", "gpu nodes")
    assert numbers(found.text) == [1]
    assert "cloud.google.com/gke-accelerator" in found.fix
    # Nothing scrapes the exporter either.
    (found,) = failures("no-gpus", "scraping")
    assert "stack.enabled=true" in found.fix


def test_two_releases_are_distinguished(plane: ControlPlane) -> None:
    install(plane, "no-gpus")
    install(plane, "second")
    with pytest.raises(Failed, match=r"--namespace no-gpus --release gputally, --namespace second"):
        verify()
    with pytest.raises(Failed, match=r"\bother\b.*\bgputally in second"):
        verify("second", "other")


def test_the_fix_labels_a_gpu_node(plane: ControlPlane) -> None:
    install(plane, "second")
    make_node(plane, "gpu-1")
    (found,) = failures("second", "gpu nodes")
    assert found.text.startswith("gpu-1: ")
    run_fix(plane, found.fix, "kubectl")
    wait_until(
        lambda: not failures("second", "gpu nodes"), "the nodes are checked", state=lambda: verify("second")
    )
    (pods,) = wait_for_failure("second", "exporter pods")
    assert numbers(pods.text) == [0, 1]


def test_a_taint_that_is_not_tolerated_is_reported(plane: ControlPlane) -> None:
    install(plane, "second")
    make_node(plane, "gpu-2", LABELLED, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    (tainted,) = [one.text for one in failures("second", "gpu nodes") if one.text.startswith("gpu-2")]
    assert missing(tainted, "taint team") == []
    install(plane, "second", {"exporter": {"tolerations": [{"key": "team", "operator": "Exists"}]}})
    assert not [one for one in failures("second", "gpu nodes") if one.text.startswith("gpu-2")]


def test_pods_that_pod_security_refuses(plane: ControlPlane) -> None:
    make_node(plane, "gpu-1", LABELLED)
    plane.kubectl("create", "namespace", "strict")
    plane.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=baseline")
    install(plane, "strict")
    (found,) = wait_for_failure("strict", "exporter")
    assert "Pod Security" in found.text
    run_fix(plane, found.fix, "kubectl")
    labels = plane.api("/api/v1/namespaces/strict")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_volumes_without_a_storage_class(plane: ControlPlane) -> None:
    install(plane, "stack", {"stack": {"enabled": True}})
    (found,) = wait_for_failure("stack", "volumes")
    assert "default" in found.text
    assert [0, 1] in [numbers(one.text) for one in failures("stack", "prometheus")]
    usual = {"storageclass.kubernetes.io/is-default-class": "true"}
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disks", "annotations": usual},
        "provisioner": "example.com/disks",
    }
    plane.kubectl("create", "--filename=-", given=json.dumps(made))
    (found,) = failures("stack", "volumes")
    assert "pending" in found.text


@pytest.mark.parametrize(
    ("state", "said", "fix"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image x"}}},
            "ImagePullBackOff: Back-off pulling image x",
            "global.imageRegistry",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {"terminated": {"exitCode": 2, "message": "a\ngputally serve: no such file\n"}},
            },
            "restarts repeatedly: gputally serve: no such file",
            "kubectl logs --namespace second",
        ),
    ],
)
def test_pods_that_do_not_start(plane: ControlPlane, state: dict[str, Any], said: str, fix: str) -> None:
    install(plane, "second")
    make_node(plane, "gpu-1", LABELLED)

    def pods() -> list[str]:
        found = plane.api("/api/v1/namespaces/second/pods")["items"]
        return [one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"]]

    wait_until(pods, "there are pods")
    pod = pods()[0]
    container = {"name": "gputally", "image": "x", "imageID": "", "ready": False, "restartCount": 3, **state}
    set_status(plane, "pod", pod, {"containerStatuses": [container]}, "--namespace=second")
    (found,) = failures("second", "exporter")
    assert (found.text, fix in found.fix) == (f"{pod}: {said}", True)


def define(plane: ControlPlane) -> None:
    wanted = {f"{name}.monitoring.coreos.com" for name in DEFINITIONS}
    if wanted <= resources(plane).keys():
        return
    files = [
        f"--filename={file}"
        for name in DEFINITIONS
        for file in programs.path("prometheus-operator-crds").glob(f"*_{name}.yaml")
    ]
    plane.kubectl("apply", "--server-side", *files)
    wait_until(
        lambda: wanted <= resources(plane).keys(),
        "the API has the resources",
        state=lambda: sorted(resources(plane)),
    )


def operate(plane: ControlPlane, kind: str, namespace: str, **spec: Any) -> None:
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": "main", "namespace": namespace},
        "spec": spec,
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    items = {"apiVersion": "v1", "kind": "List", "items": [space, made]}
    plane.kubectl("apply", "--server-side", "--filename=-", given=json.dumps(items))


def of_subjects(findings: Sequence[Finding], *subjects: str) -> list[tuple[str, str]]:
    return [(one.subject, one.level) for one in findings if one.subject in subjects]


def test_the_fix_labels_objects_that_the_operators_prometheus_does_not_select(
    plane: ControlPlane,
) -> None:
    define(plane)
    asked = {"matchLabels": {"release": "kps"}}
    operate(
        plane,
        "Prometheus",
        "monitoring",
        **{f"{name}Selector": asked for name in ("scrapeConfig", "serviceMonitor", "podMonitor", "rule")},
        **{f"{name}NamespaceSelector": {} for name in ("scrapeConfig", "serviceMonitor", "rule")},
    )
    install(plane, "operated")
    (found,) = failures("operated", "scraping")
    assert found.fix.endswith(
        "scrapeConfig.enabled=true --set-string 'scrapeConfig.additionalLabels.release=kps'"
    )

    install(plane, "operated", {"scrapeConfig": {"enabled": True}, "prometheusRule": {"enabled": True}})
    found_now = verify("operated")
    objects = ("scrapeConfig", "prometheusRule")
    assert of_subjects(found_now, *objects) == [(subject, FAILURE) for subject in objects]
    for one in found_now:
        if one.subject in objects:
            assert missing(one.text, "monitoring/main", "operated/gputally", "release=kps") == []
            run_fix(plane, one.fix.replace("...", f"gputally {CHART} -n operated"), "helm")
    assert of_subjects(verify("operated"), *objects) == [(subject, OK) for subject in objects]


@pytest.mark.parametrize(
    ("spec", "term"),
    [({"alertmanagerConfigSelector": {}}, "namespace routed"), ({}, "no object of this kind")],
)
def test_an_alertmanager_that_does_not_select_the_routes(
    plane: ControlPlane, spec: dict[str, Any], term: str
) -> None:
    define(plane)
    operate(plane, "Alertmanager", "alerting", **spec)
    routed = {"alertmanagerConfig": {"enabled": True}, "routing": {"secret": "s", "default": "slack"}}
    install(plane, "routed", routed)
    (found,) = failures("routed", "alertmanagerConfig")
    assert term in found.text


def test_the_plain_installation_is_accepted_and_found(plane: ControlPlane) -> None:
    """With the commands of deploy/README.md."""
    applied = (
        "--filename=deploy/exporter.yaml",
        "--kustomize=helm/gputally/dashboards",
        "--filename=deploy/stack.yaml",
    )
    for source in applied:
        file = f"{source.partition('=')[0]}={ROOT / source.partition('=')[2]}"
        space = ["--namespace=gputally"] if source.startswith("--kustomize") else []
        plane.kubectl("apply", "--server-side", file, *space)
        # No difference between the applied and the stored objects.
        plane.kubectl("diff", "--server-side", file, *space)
    found = verify("gputally")
    assert of_subjects(found, "prometheus", "alertmanager")[:2] == [
        ("alertmanager", FAILURE),
        ("prometheus", FAILURE),
    ]
    assert not of_subjects(found, "scraping")


def test_missing_permissions_are_reported(plane: ControlPlane, tmp_path: Path) -> None:
    """A user with a role in one namespace: objects outside of it are reported as not checked."""
    install(plane, "second")
    plane.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--user=ann", "--namespace=second")
    script = tmp_path / "kubectl"
    script.write_text(f'#!/bin/sh\nexec {programs.path("kubectl")} --as=ann "$@"\n')
    script.chmod(0o755)
    found = check_installation(Kubectl(str(script)), "second", "", Wanted())
    (nodes,) = [one for one in found if one.subject == "gpu nodes"]
    assert "cannot list resource" in nodes.text  # of the API server
    assert not [one for one in found if one.level == OK]
