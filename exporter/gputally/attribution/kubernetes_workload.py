"""Pod object -> the topmost thing that made it, as Kind/name. Pure, and asks for no permission beyond pods.

The pod's controller is often not the topmost owner: a Deployment makes ReplicaSets, a CronJob makes Jobs.
What is above the controller is told from the names and labels which the controllers themselves set
(https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/). Where these do not
settle it, the controller itself is named: never a guess.
"""

import re
from datetime import UTC, datetime, timedelta

from gputally.attribution.kubernetes_json import mapping, sequence, text

# label of the pod -> kind of its topmost owner, and the kinds of controller under which that holds (the
# empty one is "no controller"). An operator sets it on what it makes; under another controller the same
# label was merely copied along with a template.
_OWNER_IN_LABEL = (
    ("workflows.argoproj.io/workflow", "Workflow", ("Workflow", "Pod", "Job", "")),
    ("ray.io/cluster", "RayCluster", ("RayCluster",)),
    ("sparkoperator.k8s.io/app-name", "SparkApplication", ("SparkApplication", "Pod", "")),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet", ("Job",)),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet", ("StatefulSet",)),
    ("serving.kserve.io/inferenceservice", "InferenceService", ("ReplicaSet", "StatefulSet")),
)
# label with the hash that ends a ReplicaSet's name -> kind of what made the ReplicaSet
_HASH_LABELS = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))
# The CronJob controller ends a Job's name with the scheduled time, in minutes since 1970.
_SCHEDULED_JOB = re.compile(r"(?P<name>.+)-(?P<minutes>[0-9]{8})", re.ASCII)
_SCHEDULE_SKEW = timedelta(hours=1)
_LONGEST_JOB = timedelta(days=366)


def workload(pod: object) -> str:
    """The topmost owner of a pod as Kind/name; empty when the pod has no name."""
    metadata = mapping(mapping(pod).get("metadata"))
    name = text(metadata.get("name"))
    labels = mapping(metadata.get("labels"))
    kind, owner, group = _controller(metadata)
    for label, owner_kind, controllers in _OWNER_IN_LABEL:
        named = text(labels.get(label))
        if named and kind in controllers:
            return f"{owner_kind}/{named}"
    match kind:
        case "" | "Node":  # the node owns the mirror of a static pod, which is nobody's but its own
            kind, owner = "Pod", name
        case "ReplicaSet":
            kind, owner = _above_replica_set(owner, labels)
        case "Job" if group == "batch":
            kind, owner = _above_job(owner, labels, text(metadata.get("creationTimestamp")))
        case "StatefulSet" if labels.get("notebook-name") == owner:
            kind = "Notebook"
        case "ReplicationController":
            config = text(mapping(metadata.get("annotations")).get("openshift.io/deployment-config.name"))
            kind, owner = ("DeploymentConfig", config) if config else (kind, owner)
    return f"{kind}/{owner}" if owner else ""


def _controller(metadata: dict[str, object]) -> tuple[str, str, str]:
    """Kind, name and API group of the owner that manages the pod."""
    for reference in sequence(metadata.get("ownerReferences")):
        owner = mapping(reference)
        kind, name = text(owner.get("kind")), text(owner.get("name"))
        if owner.get("controller") is True and kind and name:
            group, _, version = text(owner.get("apiVersion")).partition("/")
            return kind, name, group if version else ""
    return "", "", ""


def _above_replica_set(name: str, labels: dict[str, object]) -> tuple[str, str]:
    for label, kind in _HASH_LABELS:
        suffix = f"-{text(labels.get(label))}"
        if suffix != "-" and name.endswith(suffix) and name != suffix:
            return kind, name.removesuffix(suffix)
    return "ReplicaSet", name


def _above_job(name: str, labels: dict[str, object], created: str) -> tuple[str, str]:
    # The launcher of an MPIJob is a Job of its own, called after it.
    mpi_job = text(labels.get("training.kubeflow.org/job-name"))
    if mpi_job and name == f"{mpi_job}-launcher":
        return "MPIJob", mpi_job
    scheduled = _SCHEDULED_JOB.fullmatch(name)
    if scheduled and _is_schedule_of(int(scheduled["minutes"]), created):
        return "CronJob", scheduled["name"]
    return "Job", name


def _is_schedule_of(minutes: int, created: str) -> bool:
    """Whether the pod was made at that time or after it: train-20261116 has a date, not a schedule."""
    try:
        made_at = datetime.fromisoformat(created)
        age = made_at - datetime.fromtimestamp(minutes * 60, UTC)
    except (ValueError, TypeError, OverflowError):  # no time, or none with a time zone
        return False
    return -_SCHEDULE_SKEW <= age <= _LONGEST_JOB
