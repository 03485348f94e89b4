"""Pod object, as the API server's JSON has it -> `PodFacts`. Pure; never raises, whatever the JSON.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputally.attribution import PodFacts
from gputally.attribution.device_ids import of_vendor_gpus
from gputally.attribution.kubernetes_json import mapping, sequence, text
from gputally.attribution.kubernetes_workload import workload

_OTHER_GPU_RESOURCES = (
    "gpu.intel.com/",
    "aliyun.com/gpu",
    "k8s.amazonaws.com/vgpu",
    "tencent.com/vcuda",
    "volcano.sh/gpu",
    "volcano.sh/vgpu",
)
_NO_QUANTITY = re.compile(r"[+-]?0*(\.0*)?([eE][+-]?[0-9]+|[A-Za-z]*)", re.ASCII)
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_STATIC_POD_UID = re.compile(r"[0-9a-f-]{32,36}", re.ASCII)

# So that one pod cannot fill the memory or the scrape: an annotation may have 256 KiB.
_MAX_LABELS = 32
_MAX_LABEL_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Allowed:
    """Names of pod labels and annotations that may be shown; a name that ends in * is a prefix."""

    labels: Sequence[str] = ()
    annotations: Sequence[str] = ()


def pod_facts(pod: object, allowed: Allowed) -> PodFacts | None:
    """What a pod object says; None when it does not even say which pod it is."""
    metadata = mapping(mapping(pod).get("metadata"))
    spec = mapping(mapping(pod).get("spec"))
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    if not namespace or not name:
        return None
    return PodFacts(
        namespace=namespace,
        pod=name,
        uid=_uid_in_cgroup(metadata),
        containers=dict(_container_ids(mapping(mapping(pod).get("status")))),
        container_names=_container_names(spec),
        node=text(spec.get("nodeName")),
        workload=workload(pod),
        requests_gpu=_requests_gpu(spec) if spec else None,
        labels=allowed_labels(pod, allowed),
    )


def allowed_labels(item: object, allowed: Allowed) -> tuple[tuple[str, str], ...]:
    """The labels and annotations of a pod, or of a node, that may be shown."""
    return tuple(_allowed(mapping(mapping(item).get("metadata")), allowed))


def _uid_in_cgroup(metadata: dict[str, object]) -> str:
    """A static pod lives under the hash of its configuration; its mirror in the API has a UID of its own."""
    annotations = mapping(metadata.get("annotations"))
    # The hash alone proves nothing: it stays behind in a manifest that was copied from a static pod.
    static = text(annotations.get("kubernetes.io/config.mirror"))
    if not static and annotations.get("kubernetes.io/config.source") in ("file", "http"):
        static = text(annotations.get("kubernetes.io/config.hash"))
    return static if _STATIC_POD_UID.fullmatch(static) else text(metadata.get("uid"))


def _container_ids(status: dict[str, object]) -> Iterator[tuple[str, str]]:
    for statuses in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for entry in sequence(status.get(statuses)):
            container = mapping(entry)
            name = text(container.get("name"))
            # The container before the last restart: its processes may still be dying.
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
    # Which device a claim is for, only the claim says; that a pod without any GPU has one is rare.
    if sequence(spec.get("resourceClaims")):
        return True
    for container in _containers(spec):
        resources = mapping(container.get("resources"))
        for amounts in (mapping(resources.get("limits")), mapping(resources.get("requests"))):
            if any(_is_gpu(name) and _is_some(amount) for name, amount in amounts.items()):
                return True
    return False


def _is_gpu(resource: str) -> bool:
    return of_vendor_gpus(resource) or resource.startswith(_OTHER_GPU_RESOURCES)


def _is_some(quantity: object) -> bool:
    """Charts often ask for zero GPUs: that is no request."""
    return _NO_QUANTITY.fullmatch(str(quantity).strip()) is None


def _allowed(metadata: dict[str, object], allowed: Allowed) -> Iterator[tuple[str, str]]:
    """Sorted by name; a label goes before an annotation of the same name."""
    chosen = dict(_matching(mapping(metadata.get("annotations")), allowed.annotations))
    chosen.update(_matching(mapping(metadata.get("labels")), allowed.labels))
    for name in sorted(chosen)[:_MAX_LABELS]:
        value = chosen[name]
        yield name, value if len(value) <= _MAX_LABEL_LENGTH else value[: _MAX_LABEL_LENGTH - 1] + "…"


def _matching(values: dict[str, object], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    exact = {name for name in names if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    for name, value in values.items():
        if isinstance(value, str) and (name in exact or name.startswith(prefixes)):
            yield name, value
