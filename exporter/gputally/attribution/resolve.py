"""Joins readings, processes and pods: pure functions, no clock, no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gputally.attribution import Allocation, CgroupOwner, FoundOwner, PodName, PodReport
from gputally.attribution.device_ids import is_replica, match_device
from gputally.attribution.mps import charge_clients
from gputally.devices.vendors import vendor_of
from gputally.model import (
    AccountedProcess,
    DeviceKey,
    Owner,
    PodInfo,
    Process,
    ProcessSample,
    Reading,
    Resident,
    Unknown,
    Use,
)

ENDED = "ended"
"""The kind of a process that the driver no longer lists."""
_EXITED = FoundOwner(Unknown("exited"))
_RUN_PODS = ("pod", "docker", "containerd")
_TERMINAL_PHASES = ("Succeeded", "Failed")
_START_TIME_SLACK_SECONDS = 2.0
"""The greatest difference to expect between the kernel's and the driver's clock."""


@dataclass(frozen=True, slots=True)
class PodIndex:
    """The pods of this node, as all pod sources together report them."""

    by_uid: Mapping[str, PodInfo]
    by_container: Mapping[str, tuple[PodInfo, str]]
    by_name: Mapping[PodName, PodInfo]
    own: PodInfo | None
    """The pod that the exporter itself runs in."""
    allocations: tuple[Allocation, ...]
    unallocated: frozenset[PodName]
    node_labels: tuple[tuple[str, str], ...]


def index_pods(reports: Mapping[str, PodReport]) -> PodIndex:
    """`reports` are by source, best first: a later one only fills what the earlier ones leave empty."""
    by_uid: dict[str, PodInfo] = {}
    without_uid: list[PodInfo] = []
    for report in reports.values():
        for reported in report.pods:
            # A phase that is not updated may have changed, unless it is final.
            outdated = report.stale and reported.phase not in _TERMINAL_PHASES
            pod = replace(reported, phase="") if outdated else reported
            if not pod.pod_uid:
                without_uid.append(pod)
            elif pod.pod_uid in by_uid:
                by_uid[pod.pod_uid] = _filled_up(by_uid[pod.pod_uid], pod)
            else:
                by_uid[pod.pod_uid] = pod
    pods = [*by_uid.values(), *without_uid]
    allocations = (allocation for report in reports.values() for allocation in report.allocations)
    own = reports.get("own_pod")
    return PodIndex(
        by_uid=by_uid,
        by_container={cid: (pod, name) for pod in pods for cid, name in pod.containers.items()},
        by_name={(pod.namespace, pod.pod): pod for pod in pods},
        own=own.pods[0] if own and own.pods else None,
        allocations=tuple(dict.fromkeys(allocations)),
        unallocated=frozenset().union(*(report.unallocated for report in reports.values())),
        node_labels=next((report.node_labels for report in reports.values() if report.node_labels), ()),
    )


def _filled_up(pod: PodInfo, other: PodInfo) -> PodInfo:
    return replace(
        pod,
        containers={**other.containers, **pod.containers},
        container_names=pod.container_names or other.container_names,
        node=pod.node or other.node,
        workload=pod.workload or other.workload,
        requested=other.requested if pod.requested is None else pod.requested,
        labels=(pod if pod.labels else other).labels,
        full_name_labels=(pod if pod.labels else other).full_name_labels,
        phase=pod.phase or other.phase,
        started_at_seconds=other.started_at_seconds
        if pod.started_at_seconds is None
        else pod.started_at_seconds,
        claim_requests=pod.claim_requests or other.claim_requests,
    )


def resolve_owner(found: CgroupOwner, process_name: str, pods: PodIndex) -> Owner | Unknown:
    """The owner that the cgroup identifies, with its names."""
    pod, container = None, ""
    # Docker runs pods too (cri-dockerd), and from another cgroup namespace the pod is not visible.
    if found.kind in _RUN_PODS:
        pod, container = pods.by_container.get(found.container_id, (None, ""))
    if found.kind != "pod" and not found.own_pod and pod is None:
        return Owner(
            found.kind,
            f"{found.kind}/{found.name or process_name}",
            container_id=found.container_id,
            slurm_job=found.slurm_job,
            slurm_step=found.slurm_step,
            user=found.user,
        )
    if found.pod_uid:
        # The UID decides: a container id is only trusted to name a container of that very pod.
        if pod is not None and pod.pod_uid and pod.pod_uid != found.pod_uid:
            container = ""
        pod = pods.by_uid.get(found.pod_uid) or (pod if pod is not None and not pod.pod_uid else None)
        if pod is None:
            return Unknown("unknown_pod", found.pod_uid, found.container_id)
    elif pod is None and found.own_pod:
        pod = pods.own
    if pod is None:
        return Unknown("unknown_container", "", found.container_id)
    # A pod's only container is the one, unless container ids are known and this one is not among them:
    # then it has just started.
    if not container and len(pod.container_names) == 1 and not (found.container_id and pod.containers):
        container = pod.container_names[0]
    return Owner(
        "pod",
        namespace=pod.namespace,
        pod=pod.pod,
        container=container,
        pod_uid=found.pod_uid or pod.pod_uid,
        container_id=found.container_id,
    )


def listed_pids(readings: Sequence[Reading]) -> list[int]:
    """The processes that the driver lists now, each once."""
    listed = (
        process.pid
        for reading in readings
        for some in (reading.processes, *(mig.processes for mig in reading.mig))
        for process in some or ()
    )
    return list(dict.fromkeys(listed))


def ended_pids(readings: Sequence[Reading]) -> list[int]:
    """The processes that have samples or an accounting record, but are no longer listed."""
    reported = (
        one.pid
        for reading in readings
        for some in (reading.process_samples, reading.accounted)
        for one in some or ()
    )
    listed = set(listed_pids(readings))
    return [pid for pid in dict.fromkeys(reported) if pid not in listed]


def list_residents(
    readings: Sequence[Reading], found: Mapping[int, FoundOwner], *, since_seconds: float | None = None
) -> tuple[Resident, ...]:
    """Every process on every device since the last sample, taken at `since_seconds`, with its owner."""
    every: list[Resident] = []
    for reading in readings:
        residents: list[Resident] = []
        sampled: set[int] = set()
        for device, process, samples in _processes(reading):
            sampled.add(process.pid)
            residents += _residents(device, process, samples, found.get(process.pid, _EXITED))
        device = (reading.gpu.index, reading.gpu.uuid)
        for ended in reading.accounted or ():
            # The samples already cover a process that was there before.
            began = ended.started_us / 1e6
            if ended.pid not in sampled and since_seconds is not None and began >= since_seconds:
                residents.append(_accounted(device, ended, found.get(ended.pid, _EXITED)))
        every += charge_clients(reading, residents, found)
    return tuple(every)


def _residents(
    device: DeviceKey, process: Process, samples: tuple[ProcessSample, ...] | None, found: FoundOwner
) -> Iterator[Resident]:
    """One process; two, if another process had its pid while some of the samples were taken."""
    ended = process.kind == ENDED
    began = found.started_at_seconds
    if samples and found.new and began is not None:
        began_us = round((began - _START_TIME_SLACK_SECONDS) * 1e6)
        earlier = tuple(sample for sample in samples if sample.timestamp_us < began_us)
        if earlier:
            samples = tuple(sample for sample in samples if sample.timestamp_us >= began_us)
            former = Process(process.pid, ENDED, memory_used_bytes=0)
            yield Resident(*device, former, found.former or Unknown("exited"), earlier, ended=True)
            if ended and not samples:
                return
    yield Resident(*device, process, found.owner, samples, began, ended)


def _accounted(device: DeviceKey, ended: AccountedProcess, found: FoundOwner) -> Resident:
    began = ended.started_us / 1e6
    # Another process may have the pid by now.
    same = found.started_at_seconds is None or found.started_at_seconds <= began + _START_TIME_SLACK_SECONDS
    stamp = ended.started_us + ended.ran_us
    sample = ProcessSample(ended.pid, stamp, ended.sm_ratio, None, None, None, ended.ran_us)
    process = Process(ended.pid, ENDED, memory_used_bytes=ended.memory_peak_bytes)
    owner = found.owner if same else found.former or Unknown("exited")
    return Resident(*device, process, owner, (sample,), began, ended=True)


def count_uses(
    readings: Sequence[Reading], residents: Iterable[Resident], holders: Iterable[tuple[DeviceKey, Owner]]
) -> tuple[Use, ...]:
    """The use of each device by each owner. Each process counts once per device."""
    by_series: dict[tuple[str, ...], list[Resident]] = {}
    for resident in residents:
        # Two pods of one name, one after the other, are one series; so are two containers of one name.
        by_series.setdefault((resident.uuid, *_series(resident.owner)), []).append(resident)
    uses = [_use(some) for some in by_series.values()]
    for device, holder in holders:
        if not any((use.gpu_index, use.uuid) == device and _same_pod(use.owner, holder) for use in uses):
            uses.append(_idle(device, holder, readings))
    return tuple(uses)


def _series(owner: Owner | Unknown) -> tuple[str, ...]:
    if isinstance(owner, Unknown):
        return ("unknown", owner.reason)
    if owner.kind == "pod":
        return ("pod", owner.namespace, owner.pod, owner.container)
    return (owner.kind, owner.name)


def _same_pod(owner: Owner | Unknown, holder: Owner) -> bool:
    return isinstance(owner, Owner) and (owner.namespace, owner.pod) == (holder.namespace, holder.pod)


def _processes(
    reading: Reading,
) -> Iterator[tuple[DeviceKey, Process, tuple[ProcessSample, ...] | None]]:
    """Every process once, with its samples; under the MIG device that it runs on, if there is one.

    A process that has samples but is no longer listed has ended since the last sample: it counts too.
    """
    on_slices: set[int] = set()
    for mig in reading.mig:
        for process, samples in _sampled_processes(mig.processes, mig.process_samples):
            on_slices.add(process.pid)
            yield (reading.gpu.index, mig.instance.uuid), process, samples
    for process, samples in _sampled_processes(reading.processes, reading.process_samples):
        if process.pid not in on_slices:
            yield (reading.gpu.index, reading.gpu.uuid), process, samples


def _sampled_processes(
    listed: tuple[Process, ...] | None, samples: tuple[ProcessSample, ...] | None
) -> Iterator[tuple[Process, tuple[ProcessSample, ...] | None]]:
    by_pid: dict[int, list[ProcessSample]] = defaultdict(list)
    for sample in samples or ():
        by_pid[sample.pid].append(sample)
    seen: set[int] = set()
    for process in listed or ():
        if process.pid not in seen:
            seen.add(process.pid)
            yield process, None if samples is None else tuple(by_pid.get(process.pid, ()))
    for pid, some in by_pid.items():
        if pid not in seen:
            yield Process(pid, ENDED, memory_used_bytes=0), tuple(some)


def _use(residents: Sequence[Resident]) -> Use:
    """By one owner, of one device."""
    first = residents[0]
    return Use(
        first.gpu_index,
        first.uuid,
        first.owner,
        sum(not one.ended for one in residents),
        _sum([0 if one.ended else one.process.memory_used_bytes for one in residents]),
        _sum([one.mean_ratio("sm_ratio") for one in residents]),
        _sum([one.mean_ratio("memory_ratio") for one in residents]),
        _sum([one.mean_ratio("encoder_ratio") for one in residents]),
        _sum([one.mean_ratio("decoder_ratio") for one in residents]),
    )


_Number = TypeVar("_Number", int, float)


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    """None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def find_holders(
    readings: Sequence[Reading], pods: PodIndex, ended: frozenset[str] = frozenset()
) -> tuple[tuple[DeviceKey, Owner], ...]:
    """Containers to which the kubelet allocated a device of these GPUs, each device once.

    `ended` are the UIDs of pods that have no process any more.
    """
    found = dict.fromkeys(
        (device, Owner("pod", namespace=one.namespace, pod=one.pod, container=one.container))
        for one in _still_held(pods, ended)
        if (device := match_device(one.device_id, one.resource, readings)) is not None
    )
    return tuple(found)


