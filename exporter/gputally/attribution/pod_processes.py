"""Which pods have no process any more, by the cgroups of all processes in /proc.

A pod that runs has at least its sandbox's process, and the kubelet keeps the sandbox between restarts of
containers. Without the host's pid namespace, with `hidepid`, or where cgroup paths have no pod UIDs, no pod
is ever reported as ended.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from gputally.attribution import CgroupOwner
from gputally.attribution.cgroup import OUTERMOST, Trust, parse_cgroup

_SCAN_EVERY_SECONDS = 15.0
# The kubelet replaces a sandbox that has died: until then the pod has no process.
_ENDED_AFTER_SECONDS = 30.0
_HOST_HAS_PODS = 2


class PodProcesses:
    """Reads all of /proc, but only while there are pods to look for, and only every few seconds."""

    def __init__(
        self, procfs: Path, clock: Callable[[], float] = time.monotonic, trust: Trust = OUTERMOST
    ) -> None:
        self._procfs = procfs
        self._trust = trust
        self._clock = clock
        self._scanned_at: float | None = None
        self._missing_since: dict[str, float] = {}

    def ended(self, uids: frozenset[str]) -> frozenset[str]:
        """Those of these pods that have had no process in any scan for a while."""
        now = self._clock()
        self._missing_since = {uid: since for uid, since in self._missing_since.items() if uid in uids}
        if uids and (self._scanned_at is None or now - self._scanned_at >= _SCAN_EVERY_SECONDS):
            self._scanned_at = now
            seen = visible_pods(self._procfs, self._trust)
            missing = frozenset() if seen is None else uids - seen
            self._missing_since = {uid: self._missing_since.get(uid, now) for uid in missing}
        return frozenset(
            uid
            for uid, since in self._missing_since.items()
            if self._scanned_at is not None and self._scanned_at - since >= _ENDED_AFTER_SECONDS
        )


def visible_pods(procfs: Path, trust: Trust = OUTERMOST) -> frozenset[str] | None:
    """The UIDs of the pods with a process; None if this is not the /proc of a host with pods."""
    try:
        if _cgroup(procfs, "1") is None:
            return None  # hidden
        pids = [name for name in os.listdir(procfs) if name.isdigit()]  # noqa: PTH208 - names, not paths
    except OSError:
        return None
    cgroups = {cgroup for pid in pids if (cgroup := _cgroup(procfs, pid))}
    owners = (parse_cgroup(cgroup.decode("utf-8", "replace"), trust) for cgroup in cgroups)
    found = {owner.pod_uid for owner in owners if isinstance(owner, CgroupOwner) and owner.pod_uid}
    # A sidecar sees one pod. A node has always others: its network, its device plugin.
    return frozenset(found) if len(found) >= _HOST_HAS_PODS else None


def _cgroup(procfs: Path, pid: str) -> bytes | None:
    try:
        return Path(procfs, pid, "cgroup").read_bytes()
    except OSError:
        return None  # it has ended, or may not be read
