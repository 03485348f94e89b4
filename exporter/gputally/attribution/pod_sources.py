"""The pod sources: one row each. To add one, write its module and add its row here.

A source's module is imported only if the source is used.
"""

# ruff: noqa: PLC0415

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gputally.attribution import PodSource

_KUBELET = Path("/var/lib/kubelet")


class PodSettings(Protocol):
    """The settings that pod sources depend on."""

    @property
    def pods(self) -> bool: ...
    @property
    def sidecar(self) -> bool: ...
    @property
    def kubernetes(self) -> bool: ...
    @property
    def node_name(self) -> str: ...
    @property
    def pod_labels(self) -> tuple[str, ...]: ...
    @property
    def pod_annotations(self) -> tuple[str, ...]: ...
    @property
    def node_labels(self) -> tuple[str, ...]: ...
    @property
    def pod_logs(self) -> Path | None: ...
    @property
    def container_logs(self) -> Path: ...
    @property
    def pod_resources_socket(self) -> Path | None: ...
    @property
    def kubelet_pods_socket(self) -> Path: ...
    @property
    def timeout_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings, and the facts about this host that decide which sources to use."""

    settings: PodSettings
    variables: Mapping[str, str]
    on_node: bool
    """Whether this is a Kubernetes node: only there is a missing source reported as down."""

    @property
    def call_seconds(self) -> float:
        """Less than the sample's timeout, so that a hanging kubelet is reported by name."""
        return self.settings.timeout_seconds * 0.8


@dataclass(frozen=True, slots=True)
class PodSourceRow:
    """One pod source: how it is named and built."""

    name: str
    """The `source` label."""
    provides: str
    """What is missing without it."""
    chart_values: str
    """The values of the Helm chart that enable it."""
    build: Callable[[Environment], PodSource | None]
    """None if it is not used here. Raises ValueError for settings that do not fit."""


def _kubernetes(here: Environment) -> PodSource | None:
    settings = here.settings
    if not settings.kubernetes:
        return None
    if not settings.node_name:
        raise ValueError("--kubernetes needs --node-name (in a pod: NODE_NAME from the downward API)")
    from gputally.attribution.kubernetes import Kubernetes

    return Kubernetes(
        settings.node_name,
        pod_labels=settings.pod_labels,
        pod_annotations=settings.pod_annotations,
        node_labels=settings.node_labels,
    )


def _kubelet_pods(here: Environment) -> PodSource | None:
    settings = here.settings
    # Only Kubernetes 1.37 and newer have it: elsewhere it is not reported as down.
    if settings.sidecar or not settings.kubelet_pods_socket.exists():
        return None
    from gputally.attribution.kubelet_pods import KubeletPods
    from gputally.attribution.kubernetes_pod import AllowedLabels

    allowed = AllowedLabels(settings.pod_labels, settings.pod_annotations)
    return KubeletPods(settings.kubelet_pods_socket, here.call_seconds, allowed)


def _pod_logs(here: Environment) -> PodSource | None:
    pods, containers = here.settings.pod_logs, here.settings.container_logs
    if here.settings.sidecar or pods is None:
        return None
    if not (here.on_node or pods.exists() or containers.exists()):
        return None
    from gputally.attribution.pod_logs import PodLogs

    return PodLogs(pods, containers)


def _pod_resources(here: Environment) -> PodSource | None:
    socket = here.settings.pod_resources_socket
    if here.settings.sidecar or socket is None or not (here.on_node or socket.exists()):
        return None
    from gputally.attribution.pod_resources import PodResources

    return PodResources(socket, here.call_seconds)


def _own_pod(here: Environment) -> PodSource | None:
    named = "POD_NAME" in here.variables or "GPUTALLY_POD_NAME" in here.variables
    if not (here.settings.sidecar or named):
        return None
    from gputally.attribution.own_pod import OwnPod

    return OwnPod(here.variables, pod_labels=here.settings.pod_labels)


POD_SOURCES = (
    PodSourceRow(
        "kubernetes",
        "labels, workloads and requests of pods",
        "kubernetes.enabled=true and rbac.create=true, which permit to list and watch pods",
        _kubernetes,
    ),
    PodSourceRow(
        "kubelet_pods",
        "labels, workloads and requests of pods",
        "privileges.kubeletPods=true, on Kubernetes 1.37 and newer",
        _kubelet_pods,
    ),
    PodSourceRow(
        "pod_logs",
        "names of pods",
        "privileges.podLogs=true; privileges.seLinuxType if SELinux is enforced",
        _pod_logs,
    ),
    PodSourceRow(
        "pod_resources",
        "the GPUs that are allocated to each pod",
        "privileges.podResources=true, which requires user 0",
        _pod_resources,
    ),
    PodSourceRow(
        "own_pod",
        "the name of the pod that the exporter itself runs in",
        "none: POD_NAME and POD_NAMESPACE from the downward API",
        _own_pod,
    ),
)
"""Best first: `resolve.index_pods` fills only what the earlier ones leave empty."""


def choose_pod_sources(
    settings: PodSettings, variables: Mapping[str, str] = os.environ, kubelet: Path = _KUBELET
) -> list[PodSource]:
    """The pod sources to use on this host, best first. Raises ValueError for settings that do not fit."""
    if not settings.pods:
        return []
    here = Environment(settings, variables, "KUBERNETES_SERVICE_HOST" in variables or kubelet.exists())
    return [source for row in POD_SOURCES if (source := row.build(here)) is not None]