def idle_pods(pods: PodIndex, residents: Iterable[Resident]) -> frozenset[str]:
    """UIDs of the pods with an allocated device and no process on it, of which no source has the phase.

    Only those whose containers have a log: the kubelet creates it after the pod's sandbox, so a pod that has
    none may not have had a process yet.
    """
    present = {
        (resident.owner.namespace, resident.owner.pod)
        for resident in residents
        if isinstance(resident.owner, Owner)
    }
    allocated = {(one.namespace, one.pod) for one in pods.allocations} - present
    return frozenset(
        pod.pod_uid
        for pod in pods.by_uid.values()
        if (pod.namespace, pod.pod) in allocated and not pod.phase and (pod.containers or pod.container_names)
    )


def _still_held(pods: PodIndex, ended: frozenset[str]) -> Iterator[Allocation]:
    """The allocations without those of completed pods, which kubelets before 1.34 list too.

    https://github.com/kubernetes/kubernetes/issues/119423 and /issues/132020. The kubelet lists names, not
    UIDs: a name is dropped only if every pod of that name has ended.
    """
    named: dict[PodName, list[PodInfo]] = defaultdict(list)
    for pod in (*pods.by_uid.values(), *(pod for pod in pods.by_name.values() if not pod.pod_uid)):
        named[pod.namespace, pod.pod].append(pod)
    held = [
        one
        for one in pods.allocations
        if not (same := named[one.namespace, one.pod]) or not all(_has_ended(pod, ended) for pod in same)
    ]
    newest: dict[tuple[str, str], Allocation] = {}
    for one in held:
        known = newest.setdefault((one.resource, one.device_id), one)
        if _is_earlier(known, one, named):
            newest[one.resource, one.device_id] = one
    for one in held:
        if not _is_earlier(one, newest[one.resource, one.device_id], named):
            yield one


