"""Power, energy and temperature of one GPU, from the loads of its workloads.

The unit is the second: power is constant within one, so that energy, its integral, is whole
millijoules at every second, exactly. Each minute is a pure function of the scenario. Totals are kept
per minute; once only periodic events remain, each day adds the totals of the first such day, so
that no day is computed twice.
"""

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from gputally.simulator.faults import THERMAL_REASONS, GpuFaults
from gputally.simulator.scenario import Scenario, Workload
from gputally.simulator.schedule import Span
from gputally.simulator.workloads import (
    MINUTE,
    MINUTES_PER_DAY,
    TRAITS,
    WARM_UP,
    minute_load,
)

Item = TypeVar("Item")

PEAK = 1.08
"""The draw of the heaviest load, in default power limits: slightly above the limit."""
THROTTLED_PERCENT = 60
"""The remaining intensity of a load, in percent, while a fault throttles the GPU."""
TEMPERATURE_LAG_SECONDS = 45.0
TEMPERATURE_MEMORY_MINUTES = 10
"""13 time constants: earlier temperatures have no effect."""
AMBIENT_CELSIUS = 27.0
SLICES = 7
_NONE = [0] * MINUTE
LINK_KIB_PER_LINK_AND_PERMILLE = 6500
"""A quarter of the capacity of NVLinks at full intensity."""


@dataclass(frozen=True, slots=True)
class PlacedWorkload:
    """A workload on this GPU, and the slices of its MIG instance."""

    number: int
    workload: Workload
    slices: int
    key: str


@dataclass(frozen=True, slots=True)
class Minute:
    """Sixty seconds of one GPU."""

    utilization: list[int]
    """SM time of all residents, in percent; of its own instance on a GPU in MIG mode."""
    shares: dict[int, list[int]]
    """Workload number -> SM time in percent, after sharing."""
    intensity: list[int]
    power_mw: Sequence[int]
    demand_mw: Sequence[int]
    """The draw without a power limit."""
    link_kib: list[int]


@dataclass(frozen=True, slots=True)
class Totals:
    """The counters since second 0."""

    energy_mj: int
    capped_seconds: int
    link_kib: int


