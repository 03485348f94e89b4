"""The processes of the workloads on one GPU: their pids, their memory, their samples."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from gputally.model import Process, ProcessSample
from gputally.simulator.physics import GpuPhysics, Resident
from gputally.simulator.scenario import Shape, Workload
from gputally.simulator.workloads import TRAITS, held_mib

MIB = 1024 * 1024
FIRST_PID = 2001
MOST_PIDS = 4_000_000
DRIVER_BUFFER_SECONDS = 120
"""How far back the driver's samples reach."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a resident's processes run, and the numbers that make their pids."""

    resident: Resident
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
        """Each run of a workload has processes of its own, so pids do not come back with the next."""
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


def runs_between(places: Iterable[Place], first: int, end: int) -> Iterator[Run]:
    """What is there in any of the seconds from `first` up to `end`, also what runs no process."""
    for place in places:
        workload = place.resident.workload
        for number in workload.span.runs(first, end):
            pids = tuple(place.pids(number))
            began = workload.span.start_of(number)
            yield Run(workload, number, began, place.vendor, place.device_uuid, pids)


def processes_at(places: Iterable[Place], second: int) -> tuple[Process, ...]:
    """The processes at this second. Who comes first gets its memory; the rest share what is left."""
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
    places: Iterable[Place], physics: GpuPhysics, since: int, until: int, epoch_us: int
) -> tuple[ProcessSample, ...]:
    """One sample per process and second, for the seconds from `since` up to `until`.

    Whole seconds: readings that follow each other have each sample once, whatever the time between them.
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
    """Decoder and encoder time of a workload that computes on video, from its SM time."""
    return share * 8 // 10, share * 3 // 10


def deal(amount: int, hands: int) -> list[int]:
    """Whole parts that add up to the amount."""
    each, rest = divmod(amount, hands)
    return [each + (number < rest) for number in range(hands)]
