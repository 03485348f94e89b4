"""Whose process is it: from a pid to its `Owner`. Reads no hardware.

`procfs` and `cgroup` say where a process lives (a pod's UID, a container's id). The other files are
sources of `Knowledge`: which pods are on this node, what they and their containers are called, and
which devices the kubelet gave them. Each is optional, is read guarded like a device reader, and has its
own `gputally_source_up`. `join` puts both together and is pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gputally.model import Owner, Unknown

Pod = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a source knows of one pod; empty or None is "does not know"."""

    namespace: str
    pod: str
    uid: str = ""
    """As in the cgroup path: for a static pod the hash of its configuration."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Container id (64 hex digits) -> container name, for those whose id is known."""
    container_names: tuple[str, ...] = ()
    node: str = ""
    workload: str = ""
    requests_gpu: bool | None = None
    """Whether its specification asks for a GPU of any kind."""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Holding:
    """One device that the kubelet gave to one container; `device_id` is what the device plugin calls it."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_id: str


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one source knows at one moment."""

    pods: tuple[PodFacts, ...] = ()
    holdings: tuple[Holding, ...] = ()
    given_none: frozenset[Pod] = frozenset()
    """Pods to which the kubelet gave no GPU. Of a pod that it does not list it says nothing."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """The node's own labels that may be shown."""
    stale: tuple[str, str] | None = None
    """Reason and fix, when it is not being renewed as it should be: then the source is not up."""


class KnowledgeSource(Protocol):
    """A source. `name` is the `source` label."""

    name: str

    def read(self) -> Knowledge:
        """Look once. Raises gputally.devices.Unavailable(reason, fix); may block: it is guarded."""
        ...

    def close(self) -> None:
        """Let go of sockets and threads."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process lives, as its cgroup says."""

    kind: str
    """pod, or the kind of an `Owner` of the host."""
    pod_uid: str = ""
    container_id: str = ""
    name: str = ""
    """For what is no pod: what it is called, without the kind (42 of slurm, ollama.service of service)."""
    slurm_job: str = ""
    slurm_step: str = ""
    user: str = ""
    own_pod: bool = False
    """The path is relative to the reader's own pod: which pod that is, only `own_pod` knows."""


@dataclass(frozen=True, slots=True)
class Found:
    """Whose a process is, as far as it could be found."""

    owner: Owner | Unknown
    started_at_seconds: float | None = None
    new: bool = False
    """Whether it was not known at the last look."""
    former: Owner | Unknown | None = None
    """Whose the process was that had this pid at the last look, when that was another one."""
