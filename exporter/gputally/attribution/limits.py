"""How much is taken in of what tenants, the kubelet and the API server control.

What is beyond is left out, counted in `gputally_source_field_errors{error="limit"}` and logged once; the rest
goes on. docs/privileges.md has the table, with the memory at the limits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputally.model import PodInfo

PODS = 2560
"""Per pod source. A kubelet runs 110 by default, OpenShift up to 2,500."""
CONTAINERS = 8192
"""Of all pods, per pod source."""
CONTAINERS_OF_POD = 256
ALLOCATIONS = 32_768
"""Devices, or replicas of devices, that the kubelet lists."""
PROCESSES = 4096
"""On all GPUs, per sample."""
LABELS_OF_POD = 32
LABEL_LENGTH = 256
"""An annotation may have 256 KiB."""
LABEL_CHARACTERS = 2 << 20
"""Of the labels of all pods, per pod source."""
LABEL_NAMES = 64
"""Of all pods: every name is a label of every series of gputally_pod_info."""


def take_pods(pods: Iterable[PodInfo]) -> tuple[tuple[PodInfo, ...], Counter[str]]:
    """The pods within the limits, and how many pods, containers and labels are left out."""
    taken: list[PodInfo] = []
    left_out: Counter[str] = Counter()
    containers = characters = 0
    for each in pods:
        pod = each
        if len(taken) == PODS:
            left_out["pods"] += 1
            continue
        count = max(len(pod.containers), len(pod.container_names))
        if count > CONTAINERS_OF_POD or containers + count > CONTAINERS:
            left_out["containers"] += count
            pod = replace(pod, containers={}, container_names=())
        else:
            containers += count
        length = sum(len(name) + len(value) for name, value in pod.labels)
        if characters + length > LABEL_CHARACTERS:
            left_out["pod_labels"] += len(pod.labels)
            pod = replace(pod, labels=())
        else:
            characters += length
        taken.append(pod)
    return tuple(taken), left_out


def limit_label_names(pods: Sequence[PodInfo]) -> tuple[tuple[PodInfo, ...], int]:
    """The pods with no more label names than that, and the number of names that are left out.

    Those that are allowed by their full names come first: tenants choose the others. Then those of the most
    namespaces; a namespace with many names of its own does not displace those of another.
    """
    full = {name for pod in pods for name, _ in pod.labels[: pod.full_name_labels]}
    namespaces: dict[str, set[str]] = defaultdict(set)
    names_in: dict[str, dict[str, None]] = defaultdict(dict)
    for pod in pods:
        for name, _ in pod.labels:
            namespaces[name].add(pod.namespace)
            names_in[pod.namespace][name] = None
    beyond = len(namespaces) - LABEL_NAMES
    if beyond <= 0:
        return tuple(pods), 0
    turn = {name: len(namespaces) for name in namespaces}
    for names in names_in.values():
        for place, name in enumerate(sorted(names)):
            turn[name] = min(turn[name], place)
    ranked = sorted(namespaces, key=lambda name: (name not in full, -len(namespaces[name]), turn[name], name))
    kept = frozenset(ranked[:LABEL_NAMES])
    return tuple(
        replace(pod, labels=tuple(label for label in pod.labels if label[0] in kept)) for pod in pods
    ), beyond
