"""Each control of the Pod Security Standards finds its own violation and no other."""

from copy import deepcopy
from typing import Any

import pytest

from tests.bundle.chart import Pod
from tests.bundle.pod_security import CONTROLS, level, violations

CONTAINER = {
    "name": "a",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SPEC = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [CONTAINER],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}
VIOLATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("HostProcess", "privileged", {"securityContext": {"windowsOptions": {"hostProcess": True}}}),
    ("Host Namespaces", "privileged", {"hostPID": True}),
    ("Privileged Containers", "privileged", {"container": {"securityContext": {"privileged": True}}}),
    (
        "Capabilities",
        "privileged",
        {"container": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}},
    ),
    ("HostPath Volumes", "privileged", {"volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]}),
    ("Host Ports", "privileged", {"container": {"ports": [{"containerPort": 1, "hostPort": 1}]}}),
    (
        "Host Probes / Lifecycle Hooks",
        "privileged",
        {"container": {"livenessProbe": {"httpGet": {"host": "metadata.example", "port": 80}}}},
    ),
    ("AppArmor", "privileged", {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ("SELinux", "privileged", {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    ("/proc Mount Type", "privileged", {"container": {"securityContext": {"procMount": "Unmasked"}}}),
    ("Seccomp", "privileged", {"container": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}),
    ("Sysctls", "privileged", {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
    ("Volume Types", "baseline", {"volumes": [{"name": "share", "nfs": {"server": "a", "path": "/"}}]}),
    (
        "Privilege Escalation",
        "baseline",
        {"container": {"securityContext": {"allowPrivilegeEscalation": True}}},
    ),
    ("Running as Non-root", "baseline", {"container": {"securityContext": {"runAsNonRoot": False}}}),
    ("Running as Non-root user", "baseline", {"container": {"securityContext": {"runAsUser": 0}}}),
    ("Seccomp", "baseline", {"securityContext": {"seccompProfile": None}}),
    ("Capabilities", "baseline", {"container": {"securityContext": {"capabilities": {"add": ["CHOWN"]}}}}),
    ("Capabilities", "baseline", {"container": {"securityContext": {"capabilities": {"drop": ["KILL"]}}}}),
]


def pod(changes: dict[str, Any]) -> Pod:
    spec: dict[str, Any] = deepcopy(SPEC)
    merge(spec["containers"][0], changes.get("container", {}))
    merge(spec, {key: value for key, value in changes.items() if key != "container"})
    return Pod({"kind": "Pod", "metadata": {"name": "a"}}, {}, spec)


def merge(into: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if value is None:
            del into[key]
        elif isinstance(value, dict) and key in into:
            merge(into[key], value)
        else:
            into[key] = value


def test_a_pod_without_privileges_is_restricted() -> None:
    assert violations(pod({})) == {}
    assert level(pod({})) == "restricted"


@pytest.mark.parametrize(("control", "reached", "changes"), VIOLATIONS)
def test_a_pod_with_one_privilege_fails_its_control(
    control: str, reached: str, changes: dict[str, Any]
) -> None:
    violating = pod(changes)
    failed = {found.name for found in violations(violating)}
    # hostPath is not allowed at the level restricted either.
    assert failed - {"Volume Types"} == {control} - {"Volume Types"}
    assert level(violating) == reached


def test_an_init_container_counts() -> None:
    violating = pod({"initContainers": [{"name": "first"}]})
    assert {found.name for found in violations(violating)} == {"Privilege Escalation", "Capabilities"}


def test_every_control_is_tested() -> None:
    assert {control.name for control in CONTROLS} == {name for name, _, _ in VIOLATIONS}
