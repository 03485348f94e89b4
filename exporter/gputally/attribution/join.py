"""Puts readings, processes and what is known of pods together: pure functions, no clock, no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gputally.attribution import Found, Holding, Knowledge, Place, Pod, PodFacts
from gputally.attribution.device_ids import match_device
from gputally.devices.vendors import vendor_of
from gputally.model import (
    AccountedProcess,
    Owner,
    PodOnGpu,
    Process,
    ProcessSample,
    Reading,
    Resident,
    Unknown,
    Use,
)

ENDED = "ended"
"""The kind of a process that is gone from the driver's lists."""
_GONE = Found(Unknown("exited"))
_START_TIME_SLACK_SECONDS = 2.0
"""How far the kernel's and the driver's clocks may be apart."""
Whose = Owner | Unknown
Device = tuple[int, str]  # index of the GPU, uuid of the GPU or MIG device


@dataclass(frozen=True, slots=True)
class Directory:
    """What all sources together know of the pods on this node."""

    by_uid: Mapping[str, PodFacts]
    by_container: Mapping[str, tuple[PodFacts, str]]
    by_name: Mapping[Pod, PodFacts]
    own: PodFacts | None
    holdings: tuple[Holding, ...]
    given_none: frozenset[Pod]
    node_labels: tuple[tuple[str, str], ...]


def join_knowledge(known: Mapping[str, Knowledge]) -> Directory:
    """`known` is by source, best first: a later one only adds what the earlier ones do not know."""
    by_uid: dict[str, PodFacts] = {}
    nameless: list[PodFacts] = []
    for knowledge in known.values():
        for pod in knowledge.pods:
            if not pod.uid:
                nameless.append(pod)
            elif pod.uid in by_uid:
                by_uid[pod.uid] = _filled_up(by_uid[pod.uid], pod)
            else:
                by_uid[pod.uid] = pod
    pods = [*by_uid.values(), *nameless]
    held = (holding for knowledge in known.values() for holding in knowledge.holdings)
    own = known.get("own_pod")
    return Directory(
        by_uid=by_uid,
        by_container={cid: (pod, name) for pod in pods for cid, name in pod.containers.items()},
        by_name={(pod.namespace, pod.pod): pod for pod in pods},
        own=own.pods[0] if own and own.pods else None,
        holdings=tuple(dict.fromkeys(held)),
        given_none=frozenset().union(*(knowledge.given_none for knowledge in known.values())),
        node_labels=next((k.node_labels for k in known.values() if k.node_labels), ()),
    )


def _filled_up(pod: PodFacts, other: PodFacts) -> PodFacts:
    return replace(
        pod,
        containers={**other.containers, **pod.containers},
        container_names=pod.container_names or other.container_names,
        node=pod.node or other.node,
        workload=pod.workload or other.workload,
        requests_gpu=other.requests_gpu if pod.requests_gpu is None else pod.requests_gpu,
        labels=pod.labels or other.labels,
    )


def name_owner(place: Place, process_name: str, directory: Directory) -> Whose:
    """Whose the process in this place is."""
    pod, container = directory.by_container.get(place.container_id, (None, ""))
    # Docker runs pods too (cri-dockerd), and from another cgroup namespace the pod is not to be seen.
    if place.kind != "pod" and not place.own_pod and pod is None:
        return Owner(
            place.kind,
            f"{place.kind}/{place.name or process_name}",
            container_id=place.container_id,
            slurm_job=place.slurm_job,
            slurm_step=place.slurm_step,
            user=place.user,
        )
    if place.pod_uid:
        # The UID decides: a container id is only trusted to name a container of that very pod.
        if pod is not None and pod.uid and pod.uid != place.pod_uid:
            container = ""
        pod = directory.by_uid.get(place.pod_uid) or (pod if pod is not None and not pod.uid else None)
        if pod is None:
            return Unknown("unknown_pod", place.pod_uid, place.container_id)
    elif pod is None and place.own_pod:
        pod = directory.own
    if pod is None:
        return Unknown("unknown_container", "", place.container_id)
    # The only container known is the only one there is, unless ids are known and this one is not among them:
    # then it has just started.
    if not container and len(pod.container_names) == 1 and not (place.container_id and pod.containers):
        container = pod.container_names[0]
    return Owner(
        "pod",
        namespace=pod.namespace,
        pod=pod.pod,
        container=container,
        pod_uid=place.pod_uid or pod.uid,
        container_id=place.container_id,
    )


def listed_pids(readings: Sequence[Reading]) -> list[int]:
    """Every process that the driver lists now, each once."""
    listed = (
        process.pid
        for reading in readings
        for some in (reading.processes, *(mig.processes for mig in reading.mig))
        for process in some or ()
    )
    return list(dict.fromkeys(listed))


def ended_pids(readings: Sequence[Reading]) -> list[int]:
    """Every other process that was sampled, or has an account: it is there no more."""
    told = (
        one.pid
        for reading in readings
        for some in (reading.process_samples, reading.accounted)
        for one in some or ()
    )
    listed = set(listed_pids(readings))
    return [pid for pid in dict.fromkeys(told) if pid not in listed]


def list_residents(
    readings: Sequence[Reading], found: Mapping[int, Found], *, since_seconds: float | None = None
) -> tuple[Resident, ...]:
    """Every process on every device since the last look, which was at `since_seconds`, and whose it is."""
    residents: list[Resident] = []
    for reading in readings:
        sampled: set[int] = set()
        for device, process, samples in _processes(reading):
            sampled.add(process.pid)
            residents += _residents(device, process, samples, found.get(process.pid, _GONE))
        device = (reading.gpu.index, reading.gpu.uuid)
        for ended in reading.accounted or ():
            # Of one that was there before, the samples have told already.
            began = ended.started_us / 1e6
            if ended.pid not in sampled and since_seconds is not None and began >= since_seconds:
                residents.append(_accounted(device, ended, found.get(ended.pid, _GONE)))
    return tuple(residents)


