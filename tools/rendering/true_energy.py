"""The true energy of each workload, which the simulator knows and no hardware measures.

In each second a GPU draws its idle power and the power that each workload adds; a power limit reduces all of
them in proportion. The true energy of a workload is what it adds and, by convention, an equal share of the
idle power with every other workload that has processes on the GPU in that second. The idle power of a GPU
without processes is unattributed.
"""

from collections.abc import Sequence

from gputally.ledger.apportion import apportion
from gputally.simulator.engine import Engine, split_seconds
from gputally.simulator.gpu import SimulatedGpu
from gputally.simulator.workloads import MINUTE

TrueEnergy = dict[int | None, int]
"""Number of the workload in its scenario (None: unattributed) -> whole millijoules."""


def true_energy(engine: Engine, elapsed_seconds: float) -> tuple[TrueEnergy, ...]:
    """For each GPU since the start; the sum equals its energy counter exactly."""
    second, millisecond = split_seconds(elapsed_seconds)
    return tuple(_of_gpu(gpu, second, millisecond) for gpu in engine.gpus)


def _of_gpu(gpu: SimulatedGpu, seconds: int, milliseconds: int) -> TrueEnergy:
    energy: TrueEnergy = {None: 0} | {place.resident.number: 0 for place in gpu.places}
    for number in range(seconds // MINUTE + 1):
        minute = gpu.physics.minute(number)
        strengths = {resident.number: s for resident, _, s in gpu.physics.shared_loads(number)}
        first = number * MINUTE
        for slot in range(min(MINUTE, seconds + 1 - first)):
            power, idle = minute.power_mw[slot], gpu.physics.idle_mw(minute, slot)
            if first + slot == seconds:
                power, idle = power * milliseconds // 1000, idle * milliseconds // 1000
            present = [place.resident.number for place in gpu.places if place.present(first + slot)]
            if not present:
                energy[None] += power
                continue
            added = _apportion(power - idle, [strengths[resident][slot] for resident in present])
            shared = _apportion(idle, [1] * len(present))
            for resident, dynamic, standing in zip(present, added, shared, strict=True):
                energy[resident] += dynamic + standing
    return energy


def _apportion(amount: int, weights: Sequence[int]) -> list[int]:
    parts = apportion(amount, {(position,): weight for position, weight in enumerate(weights)})
    return [parts[position,] for position in range(len(weights))]
