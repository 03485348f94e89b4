"""How busy the parts of a GPU are: the driver's percentages, and GPM's ratios since the last reading."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputally.model import Activity
from gputally.simulator.physics import SLICES, GpuPhysics, Resident
from gputally.simulator.residents import video_percent
from gputally.simulator.workloads import MINUTE, TRAITS


@dataclass(frozen=True, slots=True)
class Utilization:
    """The driver's whole percentages in one second."""

    gpu: int
    memory: int
    encoder: int
    decoder: int


def utilization(residents: Iterable[Resident], physics: GpuPhysics, second: int) -> Utilization:
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


def activity(residents: Sequence[Resident], physics: GpuPhysics, seconds: range, *, of_gpu: bool) -> Activity:
    """Means over the seconds, of the whole GPU or of the MIG instance that the residents share."""
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


def _mean_percent(resident: Resident, physics: GpuPhysics, seconds: range) -> float:
    return sum(physics.shares(resident.number, seconds.start, seconds.stop)) / len(seconds)


def _thousandths(ratio: float) -> float:
    return min(1000, round(ratio * 1000)) / 1000