def _has_ended(pod: PodInfo, ended: frozenset[str]) -> bool:
    # A terminal phase is final. Any other phase is an answer too: a pending pod holds its devices and has no
    # process yet.
    if pod.phase:
        return pod.phase in _TERMINAL_PHASES
    return pod.pod_uid in ended


def _is_earlier(one: Allocation, other: Allocation, named: Mapping[PodName, Sequence[PodInfo]]) -> bool:
    """Whether the device passed from the pod of `one` to the pod of `other`.

    A device plugin's device belongs to one pod at a time: of two, the earlier one has ended, even if no
    source says so. That does not hold for replicas and claims, which pods may share.
    """
    if (one.namespace, one.pod) == (other.namespace, other.pod):
        return False
    if one.claim or other.claim or is_replica(one.device_id):
        return False
    if one.first_listed != other.first_listed:
        return one.first_listed < other.first_listed
    began, other_began = (_started_at(named[name.namespace, name.pod]) for name in (one, other))
    return began is not None and other_began is not None and began < other_began


def _started_at(pods: Sequence[PodInfo]) -> float | None:
    """When the kubelet accepted the newest of the pods; None if that is not known of all."""
    times = [pod.started_at_seconds for pod in pods]
    return max((time for time in times if time is not None), default=None) if None not in times else None


