"""The workload of a pod: its topmost owner, from the pod object alone."""

from typing import Any

import pytest

from gputally.attribution.kubernetes_pod import workload


def owned(
    kind: str,
    name: str,
    api_version: str = "apps/v1",
    *,
    labels: dict[str, str] | None = None,
    created: str = "2026-11-16T06:00:04Z",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team-a",
            "name": "the-pod",
            "creationTimestamp": created,
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": [
                {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}
            ],
        }
    }


def test_a_bare_pod_is_its_own_workload() -> None:
    assert workload({"metadata": {"namespace": "team-a", "name": "notebook"}}) == "Pod/notebook"


def test_a_pod_of_a_deployment() -> None:
    pod = owned("ReplicaSet", "vllm-6d4b75cb6d", labels={"pod-template-hash": "6d4b75cb6d"})
    assert workload(pod) == "Deployment/vllm"


def test_a_deployment_may_have_dashes_and_digits_in_its_name() -> None:
    pod = owned("ReplicaSet", "llama-3-70b-7c9f", labels={"pod-template-hash": "7c9f"})
    assert workload(pod) == "Deployment/llama-3-70b"


@pytest.mark.parametrize("labels", [{}, {"pod-template-hash": "other"}, {"pod-template-hash": ""}])
def test_a_replica_set_without_a_pod_template_hash_is_its_own_workload(labels: dict[str, str]) -> None:
    assert workload(owned("ReplicaSet", "vllm-6d4b75cb6d", labels=labels)) == "ReplicaSet/vllm-6d4b75cb6d"


def test_a_pod_of_an_argo_rollout() -> None:
    pod = owned("ReplicaSet", "api-db465c966", labels={"rollouts-pod-template-hash": "db465c966"})
    assert workload(pod) == "Rollout/api"


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_stateful_sets_and_daemon_sets_are_the_topmost_owner(kind: str) -> None:
    assert workload(owned(kind, "db")) == f"{kind}/db"


def test_a_pod_of_a_job() -> None:
    assert workload(owned("Job", "finetune", "batch/v1")) == "Job/finetune"


def test_a_pod_of_a_cron_job_whose_job_is_named_by_the_minute() -> None:
    # 29,860,200 minutes after 1970 is 2026-10-10T06:00Z
    pod = owned("Job", "nightly-eval-29860200", "batch/v1", created="2026-10-10T06:00:03Z")
    assert workload(pod) == "CronJob/nightly-eval"


@pytest.mark.parametrize(
    ("name", "created"),
    [
        ("train-20261116", "2026-11-16T06:00:04Z"),  # a date
        ("nightly-29860200", "2026-10-09T06:00:03Z"),  # scheduled a day after it was made
        ("nightly-29860200", "2029-10-10T06:00:03Z"),
        ("nightly-29860200", ""),
        ("nightly-29860200", "2026-10-10T06:00:03"),  # no time zone
        (
            "nightly-1791612000",
            "2026-10-10T06:00:03Z",
        ),  # seconds: scripts that start Jobs do that
        ("29860200", "2026-10-10T06:00:03Z"),
    ],
)
def test_a_job_with_other_digits_is_a_job(name: str, created: str) -> None:
    assert workload(owned("Job", name, "batch/v1", created=created)) == f"Job/{name}"


def test_a_job_of_another_api_group_does_not_belong_to_a_cron_job() -> None:
    pod = owned("Job", "gang-29860200", "batch.volcano.sh/v1alpha1", created="2026-10-10T06:00:03Z")
    assert workload(pod) == "Job/gang-29860200"


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("PyTorchJob", "kubeflow.org/v1"),
        ("MPIJob", "kubeflow.org/v2beta1"),
        ("RayCluster", "ray.io/v1"),
        ("Workflow", "argoproj.io/v1alpha1"),
        ("SomethingNew", "example.com/v1"),
    ],
)
def test_an_operator_that_creates_pods_is_the_owner(kind: str, api_version: str) -> None:
    assert workload(owned(kind, "run-1", api_version)) == f"{kind}/run-1"


@pytest.mark.parametrize(
    ("labels", "kind", "name", "owner"),
    [
        ({"workflows.argoproj.io/workflow": "etl-x2x"}, "Workflow", "etl-x2x", "Workflow/etl-x2x"),
        ({"workflows.argoproj.io/workflow": "etl-x2x"}, "Job", "etl-step", "Workflow/etl-x2x"),
        ({"ray.io/cluster": "rc"}, "RayCluster", "rc", "RayCluster/rc"),
        ({"jobset.sigs.k8s.io/jobset-name": "llm"}, "Job", "llm-workers-0", "JobSet/llm"),
        ({"leaderworkerset.sigs.k8s.io/name": "vllm"}, "StatefulSet", "vllm-0", "LeaderWorkerSet/vllm"),
        ({"serving.kserve.io/inferenceservice": "bert"}, "ReplicaSet", "bert-1-9f", "InferenceService/bert"),
        ({"sparkoperator.k8s.io/app-name": "etl"}, "Pod", "etl-driver", "SparkApplication/etl"),
        ({"training.kubeflow.org/job-name": "nccl"}, "Job", "nccl-launcher", "MPIJob/nccl"),
        ({"notebook-name": "eva"}, "StatefulSet", "eva", "Notebook/eva"),
    ],
)
def test_an_operator_above_the_controller_is_found_by_its_label(
    labels: dict[str, str], kind: str, name: str, owner: str
) -> None:
    assert workload(owned(kind, name, "batch/v1", labels=labels)) == owner


@pytest.mark.parametrize(
    ("labels", "kind", "name"),
    [
        ({"notebook-name": "eva"}, "StatefulSet", "adam"),
        ({"jobset.sigs.k8s.io/jobset-name": "llm"}, "DaemonSet", "copied"),
        ({"training.kubeflow.org/job-name": "nccl"}, "Job", "other"),
    ],
)
def test_a_copied_label_changes_nothing(labels: dict[str, str], kind: str, name: str) -> None:
    assert workload(owned(kind, name, "batch/v1", labels=labels)) == f"{kind}/{name}"


def test_an_argo_pod_without_an_owner_is_found_by_its_label() -> None:
    pod = {"metadata": {"name": "etl-1", "labels": {"workflows.argoproj.io/workflow": "etl"}}}
    assert workload(pod) == "Workflow/etl"


def test_an_openshift_deployment_config_owns_the_replication_controller() -> None:
    pod = owned(
        "ReplicationController", "web-3", "v1", annotations={"openshift.io/deployment-config.name": "web"}
    )
    assert workload(pod) == "DeploymentConfig/web"
    assert workload(owned("ReplicationController", "web", "v1")) == "ReplicationController/web"


def test_an_owner_that_is_not_the_controller_does_not_count() -> None:
    pod = owned("ReplicaSet", "x")
    pod["metadata"]["ownerReferences"][0]["controller"] = False
    assert workload(pod) == "Pod/the-pod"
