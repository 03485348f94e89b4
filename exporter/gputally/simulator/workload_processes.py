"""The workloads on one GPU as its driver reports them: processes, samples, utilisation, activity."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gputally.model import Activity, Process, ProcessSample
from gputally.simulator.physics import SLICES, GpuPhysics, PlacedWorkload
from gputally.simulator.scenario import Shape, Workload
from gputally.simulator.workloads import MINUTE, TRAITS, held_mib

MIB = 1024 * 1024
FIRST_PID = 2001
MOST_PIDS = 4_000_000
DRIVER_BUFFER_SECONDS = 120
"""The age of the oldest sample that the driver keeps."""


@dataclass(frozen=True, slots=True)
class WorkloadProcesses:
    """The processes of a workload on one device, and the numbers that determine their pids."""

    resident: PlacedWorkload
    first_ordinal: int
    all_ordinals: int
    available_mib: int
    vendor: str
    device_uuid: str
    """Of the GPU, or of its MIG device."""
    gpu_instance_id: int | None
    compute_instance_id: int | None

    def present(self, second: int) -> bool:
        workload = self.resident.workload
        return workload.shape is not Shape.IDLE and workload.span.began(second) is not None

    def pids(self, run: int) -> list[int]:
        """The pids of one run; each run has new processes."""
        workload = self.resident.workload
        if workload.shape is Shape.IDLE:
            return []
        base = self.first_ordinal + run * self.all_ordinals
        return [FIRST_PID + (base + number) % MOST_PIDS for number in range(workload.count)]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a workload on one device."""

    workload: Workload
    number: int
    began: int
    """The second in which it began."""
    vendor: str
    """Of the device."""
    device_uuid: str
    pids: tuple[int, ...]


def runs_between(places: Iterable[WorkloadProcesses], first: int, end: int) -> Iterator[Run]:
    """The runs in any of the seconds from `first` up to `end`, including those without a process."""
    for place in places:
        workload = place.resident.workload
        for number in workload.span.runs(first, end):
            pids = tuple(place.pids(number))
            began = workload.span.start_of(number)
            yield Run(workload, number, began, place.vendor, place.device_uuid, pids)


def processes_at(places: Iterable[WorkloadProcesses], second: int) -> tuple[Process, ...]:
    """The processes at this second. Memory is assigned in order; later workloads get the remainder."""
    left: dict[int | None, int] = {}
    processes = []
    for place in places:
        began = place.resident.workload.span.began(second)
        if began is None or not place.present(second):
            continue
        workload = place.resident.workload
        instance = place.gpu_instance_id
        free = left.setdefault(instance, place.available_mib)
        held = min(free, held_mib(workload, second - began, place.available_mib))
        left[instance] = free - held
        name = workload.name or TRAITS[workload.shape].process
        pids = place.pids(workload.span.run(second))
        processes += [
            Process(pid, workload.kind, name, mib * MIB, instance, place.compute_instance_id)
            for pid, mib in zip(pids, deal(held, workload.count), strict=True)
        ]
    return tuple(sorted(processes, key=lambda process: process.pid))


def samples_between(
    places: Iterable[WorkloadProcesses], physics: GpuPhysics, since: int, until: int, epoch_us: int
) -> tuple[ProcessSample, ...]:
    """One sample per process and second, for the seconds from `since` up to `until`.

    Whole seconds: consecutive readings return each sample once, at any interval.
    """
    samples = []
    first = max(since, until - DRIVER_BUFFER_SECONDS, 0)
    for place in places:
        workload = place.resident.workload
        copy, count, span = TRAITS[workload.shape].memory_copy, workload.count, workload.span
        for run in span.runs(first, until) if workload.shape is not Shape.IDLE else ():
            began = span.start_of(run)
            start = max(first, began)
            end = until if span.stop is None else min(until, began + span.stop - span.start)
            pids = place.pids(run)
            stamp = epoch_us + start * 1_000_000
            for share in physics.shares(place.resident.number, start, end):
                stamp += 1_000_000
                for pid, part in zip(pids, (share,) if count == 1 else deal(share, count), strict=True):
                    decoder, encoder = video_percent(part) if workload.video else (0, 0)
                    samples.append(
                        ProcessSample(
                            pid,
                            stamp,
                            part / 100,
                            int(part * copy) / 100,
                            encoder / 100,
                            decoder / 100,
                            covers_us=1_000_000,
                        )
                    )
    return tuple(sorted(samples, key=attrgetter("timestamp_us", "pid")))


def video_percent(share: int) -> tuple[int, int]:
    """Decoder and encoder time of a video workload, from its SM time."""
    return share * 8 // 10, share * 3 // 10


def deal(amount: int, hands: int) -> list[int]:
    """Whole parts that add up to the amount."""
    each, rest = divmod(amount, hands)
    return [each + (number < rest) for number in range(hands)]


@dataclass(frozen=True, slots=True)
class Utilization:
    """The driver's whole percentages in one second."""

    gpu: int
    memory: int
    encoder: int
    decoder: int


def utilization(residents: Iterable[PlacedWorkload], physics: GpuPhysics, second: int) -> Utilization:
    minute, slot = physics.minute(second // MINUTE), second % MINUTE
    memory = encoder = decoder = 0
    for resident in residents:
        if resident.number in minute.shares:
            share = minute.shares[resident.number][slot]
            memory += int(share * TRAITS[resident.workload.shape].memory_copy)
            if resident.workload.video:
                decoded, encoded = video_percent(share)
                decoder, encoder = decoder + decoded, encoder + encoded
    return Utilization(minute.utilization[slot], memory, encoder, decoder)


def activity(
    residents: Sequence[PlacedWorkload], physics: GpuPhysics, seconds: range, *, of_gpu: bool
) -> Activity:
    """Means over the seconds, of the whole GPU or of the MIG instance that the workloads share."""
    busy = tensor = active = occupancy = dram = fp64 = fp32 = fp16 = 0.0
    for resident in residents:
        share = _mean_percent(resident, physics, seconds) / 100
        if of_gpu:
            share = share * resident.slices / SLICES
        traits = TRAITS[resident.workload.shape]
        busy += share
        active += share * traits.sm_active
        occupancy += share * traits.sm_occupancy
        tensor += share * traits.tensor
        dram += share * traits.dram
        fp64 += share * traits.fp64
        fp32 += share * traits.fp32
        fp16 += share * traits.fp16
    return Activity(
        graphics_active_ratio=_thousandths(busy),
        sm_active_ratio=_thousandths(active),
        sm_occupancy_ratio=_thousandths(occupancy),
        tensor_active_ratio=_thousandths(tensor),
        dram_active_ratio=_thousandths(dram),
        fp64_active_ratio=_thousandths(fp64),
        fp32_active_ratio=_thousandths(fp32),
        fp16_active_ratio=_thousandths(fp16),
    )


def _mean_percent(resident: PlacedWorkload, physics: GpuPhysics, seconds: range) -> float:
    return sum(physics.shares(resident.number, seconds.start, seconds.stop)) / len(seconds)


def _thousandths(ratio: float) -> float:
    return min(1000, round(ratio * 1000)) / 1000
