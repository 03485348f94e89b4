"""The workloads on one GPU as its driver reports them: processes, samples, utilisation, activity."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gputally.model import Activity, Process
from gputally.simulator.physics import SLICES, GpuPhysics, PlacedWorkload
from gputally.simulator.scenario import Shape, Workload
from gputally.simulator.workloads import MINUTE, TRAITS, held_mib

MIB = 1024 * 1024
FIRST_PID = 2001
MOST_PIDS = 4_000_000
DRIVER_BUFFER_SECONDS = 120
"""The longest time over which the driver averages activity."""
MPS_SERVER = "nvidia-cuda-mps-server"
MPS_SERVER_MIB = 30
FIRST_MPS_SERVER_PID = 900


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
    mps_server_pid: int
    """Of the server that runs the work of MPS clients on this GPU."""

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
class WorkloadRun:
    """One run of a workload on one device."""

    workload: Workload
    number: int
    began: int
    """The second in which it began."""
    vendor: str
    """Of the device."""
    device_uuid: str
    pids: tuple[int, ...]


def runs_between(places: Iterable[WorkloadProcesses], first: int, end: int) -> Iterator[WorkloadRun]:
    """The runs in any of the seconds from `first` up to `end`, including those without a process."""
    for place in places:
        workload = place.resident.workload
        for number in workload.span.runs(first, end):
            pids = tuple(place.pids(number))
            began = workload.span.start_of(number)
            yield WorkloadRun(workload, number, began, place.vendor, place.device_uuid, pids)


def processes_at(places: Iterable[WorkloadProcesses], second: int) -> tuple[Process, ...]:
    """The processes at this second. Memory is assigned in order; later workloads get the remainder."""
    left: dict[int | None, int] = {}
    processes = []
    servers: set[int] = set()
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
        # The driver does not list it on MIG devices, which have no samples either.
        if workload.kind == "mps" and instance is None:
            servers.add(place.mps_server_pid)
    processes += [Process(pid, "compute", MPS_SERVER, MPS_SERVER_MIB * MIB) for pid in servers]
    return tuple(sorted(processes, key=lambda process: process.pid))


def memory_percent(workload: Workload, share: int) -> int:
    """Memory activity, from SM time. Work that draws little power waits for memory."""
    copy = TRAITS[workload.shape].memory_copy
    bound = 1.2 * (100 - workload.power_percent) / 100
    return int(share * min(0.95, copy + (1 - copy) * bound))


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
            memory += memory_percent(resident.workload, share)
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
