"""Whose the simulated processes are, and which simulated pods hold a GPU: what the scenario says.

They take the place of this host's processes and pods, which have nothing to do with simulated GPUs.
"""

from collections.abc import Iterable
from random import Random
from uuid import UUID

from gputally.attribution import Allocation, FoundOwner, PodReport
from gputally.attribution.resolve import PodIndex
from gputally.devices.vendors import vendor_of
from gputally.model import Owner, PodInfo, Unknown
from gputally.simulator import SimulatedReader
from gputally.simulator.ownership import HostOwner, PodOwner
from gputally.simulator.workload_processes import DRIVER_BUFFER_SECONDS, FIRST_PID, WorkloadRun

_MPS_SERVICE = Owner("service", "service/nvidia-mps.service")
_AHEAD_SECONDS = 5
"""A cluster knows its pods a little before they run."""


class SimulatedOwners:
    """Names the owners of simulated processes, also of those that have just ended."""

    def __init__(self, reader: SimulatedReader) -> None:
        self._reader = reader

    def find(
        self,
        listed: Iterable[int],
        pods: PodIndex,  # noqa: ARG002  # the scenario has the names
        ended: Iterable[int] = (),
    ) -> dict[int, FoundOwner]:
        running = {pid: run for run in _recent_runs(self._reader) for pid in run.pids}
        return {pid: self._whose(pid, running.get(pid)) for pid in dict.fromkeys((*listed, *ended))}

    def ended_pods(self, uids: frozenset[str]) -> frozenset[str]:  # noqa: ARG002
        """None: simulated pods hold a GPU only while they run."""
        return frozenset()

    def _whose(self, pid: int, run: WorkloadRun | None) -> FoundOwner:
        if pid < FIRST_PID:
            return FoundOwner(_MPS_SERVICE, self._reader.began_at)
        if run is None:
            return FoundOwner(Unknown("exited"))
        owner = _owner(run, self._reader.engine.scenario.seed)
        return FoundOwner(owner, self._reader.began_at + run.began)


class SimulatedPods:
    """The pods of the scenario, as a cluster would list them, and the devices that they were given."""

    name = "simulated_pods"

    def __init__(self, reader: SimulatedReader) -> None:
        self._reader = reader

    def read(self) -> PodReport:
        self._reader.answer(self.name)
        seed = self._reader.engine.scenario.seed
        pods: dict[tuple[str, str], PodInfo] = {}
        for run in _recent_runs(self._reader):
            owner = _numbered_owner(run)
            if isinstance(owner, PodOwner):
                key = (owner.namespace, owner.pod)
                pods[key] = _pod_info(owner, seed, pods.get(key))
        now = int(self._reader.elapsed_seconds)
        held = [(run, _numbered_owner(run)) for run in self._reader.engine.runs(now, now + 1)]
        allocations = (
            Allocation(
                owner.namespace,
                owner.pod,
                owner.container,
                f"{vendor_of(run.vendor).domain}/gpu",
                run.device_uuid,
            )
            for run, owner in held
            if isinstance(owner, PodOwner) and owner.requested
        )
        return PodReport(tuple(pods.values()), tuple(dict.fromkeys(allocations)))

    def close(self) -> None:
        """There is nothing to release."""


def _recent_runs(reader: SimulatedReader) -> list[WorkloadRun]:
    """The present runs, and those that ended so recently that the driver may still report them."""
    now = int(reader.elapsed_seconds)
    return list(reader.engine.runs(max(0, now - 2 * DRIVER_BUFFER_SECONDS), now + _AHEAD_SECONDS))


def _numbered_owner(run: WorkloadRun) -> PodOwner | HostOwner | None:
    owner = run.workload.owner
    return None if owner is None else owner.of_run(run.number)


def _owner(run: WorkloadRun, seed: int) -> Owner | Unknown:
    owner = _numbered_owner(run)
    if owner is None:
        return Unknown("unknown_container")
    if isinstance(owner, HostOwner):
        job = owner.name if owner.kind == "slurm" else ""
        return Owner(owner.kind, f"{owner.kind}/{owner.name}", slurm_job=job)
    return Owner(
        "pod",
        namespace=owner.namespace,
        pod=owner.pod,
        container=owner.container,
        pod_uid=_pod_uid(owner, seed),
    )


def _pod_info(owner: PodOwner, seed: int, before: PodInfo | None) -> PodInfo:
    """The pod; what an earlier workload said of it (another container of it, say) stays."""
    if before is None:
        before = PodInfo(owner.namespace, owner.pod)
    return PodInfo(
        owner.namespace,
        owner.pod,
        _pod_uid(owner, seed),
        container_names=tuple(dict.fromkeys((*before.container_names, owner.container))),
        workload=before.workload or owner.controller,
        requested=before.requested or owner.requested,
    )


def _pod_uid(owner: PodOwner, seed: int) -> str:
    rng = Random(f"{seed}:{owner.namespace}/{owner.pod}")  # noqa: S311  # repeatable, not a secret
    return str(UUID(int=rng.getrandbits(128), version=4))
