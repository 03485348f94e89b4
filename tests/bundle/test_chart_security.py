"""What the chart's pods may do: no more than a value says, and no preset more than it claims."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.bundle import exporter_pod
from tests.bundle.chart import PRESETS, Pod, merged, objects, pods, render
from tests.bundle.chart_combinations import CASES, Case
from tests.bundle.pod_security import CONTROLS, LEVELS, against, level
from tools import ROOT

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_preset = pytest.mark.parametrize("preset", PRESETS)

DOCUMENT = ROOT / "docs" / "privileges.md"
# Of the standard, what a privilege costs; with all of them off, the exporter is restricted.
NODE_FOLDER = {"HostPath Volumes", "Volume Types"}
USER_0 = {"Running as Non-root", "Running as Non-root user"}
PRICES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "hostPID": ({"privileges": {"hostPID": True}}, {"Host Namespaces"}),
    "podLogs": ({"privileges": {"podLogs": True}}, NODE_FOLDER),
    "podResources": ({"privileges": {"podResources": True}}, NODE_FOLDER | USER_0),
    "kubeletPods": ({"privileges": {"kubeletPods": True}}, NODE_FOLDER | USER_0),
    "accounting": ({"privileges": {"accounting": True}}, {"Capabilities", *USER_0}),
    "capabilities": ({"privileges": {"capabilities": ["SYS_PTRACE"]}}, {"Capabilities", *USER_0}),
    "privileged": (
        {"privileges": {"privileged": True}},
        {"Privileged Containers", "Privilege Escalation", "Capabilities", *USER_0},
    ),
    "seLinuxType": ({"privileges": {"seLinuxType": "spc_t"}}, {"SELinux"}),
    "supplementalGroups": ({"privileges": {"supplementalGroups": [0]}}, set()),
    "a driver of the host": ({"driver": {"hostPath": "/home/kubernetes/bin/nvidia"}}, NODE_FOLDER),
    "a state of the host": ({"state": {"volume": "hostPath"}}, NODE_FOLDER | USER_0),
    "the API": ({"kubernetes": {"enabled": True}}, set()),
}
PODS_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
NODES_RULE = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}


def exporter(values: dict[str, Any]) -> Pod:
    return exporter_pod.pod(
        merged(merged(exporter_pod.WITHOUT_PRIVILEGES, {"state": {"volume": "emptyDir"}}), values)
    )


def own_pods(case: Case) -> list[Pod]:
    """The chart's pods, without the containers that a workflow gets from whoever runs it."""
    return [
        replace(pod, spec={**pod.spec, "containers": [c for c in pod.spec["containers"] if is_own(pod, c)]})
        for pod in pods(render(**case.arguments))
    ]


def is_own(pod: Pod, container: Mapping[str, Any]) -> bool:
    return pod.owner["kind"] != "WorkflowTemplate" or "gputally/gputally" in container["image"]


def failed(pod: Pod) -> set[str]:
    return {control.name for control in against(pod)}


def head(preset: str) -> str:
    """The comment with which a preset begins."""
    lines = PRESETS[preset].read_text().splitlines()
    return "\n".join(lines[: next(n for n, line in enumerate(lines) if not line.startswith("#"))])


@every_preset
def test_a_preset_is_exactly_as_restricted_as_it_says(preset: str) -> None:
    said = re.search(r"^# Pod Security: (\w+)\b", head(preset), re.MULTILINE)
    assert said, "the head of a preset says `# Pod Security: restricted`, or baseline, or privileged, and why"
    levels = [level(pod) for pod in pods(render(files=[PRESETS[preset]]))]
    assert said[1] == max(levels, key=LEVELS.index)


@every_preset
def test_a_preset_that_is_not_restricted_explains_every_control_that_it_fails(preset: str) -> None:
    explained = DOCUMENT.read_text() + head(preset)
    for pod in pods(render(files=[PRESETS[preset]])):
        assert [name for name in failed(pod) if f"**{name}**" not in explained] == [], pod.title


def test_the_document_explains_no_control_that_is_none() -> None:
    named = {*re.findall(r"^\| \*\*(.+?)\*\*", DOCUMENT.read_text(), re.MULTILINE)}
    assert named <= {control.name for control in CONTROLS}


def test_without_privileges_the_exporter_is_restricted() -> None:
    assert failed(exporter({})) == set()


@pytest.mark.parametrize("privilege", PRICES)
def test_a_privilege_costs_what_it_must_and_no_more(privilege: str) -> None:
    values, price = PRICES[privilege]
    assert failed(exporter(values)) == price


@every_case
def test_all_but_the_exporter_is_restricted(case: Case) -> None:
    for pod in own_pods(case):
        if pod.component != "exporter":
            assert against(pod) == {}, pod.title


@every_case
def test_every_container_is_held_as_tightly_as_its_values_allow(case: Case) -> None:
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
def test_only_what_asks_the_api_has_a_token_for_it(case: Case) -> None:
    asks_the_api = {"prometheus"}
    if case.given.get("kubernetes", {}).get("enabled"):
        asks_the_api.add("exporter")
    for pod in pods(render(**case.arguments)):
        # Argo reports through the account of a workflow's pods.
        if pod.owner["kind"] != "WorkflowTemplate":
            assert pod.spec["automountServiceAccountToken"] is (pod.component in asks_the_api), pod.title
    for account in objects("ServiceAccount", **case.arguments):
        assert account["automountServiceAccountToken"] is False


@every_case
def test_nobody_may_do_more_in_the_api_than_is_written_down(case: Case) -> None:
    kubernetes = case.given.get("kubernetes", {})
    written = {
        ("ClusterRole", "exporter"): [PODS_RULE, *([NODES_RULE] if kubernetes.get("nodeLabels") else [])],
        ("Role", "prometheus"): [PODS_RULE],
    }
    roles = {
        (made["kind"], made["metadata"]["labels"]["app.kubernetes.io/component"]): made["rules"]
        for made in render(**case.arguments)
        if made["kind"] in {"ClusterRole", "Role"}
    }
    assert roles == {role: written[role] for role in roles}
    asked = kubernetes.get("enabled") and case.given.get("exporter", {}).get("enabled", True)
    given = bool(asked and case.given.get("rbac", {}).get("create", True))
    assert (("ClusterRole", "exporter") in roles) == given


def test_the_document_has_the_exporters_permissions() -> None:
    (block,) = re.findall(r"^kind: ClusterRole\n(.*?)^---$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(block)["rules"] == [PODS_RULE, NODES_RULE]


@every_case
def test_openshift_is_asked_for_exactly_what_the_exporter_uses(case: Case) -> None:
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
def test_no_pod_asks_for_a_gpu_of_its_own_but_the_stress_test(case: Case) -> None:
    for pod in pods(render(**case.arguments)):
        for container in pod.containers:
            asked = {*container.get("resources", {}).get("limits", {})}
            if pod.owner["kind"] != "WorkflowTemplate":
                assert asked <= {"cpu", "memory"}, pod.title
