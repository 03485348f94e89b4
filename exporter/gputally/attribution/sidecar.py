"""Whose the processes are that a sidecar sees: its own pod's, for no other's are in its /proc.

A process that the driver lists and that is not in this /proc stays unknown. On a shared GPU, or where the
sidecar was given all GPUs of the node, it may be anybody's.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gputally.attribution import Found, PodFacts
from gputally.attribution.join import Directory, Whose
from gputally.attribution.owners import Owners
from gputally.attribution.procfs import parse_stat
from gputally.model import Owner, Unknown

_FOUND_BUT_NAMELESS = ("unknown_pod", "unknown_container", "ambiguous_pod", "unreadable")


class SidecarOwners:
    """An `Owners` for a /proc that has one pod's processes and no other's."""

    def __init__(self, procfs: Path) -> None:
        self._owners = Owners(procfs)

    def find(
        self, listed: Iterable[int], directory: Directory, ended: Iterable[int] = ()
    ) -> dict[int, Found]:
        found = self._owners.find(listed, directory, ended)
        pod = directory.own
        if pod is None:
            return found
        return {pid: replace(one, owner=_named(one.owner, pod)) for pid, one in found.items()}


def _named(whose: Whose, pod: PodFacts) -> Whose:
    if isinstance(whose, Unknown):
        if whose.reason not in _FOUND_BUT_NAMELESS:
            return whose
    elif whose.kind == "pod":
        return whose
    return Owner(
        "pod",
        namespace=pod.namespace,
        pod=pod.pod,
        container=pod.container_names[0] if len(pod.container_names) == 1 else "",
        pod_uid=pod.uid,
        container_id=whose.container_id,
    )


def is_host(procfs: Path) -> bool:
    """Whether this /proc has the processes of the whole host: the kernel's own are seen nowhere else."""
    try:
        stat = parse_stat((procfs / "2/stat").read_bytes())
    except OSError:
        return False
    return stat is not None and stat.name == "kthreadd"