def _idle(device: DeviceKey, holder: Owner, readings: Iterable[Reading]) -> Use:
    """The use by a holder without processes: zero for each value that the driver reports per process."""
    for reading in readings:
        sampled = {
            reading.gpu.uuid: reading.process_samples,
            **{mig.instance.uuid: mig.process_samples for mig in reading.mig},
        }
        if sampled.get(device[1]) is not None:
            # The series would exist only while no process runs.
            memory = None if "memory_ratio" in vendor_of(reading.gpu.vendor).unsampled else 0.0
            return Use(*device, holder, 0, 0, 0.0, memory, 0.0, 0.0)
    return Use(*device, holder, 0, 0)


def list_pods(uses: Iterable[Use], pods: PodIndex) -> tuple[PodInfo, ...]:
    """The pods among the owners, with all that is known about them."""
    allocated = {(one.namespace, one.pod) for one in pods.allocations}
    claims: dict[PodName, set[str]] = defaultdict(set)
    for one in pods.allocations:
        if one.claim:
            claims[one.namespace, one.pod].add(one.claim)
    found: dict[PodName, PodInfo] = {}
    for use in uses:
        if isinstance(use.owner, Unknown) or use.owner.kind != "pod":
            continue
        key = (use.owner.namespace, use.owner.pod)
        if key in found and found[key].pod_uid:
            continue
        known = pods.by_uid.get(use.owner.pod_uid) or pods.by_name.get(key) or PodInfo(*key)
        # A pod that the kubelet does not list is not reported as unrequested use.
        requested = True if key in allocated else False if key in pods.unallocated else None
        if not requested and known.requested is not None:
            requested = known.requested
        found[key] = PodInfo(
            *key,
            pod_uid=use.owner.pod_uid or known.pod_uid,
            node=known.node,
            workload=known.workload,
            requested=requested,
            claim=",".join(sorted(claims[key])),
            claim_request=",".join(
                sorted({request for claim, request in known.claim_requests if claim in claims[key]})
            ),
            labels=known.labels,
            full_name_labels=known.full_name_labels,
        )
    return tuple(found.values())
