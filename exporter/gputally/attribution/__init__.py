"""From a pid to its `Owner`. Reads no hardware.

`procfs` and `cgroup` identify a process's pod by UID and its container by id. The pod sources report the
pods of this node: their names, containers and labels, and the GPUs that the kubelet allocated to them.
`pod_sources` lists them; each is optional, is read guarded like a GPU reader, and has its own
`gputally_source_up`. `resolve` joins both and is pure; `owners` does it for every sample.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gputally.model import Owner, PodInfo, Unknown

if TYPE_CHECKING:
    from gputally.attribution.resolve import PodIndex

PodName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device that the kubelet allocated to one container, under the device plugin's own id."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_id: str
    claim: str = ""
    """The ResourceClaim, if a DRA driver allocated the device: several pods may share one."""
    first_listed: int = field(default=0, compare=False)
    """The number of the kubelet's list that had it first; 0 may be older than the exporter."""


@dataclass(frozen=True, slots=True)
class PodReport:
    """The pods of this node, as one pod source reports them at one moment."""

    pods: tuple[PodInfo, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    unallocated: frozenset[PodName] = frozenset()
    """Pods to which the kubelet allocated no GPU. A pod that it does not list is in neither field."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """The allowed labels of the node itself."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is beyond the limits: kind of object -> number."""
    stale: tuple[str, str] | None = None
    """Reason and fix, if the report is no longer updated: then the source is down."""


class PodSource(Protocol):
    """Reports pods. `name` is the `source` label."""

    name: str

    def read(self) -> PodReport:
        """Raises Unavailable(reason, fix). May block: it is guarded."""
        ...

    def close(self) -> None:
        """Closes sockets and threads."""
        ...


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """The owner of a process, as its cgroup path identifies it: by UID and id, not by name."""

    kind: str
    """pod, or the kind of an `Owner` on the host."""
    pod_uid: str = ""
    container_id: str = ""
    name: str = ""
    """Of an owner that is not a pod, without the kind: 42 for slurm/42, ollama.service for a service."""
    slurm_job: str = ""
    slurm_step: str = ""
    user: str = ""
    own_pod: bool = False
    """The path is relative to the exporter's own pod, which only the pod source `own_pod` can identify."""


@dataclass(frozen=True, slots=True)
class FoundOwner:
    """The owner of one pid."""

    owner: Owner | Unknown
    started_at_seconds: float | None = None
    new: bool = False
    """Whether the process was not there at the last sample."""
    former: Owner | Unknown | None = None
    """The owner of the process that had this pid at the last sample, if that was another process."""
    named_proxy: bool = False
    """Whether it has the name of the vendor's process that runs the work of others."""


class OwnerFinder(Protocol):
    """Finds the owners of processes."""

    def find(
        self, listed: Iterable[int], pods: "PodIndex", ended: Iterable[int] = ()
    ) -> dict[int, FoundOwner]:
        """The owners of the processes that the driver lists, and of those that have ended."""
        ...

    def ended_pods(self, uids: frozenset[str]) -> frozenset[str]:
        """Those of these pods that have no process any more; none where that cannot be seen."""
        ...


# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")


def is_namespace(text: str) -> bool:
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_pod(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


is_container = is_namespace


def parse_pod_uid(text: str) -> str | None:
    """A pod's UID as the API writes it, from any spelling of it; None if it is not a UID.

    The UID of a static pod is the MD5 hash of its configuration: 32 hexadecimal digits.
    """
    uid = text.lower().replace("_", "-")
    return uid if _UID.fullmatch(uid) else None