def _residents(
    device: Device, process: Process, samples: tuple[ProcessSample, ...] | None, found: Found
) -> Iterator[Resident]:
    """One process; two, when its pid was another's while some of the samples were taken."""
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


def _accounted(device: Device, ended: AccountedProcess, found: Found) -> Resident:
    began = ended.started_us / 1e6
    # The pid may be another's by now.
    same = found.started_at_seconds is None or found.started_at_seconds <= began + _START_TIME_SLACK_SECONDS
    stamp = ended.started_us + ended.ran_us
    sample = ProcessSample(ended.pid, stamp, ended.sm_ratio, None, None, None, ended.ran_us)
    process = Process(ended.pid, ENDED, memory_used_bytes=ended.memory_peak_bytes)
    owner = found.owner if same else found.former or Unknown("exited")
    return Resident(*device, process, owner, (sample,), began, ended=True)


def count_uses(
    readings: Sequence[Reading], residents: Iterable[Resident], holders: Iterable[tuple[Device, Owner]]
) -> tuple[Use, ...]:
    """Who does what on which device. Over all owners of a device, each process counts once."""
    uses: dict[tuple[Device, Whose], Use] = {}
    for resident in residents:
        device = (resident.gpu_index, resident.uuid)
        # Two pods of one name, one after the other, are one series; so are two containers of one name.
        key = (device, _series(resident.owner))
        uses[key] = _added(uses.get(key) or Use(*device, resident.owner, 0), resident)
    for device, holder in holders:
        if not any(d == device and _holds(whose, holder) for d, whose in uses):
            uses[device, holder] = _idle(device, holder, readings)
    return tuple(uses.values())


def _series(whose: Whose) -> Whose:
    if isinstance(whose, Unknown):
        return Unknown(whose.reason)
    if whose.kind == "pod":
        return Owner("pod", namespace=whose.namespace, pod=whose.pod, container=whose.container)
    return Owner(whose.kind, whose.name)


def _holds(whose: Whose, holder: Owner) -> bool:
    return isinstance(whose, Owner) and (whose.namespace, whose.pod) == (holder.namespace, holder.pod)


def _processes(
    reading: Reading,
) -> Iterator[tuple[Device, Process, tuple[ProcessSample, ...] | None]]:
    """Every process once, under the MIG device it runs on where there is one, with its samples.

    A process that the driver sampled, but that is gone from its list, has ended since: it counts with
    what it did.
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


def _added(use: Use, resident: Resident) -> Use:
    return Use(
        use.gpu_index,
        use.uuid,
        use.owner,
        use.processes + (not resident.ended),
        _plus(use.memory_used_bytes, 0 if resident.ended else resident.process.memory_used_bytes),
        _plus(use.sm_ratio, resident.mean_ratio("sm_ratio")),
        _plus(use.memory_ratio, resident.mean_ratio("memory_ratio")),
        _plus(use.encoder_ratio, resident.mean_ratio("encoder_ratio")),
        _plus(use.decoder_ratio, resident.mean_ratio("decoder_ratio")),
    )


_Number = TypeVar("_Number", int, float)


def _plus(so_far: _Number | None, more: _Number | None) -> _Number | None:
    if more is None:
        return so_far
    return more if so_far is None else so_far + more


def find_holders(readings: Sequence[Reading], directory: Directory) -> tuple[tuple[Device, Owner], ...]:
    """Containers to which the kubelet gave a device of these GPUs, each device once."""
    found = dict.fromkeys(
        (device, Owner("pod", namespace=held.namespace, pod=held.pod, container=held.container))
        for held in directory.holdings
        if (device := match_device(held.device_id, held.resource, readings)) is not None
    )
    return tuple(found)


def _idle(device: Device, holder: Owner, readings: Iterable[Reading]) -> Use:
    """What a holder does that nobody sees there: nothing, where the driver would tell otherwise."""
    for reading in readings:
        sampled = {
            reading.gpu.uuid: reading.process_samples,
            **{mig.instance.uuid: mig.process_samples for mig in reading.mig},
        }
        if sampled.get(device[1]) is not None:
            # A series that is there only while nobody runs would be worse than none.
            memory = None if "memory_ratio" in vendor_of(reading.gpu.vendor).unsampled else 0.0
            return Use(*device, holder, 0, 0, 0.0, memory, 0.0, 0.0)
    return Use(*device, holder, 0, 0)


def list_pods(uses: Iterable[Use], directory: Directory) -> tuple[PodOnGpu, ...]:
    """The pods among the owners, with what is known of them."""
    given = {(held.namespace, held.pod) for held in directory.holdings}
    pods: dict[Pod, PodOnGpu] = {}
    for use in uses:
        if isinstance(use.owner, Unknown) or use.owner.kind != "pod":
            continue
        key = (use.owner.namespace, use.owner.pod)
        if key in pods and pods[key].pod_uid:
            continue
        facts = directory.by_uid.get(use.owner.pod_uid) or directory.by_name.get(key)
        # Nobody is called a shadow on the word of a kubelet that does not know the pod.
        requested = True if key in given else False if key in directory.given_none else None
        if not requested and facts is not None and facts.requests_gpu is not None:
            requested = facts.requests_gpu
        pods[key] = PodOnGpu(
            *key,
            pod_uid=use.owner.pod_uid or (facts.uid if facts else ""),
            node=facts.node if facts else "",
            workload=facts.workload if facts else "",
            requested=requested,
            labels=facts.labels if facts else (),
        )
    return tuple(pods.values())
