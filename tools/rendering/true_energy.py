"""The true energy of each workload on a simulated GPU, which no hardware measures.

The power here is not the model that the ledger fits: it is no function of SM and memory time. In each second
the GPU draws

- an idle power, which rises with the temperature and while any process is on the GPU. By convention it
  belongs in equal parts to all workloads that hold the GPU, on MIG by the size of their instances;
- the power of the work. Each workload has a strength of its own, with noise as different input data cause it.
  The sum is bent (clock and voltage fall as the load rises), cut at the power limit, and divided by strength.
"""

from collections.abc import Iterator
from functools import lru_cache
from random import Random

from gputally.ledger.apportion import apportion
from gputally.simulator.engine import Engine
from gputally.simulator.gpu import SimulatedGpu
from gputally.simulator.physics import PEAK
from gputally.simulator.workloads import MINUTE

Milliwatts = dict[tuple[int], int]
"""By the number of the workload in its scenario; UNATTRIBUTED for a GPU that no workload holds."""
UNATTRIBUTED = (-1,)

_PROCESS_LIFT = 0.15
"""Part of the idle power by which a process raises it."""
_LEAKAGE_PER_DEGREE = 0.004
_COOL_CELSIUS = 35.0
_BEND = 0.2
_NOISE = 0.08
_NOISE_SECONDS = 20


class TruePower:
    """The power of one GPU, second by second."""

    def __init__(self, engine: Engine, gpu: int = 0) -> None:
        self._gpu: SimulatedGpu = engine.gpus[gpu]
        card = engine.scenario.card(gpu)
        self._idle_mw = card.idle_watts * 1000
        self._span_mw = int(card.default_watts * PEAK) * 1000 - self._idle_mw
        self._strengths = lru_cache(2)(self._strengths_in)

    def of_second(self, second: int) -> Milliwatts:
        """What each workload draws."""
        holders = {
            (place.resident.number,): place.resident.slices
            for place in self._gpu.places
            if place.resident.workload.span.began(second) is not None
        }
        present = any(place.present(second) for place in self._gpu.places)
        warmth = 1 + _LEAKAGE_PER_DEGREE * (self._gpu.physics.temperature(second) - _COOL_CELSIUS)
        idle = round(self._idle_mw * (warmth + _PROCESS_LIFT * present))
        power = apportion(idle, holders or {UNATTRIBUTED: 1})
        strengths = dict(self._strengths_at(second))
        if load := sum(strengths.values()) / 1e6:
            demand = round(self._span_mw * load * (1 + _BEND - _BEND * load))
            drawn = min(demand, self._gpu.physics.limit_mw - idle)
            for number, part in apportion(drawn, strengths).items():
                power[number] += part
        return power

    def _strengths_at(self, second: int) -> Iterator[tuple[tuple[int], int]]:
        """The strength of each workload that runs, in millionths of the most."""
        for number, (shares, strengths) in self._strengths(second // MINUTE).items():
            slot = second % MINUTE
            if shares[slot]:
                luck = Random(f"{number}:{second // _NOISE_SECONDS}")
                yield (number,), round(1000 * strengths[slot] * luck.uniform(1 - _NOISE, 1 + _NOISE))

    def _strengths_in(self, minute: int) -> dict[int, tuple[list[int], list[int]]]:
        return {
            resident.number: (shares, strengths)
            for resident, shares, strengths in self._gpu.physics.shared_loads(minute)
        }
