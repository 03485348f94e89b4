"""Privileges of the chart's pods: each is requested by a value, and presets document them."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pytest
import yaml

from tests.bundle import exporter_pod
from tests.bundle.chart import PRESETS, Pod, merged, objects, pods, render
from tests.bundle.chart_combinations import CASES, Case
from tests.bundle.pod_security import CONTROLS, LEVELS, level, violations
from tools import ROOT

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_preset = pytest.mark.parametrize("preset", PRESETS)

DOCUMENT = ROOT / "docs" / "privileges.md"
# The controls that each privilege fails; without privileges, the exporter is restricted.
HOST_PATH = {"HostPath Volumes", "Volume Types"}
USER_0 = {"Running as Non-root", "Running as Non-root user"}
CONTROLS_FAILED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "hostPID": ({"privileges": {"hostPID": True}}, {"Host Namespaces"}),
    "podLogs": ({"privileges": {"podLogs": True}}, HOST_PATH),
    "podLogDirectories": ({"privileges": {"podLogs": True, "podLogDirectories": True}}, HOST_PATH),
    "podResources": ({"privileges": {"podResources": True}}, HOST_PATH | USER_0),
    "kubeletPods": ({"privileges": {"kubeletPods": True}}, HOST_PATH | USER_0),
    "accounting": ({"privileges": {"accounting": True}}, {"Capabilities", *USER_0}),
    "capabilities": ({"privileges": {"capabilities": ["SYS_PTRACE"]}}, {"Capabilities", *USER_0}),
    "privileged": (
        {"privileges": {"privileged": True}},
        {"Privileged Containers", "Privilege Escalation", "Capabilities", *USER_0},
    ),
    "seLinuxType": ({"privileges": {"seLinuxType": "spc_t"}}, {"SELinux"}),
    "supplementalGroups": ({"privileges": {"supplementalGroups": [0]}}, set()),
    "driver.hostPath": ({"driver": {"hostPath": "/home/kubernetes/bin/nvidia"}}, HOST_PATH),
    "state.volume": ({"state": {"volume": "hostPath"}}, HOST_PATH | USER_0),
    "kubernetes.enabled": ({"kubernetes": {"enabled": True}}, set()),
}
# Where container runtimes and the kubelet keep the contents of logs; /var/log/containers has links to them.
LOGS = ("/var/log/pods", "/var/lib/docker", "/var/lib/containerd", "/run/containerd", "/var/lib/containers")
PODS_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
NODES_RULE = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
KUBE_STATE_METRICS_RULE = {
    "apiGroups": [""],
    "resources": ["nodes", "pods", "resourcequotas"],
    "verbs": ["list", "watch"],
}


def exporter(values: dict[str, Any]) -> Pod:
    return exporter_pod.pod(
        merged(merged(exporter_pod.WITHOUT_PRIVILEGES, {"state": {"volume": "emptyDir"}}), values)
    )


def own_pods(case: Case) -> list[Pod]:
    """The chart's pods, without the user's containers in workflows."""
    return [
        replace(pod, spec={**pod.spec, "containers": [c for c in pod.spec["containers"] if is_own(pod, c)]})
        for pod in pods(render(**case.arguments))
    ]


def is_own(pod: Pod, container: Mapping[str, Any]) -> bool:
    return pod.owner["kind"] != "WorkflowTemplate" or "gputally/gputally" in container["image"]


def failed(pod: Pod) -> set[str]:
    return {control.name for control in violations(pod)}


def head(preset: str) -> str:
    """The first comment of a preset."""
    lines = PRESETS[preset].read_text().splitlines()
    return "\n".join(lines[: next(n for n, line in enumerate(lines) if not line.startswith("#"))])


@every_preset
def test_a_preset_needs_exactly_its_documented_level(preset: str) -> None:
    documented = re.search(r"^# Pod Security: (\w+)\b", head(preset), re.MULTILINE)
    assert documented, "missing line `# Pod Security: LEVEL`"
    levels = [level(pod) for pod in pods(render(files=[PRESETS[preset]]))]
    assert documented[1] == max(levels, key=LEVELS.index)


@every_preset
def test_every_control_that_a_preset_fails_is_explained(preset: str) -> None:
    explained = DOCUMENT.read_text() + head(preset)
    for pod in pods(render(files=[PRESETS[preset]])):
        assert [name for name in failed(pod) if f"**{name}**" not in explained] == [], pod.title


def test_the_document_explains_existing_controls_only() -> None:
    named = {*re.findall(r"^\| \*\*(.+?)\*\*", DOCUMENT.read_text(), re.MULTILINE)}
    assert named <= {control.name for control in CONTROLS}


def test_without_privileges_the_exporter_is_restricted() -> None:
    assert failed(exporter({})) == set()


@pytest.mark.parametrize("privilege", CONTROLS_FAILED)
def test_a_privilege_fails_its_controls_only(privilege: str) -> None:
    values, controls = CONTROLS_FAILED[privilege]
    assert failed(exporter(values)) == controls


STEP = re.compile(r"^\| (\(minimal\)|`\S+=\S+`(?: `\S+=\S+`)*) \| (\w+) \| (.*?) \| .+ \|$", re.MULTILINE)


def with_settings(settings: list[str]) -> Pod:
    """The exporter's pod with the preset `minimal` and these settings of `helm --set`."""
    arguments = tuple(part for setting in settings for part in ("--set", setting))
    rendered = render(files=[PRESETS["minimal"]], arguments=arguments)
    (made,) = (pod for pod in pods(rendered) if pod.component == "exporter")
    return made


