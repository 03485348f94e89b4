"""Pods that do not run and missing volumes, as the kubelet and the controllers report them."""

from typing import Any

import pytest

from gputally.commands import FAILURE, OK
from tools.verification.workloads import not_created, pods, stateful_sets, volumes


def named(name: str, component: str = "grafana", **more: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    return {"metadata": {"name": name, "namespace": "gpu", "labels": labels}, **more}


def pod(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return named(name, status={"containerStatuses": [{"name": "main", "state": state, **more}]})


def event(name: str, reason: str, message: str) -> dict[str, Any]:
    return {"involvedObject": {"name": name}, "reason": reason, "message": message}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def test_stateful_sets() -> None:
    ready = named("a", "grafana", spec={"replicas": 1}, status={"readyReplicas": 1})
    not_yet = named("b", "prometheus", spec={"replicas": 1}, status={})
    assert [(one.subject, one.level) for one in stateful_sets([ready, not_yet])] == [
        ("grafana", OK),
        ("prometheus", FAILURE),
    ]


def test_pods_with_the_same_problem_share_a_line() -> None:
    (found,) = pods([pod(name, waiting("ErrImagePull", "x")) for name in ("c", "a", "b", "d")], [])
    assert (found.subject, found.text) == ("grafana", "a, b, c and 1 more: ErrImagePull: x")
    assert "imagePullSecrets" in found.fix


@pytest.mark.parametrize(
    ("ended", "said", "fix"),
    [
        (
            {"exitCode": 1, "message": "first\nlast line\n"},
            "last line",
            "kubectl logs --namespace gpu p -c main",
        ),
        ({"exitCode": 137, "reason": "OOMKilled"}, "out of memory", "more memory"),
        ({"exitCode": 3}, "exit code 3", "--previous"),
    ],
)
def test_a_container_that_restarts_repeatedly(ended: dict[str, Any], said: str, fix: str) -> None:
    (found,) = pods([pod("p", waiting("CrashLoopBackOff"), lastState={"terminated": ended})], [])
    assert found.text == f"p: restarts repeatedly: {said}"
    assert fix in found.fix


def test_a_missing_secret_has_the_message_of_the_kubelet() -> None:
    (found,) = pods([pod("p", waiting("CreateContainerConfigError", 'secret "s" not found'))], [])
    assert found.text == 'p: CreateContainerConfigError: secret "s" not found'


def test_a_container_in_creation_is_reported_only_with_a_failed_event() -> None:
    making = pod("p", waiting("ContainerCreating"))
    assert list(pods([making], [event("other", "FailedMount", "x")])) == []
    assert list(pods([making], [event("p", "Pulling", "x")])) == []
    (found,) = pods([making], [event("p", "FailedMount", 'secret "tls" not found')])
    assert found.text == 'p: secret "tls" not found'


def test_an_init_container_is_checked() -> None:
    stuck = named("p", status={"initContainerStatuses": [{"name": "i", "state": waiting("ErrImagePull")}]})
    (found,) = pods([stuck], [])
    assert found.text == "p: ErrImagePull"


def test_a_pod_that_is_not_scheduled() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    (found,) = pods([named("p", status={"conditions": [condition]})], [])
    assert found.text == "p: not scheduled: 0/3 nodes are available"


def test_running_pods_are_not_reported() -> None:
    assert list(pods([pod("p", {"running": {}})], [])) == []


def test_refused_pods() -> None:
    owner = named("gputally", "exporter")
    refused = event("gputally", "FailedCreate", 'pods "x" is forbidden: violates PodSecurity "restricted"')
    (found,) = not_created([event("other", "FailedCreate", "y"), refused], [owner], "gpu")
    assert found.subject == "exporter"
    assert found.fix.startswith("kubectl label namespace gpu pod-security.kubernetes.io/enforce=privileged")
    (found,) = not_created([event("gputally", "FailedCreate", "exceeded quota: q")], [owner], "gpu")
    assert (found.text, found.fix) == ("exceeded quota: q", "")


def claim(**spec: str) -> dict[str, Any]:
    return named("data-0", spec=spec, status={"phase": "Pending"})


def storage(name: str, *, usual: bool = False) -> dict[str, Any]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if usual else None
    return {"metadata": {"name": name, "annotations": annotations}}


def test_bound_volumes_are_not_reported() -> None:
    assert list(volumes([named("data-0", spec={}, status={"phase": "Bound"})], [])) == []


def test_without_a_default_storage_class_the_others_are_named() -> None:
    (found,) = volumes([claim()], [storage("fast"), storage("slow")])
    assert "no default one" in found.text
    assert "one of fast, slow" in found.fix
    assert "the cluster has none" in next(volumes([claim()], [])).fix


def test_a_pending_volume_with_a_class() -> None:
    (found,) = volumes([claim(storageClassName="fast")], [storage("fast")])
    assert "still pending" in found.text
    (found,) = volumes([claim()], [storage("fast", usual=True)])
    assert "still pending" in found.text
