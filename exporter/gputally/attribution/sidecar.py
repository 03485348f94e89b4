"""A sidecar: finds the owners of its own pod's processes, and ends after the pod's other containers.

A sidecar's /proc has only the processes of its own pod. A process that the driver lists and that is not in
this /proc stays unknown: on a shared GPU, or with all GPUs of the node visible, it may belong to any pod.

With `shareProcessNamespace: true` the processes of all containers are in one /proc, each container's in a
cgroup of its own, and pid 1 is the pod's sandbox. Without it the sidecar cannot see the other containers, and
is stopped by SIGTERM: from Argo for its sidecars, from the kubelet for init containers with restartPolicy
Always.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from gputally.attribution import FoundOwner
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.procfs import parse_stat
from gputally.attribution.resolve import PodIndex
from gputally.model import Owner, PodInfo, Unknown

log = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
_SANDBOX = "1"
_FOUND_WITHOUT_NAME = ("unknown_pod", "unknown_container", "ambiguous_pod", "unreadable")


class SidecarOwners:
    """A `ProcessOwners` for a /proc that has only one pod's processes."""

    def __init__(self, procfs: Path) -> None:
        self._owners = ProcessOwners(procfs)

    def find(self, listed: Iterable[int], pods: PodIndex, ended: Iterable[int] = ()) -> dict[int, FoundOwner]:
        found = self._owners.find(listed, pods, ended)
        pod = pods.own
        if pod is None:
            return found
        return {pid: replace(one, owner=_in_pod(one.owner, pod)) for pid, one in found.items()}

    def ended_pods(self, uids: frozenset[str]) -> frozenset[str]:  # noqa: ARG002
        """None: the processes of other pods are not visible."""
        return frozenset()


def _in_pod(owner: Owner | Unknown, pod: PodInfo) -> Owner | Unknown:
    if isinstance(owner, Unknown):
        if owner.reason not in _FOUND_WITHOUT_NAME:
            return owner
    elif owner.kind == "pod":
        return owner
    return Owner(
        "pod",
        namespace=pod.namespace,
        pod=pod.pod,
        container=pod.container_names[0] if len(pod.container_names) == 1 else "",
        pod_uid=pod.pod_uid,
        container_id=owner.container_id,
    )


def is_host(procfs: Path) -> bool:
    """Whether this /proc has the processes of the whole host: only there are the kernel's own visible."""
    try:
        stat = parse_stat((procfs / "2/stat").read_bytes())
    except OSError:
        return False
    return stat is not None and stat.name == "kthreadd"


def sees_containers(procfs: Path) -> bool:
    """Whether the processes of the pod's other containers are in this /proc."""
    return _cgroup(procfs, _SANDBOX) not in ("", _cgroup(procfs, "self"))


def others_run(procfs: Path) -> bool:
    """Whether a process of another container runs; the sandbox does not count."""
    own = _cgroup(procfs, "self")
    pids = (entry.name for entry in procfs.iterdir() if entry.name.isdigit() and entry.name != _SANDBOX)
    return any(_cgroup(procfs, pid) not in ("", own) for pid in pids)


def watch_containers(
    procfs: Path, end: Callable[[], None], stop: threading.Event, every_seconds: float = WATCH_SECONDS
) -> None:
    """Calls `end` once no process runs any more in the other containers, after one did; until `stop`."""
    ran = False
    while not stop.is_set():
        run = others_run(procfs)
        if ran and not run:
            log.info("the other containers of this pod have ended")
            end()
            return
        ran = run
        stop.wait(every_seconds)


def start_watch(procfs: Path, end: Callable[[], None], stop: threading.Event) -> None:
    if not sees_containers(procfs):
        log.info("the pod has no shareProcessNamespace: this sidecar ends on SIGTERM only")
        return
    threading.Thread(target=watch_containers, args=(procfs, end, stop), daemon=True, name="sidecar").start()


def _cgroup(procfs: Path, pid: str) -> str:
    try:
        return (procfs / pid / "cgroup").read_text(errors="replace")
    except OSError:
        return ""
