"""Who knows the owners of processes, and the pods of this node. Each is imported only when it is wanted."""

# ruff: noqa: PLC0415

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gputally.attribution import KnowledgeSource
from gputally.attribution.owners import Owners
from gputally.collect import OwnerFinder
from gputally.config import Config, ConfigError
from gputally.devices import Reader
from gputally.devices.simulated import SimulatedReader

_KUBELET = Path("/var/lib/kubelet")


def choose_owners(config: Config, readers: Sequence[Reader]) -> tuple[OwnerFinder, list[KnowledgeSource]]:
    """Who finds owners, and what they can know of pods. Simulated processes are not those of this host."""
    reader = readers[0]
    if not isinstance(reader, SimulatedReader):
        return Owners(config.procfs), choose_informants(config)
    from gputally.attribution.simulated import SimulatedOwners, SimulatedPods

    return SimulatedOwners(reader), [SimulatedPods(reader)]


def choose_informants(
    config: Config, environment: Mapping[str, str] = os.environ, kubelet: Path = _KUBELET
) -> list[KnowledgeSource]:
    """Best first: the API server knows most, the names of log folders are always there.

    On a host that has nothing of Kubernetes, sources that are missing are not missed.
    """
    expected = "KUBERNETES_SERVICE_HOST" in environment or kubelet.exists()
    sources: list[KnowledgeSource] = []
    # A kubelet that hangs gets a little less than the whole time, so that it is named and not overrun.
    if config.kubernetes:
        sources.append(_kubernetes(config))
    if config.kubelet_pods_socket.exists():  # Kubernetes 1.37 and newer: elsewhere it is not missed
        from gputally.attribution.kubelet_pods import KubeletPods
        from gputally.attribution.kubernetes_facts import Allowed

        allowed = Allowed(config.pod_labels, config.pod_annotations)
        sources.append(KubeletPods(config.kubelet_pods_socket, config.timeout_seconds * 0.8, allowed))
    if expected or config.pod_logs.exists() or config.container_logs.exists():
        from gputally.attribution.pod_logs import PodLogs

        sources.append(PodLogs(config.pod_logs, config.container_logs))
    if expected or config.pod_resources_socket.exists():
        from gputally.attribution.pod_resources import PodResources

        sources.append(PodResources(config.pod_resources_socket, config.timeout_seconds * 0.8))
    if "POD_NAME" in environment or "GPUTALLY_POD_NAME" in environment:
        from gputally.attribution.own_pod import OwnPod

        sources.append(OwnPod(environment, pod_labels=config.pod_labels))
    return sources


def _kubernetes(config: Config) -> KnowledgeSource:
    if not config.node_name:
        raise ConfigError("--kubernetes needs --node-name (in a pod: NODE_NAME from the downward API)")
    from gputally.attribution.kubernetes import Kubernetes

    return Kubernetes(
        config.node_name,
        pod_labels=config.pod_labels,
        pod_annotations=config.pod_annotations,
        node_labels=config.node_labels,
    )