class GpuPhysics:
    """The physics of one GPU."""

    def __init__(
        self, scenario: Scenario, gpu: int, residents: list[PlacedWorkload], faults: GpuFaults
    ) -> None:
        card = scenario.card(gpu)
        self._residents = residents
        self._faults = faults
        self._key = f"{scenario.seed}:{gpu}"
        self.limit_mw = (scenario.power_limit_watts or card.default_watts) * 1000
        self._idle_mw = card.idle_watts * 1000
        self._span_mw = int(card.default_watts * PEAK) * 1000 - self._idle_mw
        rng = Random(f"{self._key}:room")  # noqa: S311
        self._ambient = AMBIENT_CELSIUS + 4.0 * rng.random()
        self._celsius_per_mw = (card.full_load_celsius - AMBIENT_CELSIUS) / (card.default_watts * 1000)
        self._hot_celsius = float(card.hot_celsius)
        self._minutes: OrderedDict[int, Minute] = OrderedDict()
        self._targets_of: OrderedDict[int, list[float]] = OrderedDict()
        self._start_of_minute: tuple[int, float] | None = None
        self._links = card.links if any(len(r.workload.gpus) > 1 for r in residents) else 0
        settled = [resident.workload.span.settled + WARM_UP for resident in residents]
        settled += [span.settled for _, span in faults.throttles]
        self._settled_minute = -(-max(settled, default=0) // MINUTE)
        self._energy = array("q", (0,))
        self._capped = array("q", (0,))
        self._moved = array("q", (0,))

    def minute(self, number: int) -> Minute:
        """The minute of that number."""
        return _kept(self._minutes, number, self._compute)

    def totals(self, second: int) -> Totals:
        """The counters at the beginning of that second."""
        number, slot = divmod(second, MINUTE)
        first, days = number, 0
        end_of_first_day = self._settled_minute + MINUTES_PER_DAY
        if number > end_of_first_day:
            days, rest = divmod(number - self._settled_minute, MINUTES_PER_DAY)
            first = self._settled_minute + rest
        self._extend(end_of_first_day if days else first)
        at, day_start = first, self._settled_minute
        base = [
            counter[at] + (days * (counter[end_of_first_day] - counter[day_start]) if days else 0)
            for counter in (self._energy, self._capped, self._moved)
        ]
        if slot == 0:
            return Totals(*base)
        minute = self.minute(number)
        return Totals(
            base[0] + sum(minute.power_mw[:slot]),
            base[1] + self._capped_in(minute, slot),
            base[2] + sum(minute.link_kib[:slot]),
        )

    def shares(self, resident: int, first: int, end: int) -> list[int]:
        """SM time of that workload, in percent, in the seconds from `first` up to `end`."""
        shares: list[int] = []
        for number in range(first // MINUTE, -(-end // MINUTE)):
            share = self.minute(number).shares.get(resident, _NONE)
            shares += share[max(0, first - number * MINUTE) : end - number * MINUTE]
        return shares

    def temperature(self, second: int) -> float:
        """The core's temperature: it follows the power with a lag."""
        number, slot = divmod(second, MINUTE)
        if self._start_of_minute is None or self._start_of_minute[0] != number:
            first = max(0, number - TEMPERATURE_MEMORY_MINUTES)
            celsius = self._targets(first)[0] if first else self._target(self._idle_mw)
            for earlier in range(first, number):
                celsius = _follow(celsius, self._targets(earlier))
            self._start_of_minute = (number, celsius)
        return _follow(self._start_of_minute[1], self._targets(number)[: slot + 1])

    def _target(self, power_mw: int) -> float:
        return self._ambient + self._celsius_per_mw * power_mw

    def _targets(self, number: int) -> list[float]:
        """The target of the core temperature in each second of that minute."""
        return _kept(self._targets_of, number, self._compute_targets)

    def _compute_targets(self, number: int) -> list[float]:
        ambient, factor = self._ambient, self._celsius_per_mw
        targets = [ambient + factor * power for power in self.minute(number).power_mw]
        for slot in self._throttled_slots(number, thermal=True):
            targets[slot] = max(targets[slot], self._hot_celsius)
        for margin, span in self._faults.hot:
            for slot in _slots_of(span, number):
                targets[slot] = max(targets[slot], self._hot_celsius - margin)
        return targets

    def _throttled_slots(self, number: int, *, thermal: bool) -> set[int]:
        return {
            slot
            for reason, span in self._faults.throttles
            if not thermal or reason in THERMAL_REASONS
            for slot in _slots_of(span, number)
        }

    def _capped_in(self, minute: Minute, slots: int) -> int:
        limit = self.limit_mw
        return sum(1 for demand in minute.demand_mw[:slots] if demand > limit)

    def _extend(self, number: int) -> None:
        """Count on up to the beginning of that minute."""
        while len(self._energy) <= number:
            last = len(self._energy) - 1
            # Only the temperature reads earlier minutes, and only the last ones.
            recent = last >= number - TEMPERATURE_MEMORY_MINUTES
            minute = self.minute(last) if recent else self._compute(last)
            self._energy.append(self._energy[last] + sum(minute.power_mw))
            self._capped.append(self._capped[last] + self._capped_in(minute, MINUTE))
            self._moved.append(self._moved[last] + sum(minute.link_kib))

    def _compute(self, number: int) -> Minute:
        utilization = [0] * MINUTE
        intensity = [0] * MINUTE
        moved = [0] * MINUTE
        shares: dict[int, list[int]] = {}
        for resident, share, strength in self.shared_loads(number):
            shares[resident.number] = share
            utilization = [a + b for a, b in zip(utilization, share, strict=True)]
            intensity = [a + b for a, b in zip(intensity, strength, strict=True)]
            if self._links and TRAITS[resident.workload.shape].links and len(resident.workload.gpus) > 1:
                rate = LINK_KIB_PER_LINK_AND_PERMILLE * self._links
                moved = [a + b * rate for a, b in zip(moved, strength, strict=True)]
        for slot in self._throttled_slots(number, thermal=False):
            intensity[slot] = intensity[slot] * THROTTLED_PERCENT // 100
        power, demand = self._power(number, intensity)
        return Minute(utilization, shares, intensity, power, demand, moved)

    def shared_loads(self, number: int) -> Iterator[tuple[PlacedWorkload, list[int], list[int]]]:
        """Each resident of that minute with its SM time in percent and its part of the GPU's intensity."""
        for slices, group in self._groups():
            loads = [
                (resident, load)
                for resident in group
                if (load := minute_load(resident.workload, resident.key, number)) is not None
            ]
            total, crowded = [], []
            if len(loads) > 1:
                total = [sum(values) for values in zip(*(load.utilization for _, load in loads), strict=True)]
                crowded = [slot for slot in range(MINUTE) if total[slot] > 100]
            for resident, load in loads:
                share, strength = load.utilization, load.intensity
                if crowded:
                    share, strength = share.copy(), strength.copy()
                    for slot in crowded:
                        share[slot] = share[slot] * 100 // total[slot]
                        strength[slot] = strength[slot] * 100 // total[slot]
                if slices != SLICES:
                    strength = [value * slices // SLICES for value in strength]
                yield resident, share, strength

    def _groups(self) -> list[tuple[int, list[PlacedWorkload]]]:
        """Residents by the MIG instance that they share, with its slices."""
        groups: dict[int, list[PlacedWorkload]] = {}
        for resident in self._residents:
            groups.setdefault(resident.workload.instance, []).append(resident)
        return [(group[0].slices, group) for group in groups.values()]

    def _power(self, number: int, intensity: list[int]) -> tuple[Sequence[int], Sequence[int]]:
        rng = Random(f"{self._key}:{number % MINUTES_PER_DAY}")  # noqa: S311
        idle, span, limit = self._idle_mw, self._span_mw, self.limit_mw
        demand = array(
            "q",
            [
                idle + idle * (jitter - 128) // 10_000 + span * permille // 1000
                for jitter, permille in zip(rng.randbytes(MINUTE), intensity, strict=True)
            ],
        )
        return array("q", [value if value < limit else limit for value in demand]), demand


def _kept(store: OrderedDict[int, Item], number: int, compute: Callable[[int], Item]) -> Item:
    """The value of that minute, from the cache of the last ones or computed."""
    value = store.get(number)
    if value is None:
        value = store[number] = compute(number)
        while len(store) > TEMPERATURE_MEMORY_MINUTES + 2:
            store.popitem(last=False)
    return value


def _slots_of(span: Span, number: int) -> Iterator[int]:
    """The seconds of that minute that are in the span."""
    first = number * MINUTE
    if span.touches(first, first + MINUTE):
        yield from (slot for slot in range(MINUTE) if span.began(first + slot) is not None)


_KEEP = math.exp(-1.0 / TEMPERATURE_LAG_SECONDS)


def _follow(celsius: float, targets: list[float]) -> float:
    """First-order lag towards the targets, one per second."""
    keep, move = _KEEP, 1.0 - _KEEP
    for target in targets:
        celsius = celsius * keep + target * move
    return celsius