def test_each_step_of_the_document_fails_the_controls_that_it_names() -> None:
    steps = STEP.findall(DOCUMENT.read_text())
    assert len(steps) > 5
    settings: list[str] = []
    for values, documented, controls in steps:
        settings += re.findall(r"`(\S+?)`", values)
        made = with_settings(settings)
        assert level(made) == documented, settings
        assert failed(made) == {*filter(None, controls.split(", "))}, settings


def test_all_steps_but_the_last_three_are_the_default() -> None:
    steps = [values for values, _, _ in STEP.findall(DOCUMENT.read_text())]
    settings = [setting for values in steps[:-3] for setting in re.findall(r"`(\S+?)`", values)]
    made = with_settings([*settings, "kubernetes.enabled=false"])
    (default,) = (pod for pod in pods(render()) if pod.component == "exporter")
    assert made.spec == default.spec


@pytest.mark.parametrize("preset", ["", *PRESETS])
def test_no_default_and_no_preset_can_read_the_logs_of_pods(preset: str) -> None:
    """As user 0 the exporter could read every file of user 0 that is mounted."""
    for pod in pods(render(files=[PRESETS[preset]] if preset else [])):
        for volume in pod.spec.get("volumes", ()):
            path = PurePath(volume.get("hostPath", {}).get("path", "/none"))
            logs = [PurePath(one) for one in LOGS]
            assert not any(path.is_relative_to(one) or one.is_relative_to(path) for one in logs), path


@every_case
def test_all_pods_except_the_exporter_are_restricted(case: Case) -> None:
    for pod in own_pods(case):
        if pod.component != "exporter":
            assert violations(pod) == {}, pod.title


@every_case
def test_every_container_has_only_the_privileges_of_its_values(case: Case) -> None:
    privileges = case.given.get("privileges", {})
    given = {"gputally": privileges.get("capabilities", []), "accounting": ["SYS_ADMIN"]}
    for pod in own_pods(case):
        exporter = pod.component == "exporter"
        for container in pod.containers:
            where = f"{pod.title}: {container['name']}"
            context = {**pod.spec.get("securityContext", {}), **container["securityContext"]}
            assert context["readOnlyRootFilesystem"] is True, where
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}, where
            if exporter and privileges.get("privileged"):
                assert context["privileged"] is True, where
                continue
            added = given[container["name"]] if exporter else []
            assert context["capabilities"] == {"drop": ["ALL"], **({"add": added} if added else {})}, where
            assert context["allowPrivilegeEscalation"] is False, where
            assert not context.get("privileged"), where


