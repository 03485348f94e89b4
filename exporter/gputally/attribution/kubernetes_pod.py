"""A pod object, in the API server's JSON -> `PodInfo`. Pure; never raises, whatever the JSON.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/

A pod's workload is its topmost owner. The pod's controller is often not the topmost one: a Deployment creates
ReplicaSets, a CronJob creates Jobs. The owner above the controller follows from the names and labels that the
controllers themselves set, without any permission beyond pods
(https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/). If these do not
identify it, the controller itself is the workload: never a guess.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gputally.attribution.device_ids import of_vendor_gpus
from gputally.attribution.limits import LABEL_LENGTH, LABELS_OF_POD
from gputally.model import PodInfo

_OTHER_GPU_RESOURCES = (
    "aliyun.com/gpu",
    "k8s.amazonaws.com/vgpu",
    "tencent.com/vcuda",
    "volcano.sh/gpu",
    "volcano.sh/vgpu",
)
_NO_QUANTITY = re.compile(r"[+-]?0*(\.0*)?([eE][+-]?[0-9]+|[A-Za-z]*)", re.ASCII)
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_STATIC_POD_UID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)

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


@dataclass(frozen=True, slots=True)
class AllowedLabels:
    """Names of the labels and annotations to export; a name that ends in * is a prefix."""

    labels: Sequence[str] = ()
    annotations: Sequence[str] = ()

    @property
    def full_names(self) -> frozenset[str]:
        """Those without a wildcard; no label has an asterisk in its name."""
        return frozenset((*self.labels, *self.annotations))


def pod_info(pod: object, allowed: AllowedLabels) -> PodInfo | None:
    """The pod; None if the object has no namespace or no name."""
    metadata = mapping(mapping(pod).get("metadata"))
    spec = mapping(mapping(pod).get("spec"))
    status = mapping(mapping(pod).get("status"))
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    if not namespace or not name:
        return None
    labels, full = allowed_labels(pod, allowed), allowed.full_names
    return PodInfo(
        namespace=namespace,
        pod=name,
        pod_uid=_uid_in_cgroup(metadata),
        containers=dict(_container_ids(status)),
        container_names=_container_names(spec),
        node=text(spec.get("nodeName")),
        workload=workload(pod),
        requested=_requests_gpu(spec) if spec else None,
        labels=labels,
        full_name_labels=sum(label in full for label, _ in labels),
        phase=text(status.get("phase")),
        started_at_seconds=_seconds(text(status.get("startTime"))),
        claim_requests=tuple(sorted(set(_claim_requests(spec, status)))),
    )


def allowed_labels(item: object, allowed: AllowedLabels) -> tuple[tuple[str, str], ...]:
    """The allowed labels and annotations of a pod or a node."""
    return tuple(_allowed(mapping(mapping(item).get("metadata")), allowed))


def _uid_in_cgroup(metadata: dict[str, object]) -> str:
    """The cgroup of a static pod has the hash of its configuration; its mirror in the API has another UID."""
    annotations = mapping(metadata.get("annotations"))
    # The hash alone proves nothing: a manifest that was copied from a static pod has it too.
    static = text(annotations.get("kubernetes.io/config.mirror"))
    if not static and annotations.get("kubernetes.io/config.source") in ("file", "http"):
        static = text(annotations.get("kubernetes.io/config.hash"))
    return static if _STATIC_POD_UID.fullmatch(static) else text(metadata.get("uid"))


def _container_ids(status: dict[str, object]) -> Iterator[tuple[str, str]]:
    for statuses in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for entry in sequence(status.get(statuses)):
            container = mapping(entry)
            name = text(container.get("name"))
            # The container before the last restart: its processes may not have ended yet.
            former = mapping(mapping(container.get("lastState")).get("terminated"))
            for uri in (former.get("containerID"), container.get("containerID")):
                _, _, container_id = text(uri).partition("://")
                if name and _CONTAINER_ID.fullmatch(container_id):
                    yield container_id, name


def _containers(spec: dict[str, object]) -> Iterator[dict[str, object]]:
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from map(mapping, sequence(spec.get(field)))


def _container_names(spec: dict[str, object]) -> tuple[str, ...]:
    return tuple(name for container in _containers(spec) if (name := text(container.get("name"))))


def _requests_gpu(spec: dict[str, object]) -> bool:
    # The pod does not name the claimed device; a claim for a device other than a GPU is rare.
    if sequence(spec.get("resourceClaims")):
        return True
    for container in _containers(spec):
        resources = mapping(container.get("resources"))
        for amounts in (mapping(resources.get("limits")), mapping(resources.get("requests"))):
            if any(_is_gpu(name) and _is_some(amount) for name, amount in amounts.items()):
                return True
    return False


def _claim_requests(spec: dict[str, object], status: dict[str, object]) -> Iterator[tuple[str, str]]:
    """ResourceClaim and request, for each container that names a request.

    A claim has another name in the pod; for one that was created from a template only the status has it.
    """
    claims = {}
    for entry in (*sequence(spec.get("resourceClaims")), *sequence(status.get("resourceClaimStatuses"))):
        claim = mapping(entry)
        if text(claim.get("resourceClaimName")):
            claims[text(claim.get("name"))] = text(claim.get("resourceClaimName"))
    for container in _containers(spec):
        for entry in sequence(mapping(container.get("resources")).get("claims")):
            name, request = text(mapping(entry).get("name")), text(mapping(entry).get("request"))
            if request and name in claims:
                yield claims[name], request


def _is_gpu(resource: str) -> bool:
    return of_vendor_gpus(resource) or resource.startswith(_OTHER_GPU_RESOURCES)


def _is_some(quantity: object) -> bool:
    """Charts often request zero GPUs: that is not a request."""
    return _NO_QUANTITY.fullmatch(str(quantity).strip()) is None


def _allowed(metadata: dict[str, object], allowed: AllowedLabels) -> Iterator[tuple[str, str]]:
    """First those that are allowed by their full names, which a pod's author cannot displace with others.

    A label takes precedence over an annotation of the same name.
    """
    chosen = dict(_matching(mapping(metadata.get("annotations")), allowed.annotations))
    chosen.update(_matching(mapping(metadata.get("labels")), allowed.labels))
    full = allowed.full_names
    for name in sorted(chosen, key=lambda name: (name not in full, name))[:LABELS_OF_POD]:
        value = chosen[name]
        yield name, value if len(value) <= LABEL_LENGTH else value[: LABEL_LENGTH - 1] + "…"


def _matching(values: dict[str, object], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    exact = {name for name in names if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    for name, value in values.items():
        if isinstance(value, str) and (name in exact or name.startswith(prefixes)):
            yield name, value


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
        case "" | "Node":  # the node owns the mirror of a static pod, which has no other owner
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


def _seconds(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _is_schedule_of(minutes: int, created: str) -> bool:
    """Whether the pod was made at that time or after it: train-20261116 has a date, not a schedule."""
    try:
        made_at = datetime.fromisoformat(created)
        age = made_at - datetime.fromtimestamp(minutes * 60, UTC)
    except (ValueError, TypeError, OverflowError):  # no time, or none with a time zone
        return False
    return -_SCHEDULE_SKEW <= age <= _LONGEST_JOB


def mapping(value: object) -> dict[str, object]:
    """The value if it is a JSON object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""
