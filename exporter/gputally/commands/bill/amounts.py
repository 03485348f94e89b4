"""Amounts of a bill as whole numbers, so that sums are exact in any order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gputally.ledger.apportion import apportion
from gputally.model import BASES

UNATTRIBUTED = "unattributed"
"""The basis of energy that no owner is charged for."""
ENERGY = (*BASES, UNATTRIBUTED)

_Key = TypeVar("_Key", bound=tuple[object, ...])


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of one row, or of all rows together."""

    allocated_us: int = 0
    """GPU time, in microseconds. Of a row of GPUs that are not allocated: their time."""
    busy_us: int | None = None
    """None: not known for any part of it."""
    idle_us: int | None = None
    energy_millijoules: Mapping[str, int] = field(default_factory=dict)
    """By basis: one of ENERGY."""
    co2_micrograms: int = 0
    gpu_cost_nano: int = 0
    """In billionths of the unit of the prices."""
    energy_cost_nano: int = 0

    @property
    def millijoules(self) -> int:
        return sum(self.energy_millijoules.values())

    def __bool__(self) -> bool:
        time = self.allocated_us or self.busy_us or self.idle_us
        return bool(
            time or self.millijoules or self.co2_micrograms or self.gpu_cost_nano or self.energy_cost_nano
        )

    def __add__(self, other: "Amounts") -> "Amounts":
        energy = dict(self.energy_millijoules)
        for basis, millijoules in other.energy_millijoules.items():
            energy[basis] = energy.get(basis, 0) + millijoules
        return Amounts(
            self.allocated_us + other.allocated_us,
            _sum(self.busy_us, other.busy_us),
            _sum(self.idle_us, other.idle_us),
            energy,
            self.co2_micrograms + other.co2_micrograms,
            self.gpu_cost_nano + other.gpu_cost_nano,
            self.energy_cost_nano + other.energy_cost_nano,
        )


def total(amounts: Iterable[Amounts]) -> Amounts:
    return sum(amounts, Amounts())


def rounded(values: Mapping[_Key, int], unit: int) -> dict[_Key, int]:
    """The values in whole units; they add up to their rounded sum."""
    if not values:
        return {}
    return apportion((2 * sum(values.values()) + unit) // (2 * unit), values)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)