@every_case
def test_only_clients_of_the_api_have_a_token(case: Case) -> None:
    api_clients = {"prometheus", "kube-state-metrics"}
    if case.given.get("kubernetes", {}).get("enabled"):
        api_clients.add("exporter")
    for pod in pods(render(**case.arguments)):
        # Argo reports through the account of a workflow's pods.
        if pod.owner["kind"] != "WorkflowTemplate":
            assert pod.spec["automountServiceAccountToken"] is (pod.component in api_clients), pod.title
    for account in objects("ServiceAccount", **case.arguments):
        assert account["automountServiceAccountToken"] is False


@every_case
def test_roles_grant_only_the_documented_permissions(case: Case) -> None:
    kubernetes = case.given.get("kubernetes", {})
    documented = {
        ("ClusterRole", "exporter"): [PODS_RULE, *([NODES_RULE] if kubernetes.get("nodeLabels") else [])],
        ("Role", "prometheus"): [PODS_RULE],
        ("ClusterRole", "kube-state-metrics"): [KUBE_STATE_METRICS_RULE],
    }
    roles = {
        (made["kind"], made["metadata"]["labels"]["app.kubernetes.io/component"]): made["rules"]
        for made in render(**case.arguments)
        if made["kind"] in {"ClusterRole", "Role"}
    }
    assert roles == {role: documented[role] for role in roles}
    asked = kubernetes.get("enabled") and case.given.get("exporter", {}).get("enabled", True)
    given = bool(asked and case.given.get("rbac", {}).get("create", True))
    assert (("ClusterRole", "exporter") in roles) == given


def test_the_document_lists_the_exporters_permissions() -> None:
    (block,) = re.findall(r"^kind: ClusterRole\n(.*?)^---$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(block)["rules"] == [PODS_RULE, NODES_RULE]


@every_case
def test_the_constraints_allow_exactly_what_the_exporter_uses(case: Case) -> None:
    rendered = render(**case.arguments)
    found = [pod for pod in pods(rendered) if pod.owner["kind"] == "DaemonSet"]
    for constraints in objects("SecurityContextConstraints", **case.arguments):
        (pod,) = found
        contexts = [pod.spec.get("securityContext", {}), *(c["securityContext"] for c in pod.containers)]
        assert constraints["allowHostPID"] == pod.spec.get("hostPID", False)
        assert constraints["allowHostDirVolumePlugin"] == ("HostPath Volumes" in failed(pod))
        assert constraints["allowPrivilegedContainer"] == any(c.get("privileged") for c in contexts)
        for never in ("allowHostIPC", "allowHostNetwork", "allowHostPorts"):
            assert constraints[never] is False
        kinds = {key for volume in pod.spec.get("volumes", ()) for key in volume if key != "name"}
        assert kinds <= {*constraints["volumes"]}
        assert ("hostPath" in constraints["volumes"]) == ("hostPath" in kinds)
        added = {name for c in contexts for name in c.get("capabilities", {}).get("add", ())}
        assert {*(constraints["allowedCapabilities"] or ())} == added
        account = (
            f"system:serviceaccount:{pod.owner['metadata']['namespace']}:{pod.spec['serviceAccountName']}"
        )
        assert constraints["users"] == [account]
        assert not constraints.get("groups")


@every_case
def test_only_the_stress_test_requests_a_gpu(case: Case) -> None:
    for pod in pods(render(**case.arguments)):
        for container in pod.containers:
            asked = {*container.get("resources", {}).get("limits", {})}
            if pod.owner["kind"] != "WorkflowTemplate":
                assert asked <= {"cpu", "memory"}, pod.title
