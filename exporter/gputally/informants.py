"""Who knows the owners of processes, and the pods of this node. Each is imported only when it is wanted."""

# ruff: noqa: PLC0415

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gputally.attribution import KnowledgeSource
from gputally.attribution.owners import Owners
from gputally.config import Config
from gputally.devices import Reader
from gputally.flags import ConfigError
from gputally.sampling.collect import OwnerFinder
from gputally.simulator import SimulatedReader

_KUBELET = Path("/var/lib/kubelet")


def choose_owners(config: Config, readers: Sequence[Reader]) -> tuple[OwnerFinder, list[KnowledgeSource]]:
    """Who finds owners, and what they can know of pods. Simulated processes are not those of this host."""
    reader = readers[0]
    if not isinstance(reader, SimulatedReader):
        return _owners(config), choose_informants(config)
    from gputally.simulator.owners import SimulatedOwners, SimulatedPods

    return SimulatedOwners(reader), [SimulatedPods(reader)]


def _owners(config: Config) -> OwnerFinder:
    if not config.sidecar:
        return Owners(config.procfs)
    from gputally.attribution.sidecar import SidecarOwners, is_host

    if is_host(config.procfs):
        raise ConfigError(
            f"--sidecar is for a pod with processes of its own: {config.procfs} has the host's (hostPID)"
        )
    return SidecarOwners(config.procfs)


def choose_informants(
    config: Config, environment: Mapping[str, str] = os.environ, kubelet: Path = _KUBELET
) -> list[KnowledgeSource]:
    """Best first: the API server knows most, the names of log folders are always there.

    On a host that has nothing of Kubernetes, sources that are missing are not missed.
    """
    if not config.pods:
        return []
    expected = "KUBERNETES_SERVICE_HOST" in environment or kubelet.exists()
    sources: list[KnowledgeSource] = []
    # A kubelet that hangs gets a little less than the whole time, so that it is named and not overrun.
    if config.kubernetes:
        sources.append(_kubernetes(config))
    if config.sidecar:
        return [*sources, _own_pod(config, environment)]
    if config.kubelet_pods_socket.exists():  # Kubernetes 1.37 and newer: elsewhere it is not missed
        from gputally.attribution.kubelet_pods import KubeletPods
        from gputally.attribution.kubernetes_facts import Allowed

        allowed = Allowed(config.pod_labels, config.pod_annotations)
        sources.append(KubeletPods(config.kubelet_pods_socket, config.timeout_seconds * 0.8, allowed))
    logs, socket = config.pod_logs, config.pod_resources_socket
    if logs is not None and (expected or logs.exists() or config.container_logs.exists()):
        from gputally.attribution.pod_logs import PodLogs

        sources.append(PodLogs(logs, config.container_logs))
    if socket is not None and (expected or socket.exists()):
        from gputally.attribution.pod_resources import PodResources

        sources.append(PodResources(socket, config.timeout_seconds * 0.8))
    if "POD_NAME" in environment or "GPUTALLY_POD_NAME" in environment:
        sources.append(_own_pod(config, environment))
    return sources


def _own_pod(config: Config, environment: Mapping[str, str]) -> KnowledgeSource:
    from gputally.attribution.own_pod import OwnPod

    return OwnPod(environment, pod_labels=config.pod_labels)


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
