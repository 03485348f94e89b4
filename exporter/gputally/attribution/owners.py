"""Finds the owners of the processes on GPUs, sample by sample."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputally.attribution import FoundOwner, OwnerFinder, PodName
from gputally.attribution.limits import PROCESSES
from gputally.attribution.pod_processes import PodProcesses
from gputally.attribution.procfs import (
    ProcessFacts,
    read_process,
    read_start_time,
    read_trust,
    sees_host,
)
from gputally.attribution.resolve import (
    PodIndex,
    count_uses,
    ended_pids,
    find_holders,
    idle_pods,
    list_pods,
    list_residents,
    listed_pids,
    resolve_owner,
)
from gputally.devices.vendors import VENDORS
from gputally.model import DeviceKey, Owner, PodInfo, Reading, Resident, Unknown, Use

_EXITED = Unknown("exited")
_BEYOND = Unknown("limit")
_ELSEWHERE = Unknown("pid_namespace")
_PROXIES = tuple(vendor.proxy_process for vendor in VENDORS if vendor.proxy_process)
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessOwners:
    """Finds owners in /proc, and remembers them while the process exists.

    A process is its pid and its start time: a pid that the kernel reused is looked up again.
    """

    def __init__(self, procfs: Path, *, nested: bool = False) -> None:
        """`nested`: see `cgroup.Trust`."""
        self._procfs = procfs
        self._trust = read_trust(procfs, nested=nested)
        self._pod_processes = PodProcesses(procfs, trust=self._trust)
        self._known: dict[int, tuple[ProcessFacts, FoundOwner]] = {}

    def find(self, listed: Iterable[int], pods: PodIndex, ended: Iterable[int] = ()) -> dict[int, FoundOwner]:
        """The owners of these processes. Processes that are not in the arguments are forgotten."""
        listed = tuple(listed)
        known: dict[int, tuple[ProcessFacts, FoundOwner]] = {}
        found: dict[int, FoundOwner] = {}
        for pid in dict.fromkeys((*listed, *ended)):
            if len(found) >= PROCESSES:
                found[pid] = FoundOwner(_BEYOND)
                continue
            process = self._look_up(pid)
            if isinstance(process, Unknown):
                found[pid] = FoundOwner(process)
                continue
            facts, before = process
            owner = resolve_owner(facts.owner, facts.name, pods)
            # An owner that was known stays, also when the kubelet has cleaned up after the pod.
            if isinstance(owner, Unknown) and isinstance(before.owner, Owner):
                owner = before.owner
            found[pid] = replace(before, owner=owner)
            known[pid] = facts, FoundOwner(owner, before.started_at_seconds, named_proxy=before.named_proxy)
        self._known = known
        if all(found[pid].owner == _EXITED for pid in listed) and not sees_host(self._procfs, listed):
            return dict.fromkeys(found, FoundOwner(_ELSEWHERE))
        return found

    def ended_pods(self, uids: frozenset[str]) -> frozenset[str]:
        return self._pod_processes.ended(uids)

    def _look_up(self, pid: int) -> tuple[ProcessFacts, FoundOwner] | Unknown:
        before = self._known.get(pid)
        if before is not None:
            started = read_start_time(self._procfs, pid)
            if started is None or started == before[0].start_time_ticks:
                return before  # it has ended since the driver listed it, or still runs: the same process
        facts = read_process(self._procfs, pid, self._trust)
        if isinstance(facts, Unknown):
            return facts
        booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        started_at = round(booted_at + facts.start_time_ticks / _TICKS, 2)
        former = before[1].owner if before else None
        named_proxy = facts.name.startswith(_PROXIES)
        return facts, FoundOwner(Unknown("unknown_pod"), started_at, True, former, named_proxy)


@dataclass(frozen=True, slots=True)
class Attribution:
    """Processes, holders and pods on the GPUs at one moment."""

    residents: tuple[Resident, ...] = ()
    holders: tuple[tuple[DeviceKey, Owner], ...] = ()
    uses: tuple[Use, ...] = ()
    pods: tuple[PodInfo, ...] = ()
    processes: int = 0
    """The number of pids that were looked up."""
    left_out: int = 0
    """The number of pids that were not."""
    other_pid_namespace: bool = False
    """Whether none of the driver's pids is visible to the exporter."""


class Attributor:
    """Attributes one set of readings after another, and remembers pods that have exited."""

    def __init__(self, owners: OwnerFinder) -> None:
        self._owners = owners
        self._sampled_at_seconds: float | None = None
        self._pods: dict[PodName, PodInfo] = {}

    def attribute(self, readings: Sequence[Reading], pods: PodIndex) -> Attribution:
        since, self._sampled_at_seconds = self._sampled_at_seconds, time.time()
        found = self._owners.find(listed_pids(readings), pods, ended_pids(readings))
        residents = list_residents(readings, found, since_seconds=since)
        holders = find_holders(readings, pods, self._owners.ended_pods(idle_pods(pods, residents)))
        uses = count_uses(readings, residents, holders)
        return Attribution(
            residents,
            holders,
            uses,
            list_pods(uses, pods),
            processes=len(found),
            left_out=sum(one.owner is _BEYOND for one in found.values()),
            other_pid_namespace=any(one.owner is _ELSEWHERE for one in found.values()),
        )

    def with_exited(self, pods: Iterable[PodInfo], charged: Iterable[Owner]) -> tuple[PodInfo, ...]:
        """The pods, and those that have exited but are still charged in the ledger, as they last were."""
        present = {(pod.namespace, pod.pod): pod for pod in pods}
        known = {**self._pods, **present}
        self._pods = {
            (owner.namespace, owner.pod): known.get((owner.namespace, owner.pod))
            or PodInfo(owner.namespace, owner.pod, owner.pod_uid)
            for owner in charged
            if owner.kind == "pod"
        } | present
        return tuple(self._pods.values())
