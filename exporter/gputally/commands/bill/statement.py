"""A bill in the numbers that are written: rounded so that every column and every row adds up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from gputally.commands.bill.amounts import ENERGY, Amounts, rounded
from gputally.commands.bill.model import Bill, Gap, Kind

_US_PER_HOUR = 3_600_000_000
_MJ_PER_KWH = 3_600_000_000
_UG_PER_GRAM = 1_000_000
_NANO = 1_000_000_000
_CENTS = 2

_Key = TypeVar("_Key", bound=tuple[object, ...])


@dataclass(frozen=True, slots=True)
class Line:
    """One row, or the total. None: not known, or it does not apply."""

    key: str
    kind: str
    gpu_hours: Decimal
    busy_gpu_hours: Decimal | None
    idle_gpu_hours: Decimal | None
    energy_joules: Decimal
    kwh: Mapping[str, Decimal]
    """By basis."""
    co2_grams: Decimal
    gpu_cost: Decimal
    energy_cost: Decimal
    share: float | None
    """Of the total cost; of the energy, if nothing has a price."""

    @property
    def cost(self) -> Decimal:
        return self.gpu_cost + self.energy_cost

    @property
    def energy_kwh(self) -> Decimal:
        return sum(self.kwh.values(), Decimal())


@dataclass(frozen=True, slots=True)
class Statement:
    bill: Bill
    lines: Sequence[Line]
    total: Line
    meter_joules: Decimal
    difference_joules: Decimal

    @property
    def gaps(self) -> Sequence[Gap]:
        return self.bill.gaps

    @property
    def unpriced_gpu_hours(self) -> Decimal:
        return Decimal(self.bill.unpriced_us) / _US_PER_HOUR


def make_statement(bill: Bill, *, hour_digits: int = 6, kwh_digits: int = 6) -> Statement:
    rows = bill.rows
    amounts = [row.amounts for row in rows]
    hours = _column(amounts, lambda one: one.allocated_us, _US_PER_HOUR, hour_digits)
    busy = _column(amounts, lambda one: one.busy_us, _US_PER_HOUR, hour_digits)
    idle = _column(amounts, lambda one: one.idle_us, _US_PER_HOUR, hour_digits)
    co2 = _column(amounts, lambda one: one.co2_micrograms, _UG_PER_GRAM, 0)
    kwh = _cells(
        {
            (number, basis): one.energy_millijoules[basis]
            for number, one in enumerate(amounts)
            for basis in ENERGY
            if basis in one.energy_millijoules
        },
        _MJ_PER_KWH,
        kwh_digits,
    )
    costs = {(number, "gpu"): one.gpu_cost_nano for number, one in enumerate(amounts)}
    costs |= {(number, "energy"): one.energy_cost_nano for number, one in enumerate(amounts)}
    cost = _cells(costs, _NANO, _CENTS)
    whole = _weight(bill.total, bill.total)
    lines = [
        Line(
            row.key,
            row.kind.value,
            hours[number] or Decimal(),
            busy[number] if row.kind in (Kind.OWNER, Kind.HOST) else None,
            idle[number] if row.kind in (Kind.OWNER, Kind.HOST) else None,
            Decimal(row.amounts.millijoules).scaleb(-3),
            {basis: kwh[number, basis] for basis in ENERGY if (number, basis) in kwh},
            co2[number] or Decimal(),
            cost[number, "gpu"],
            cost[number, "energy"],
            _weight(row.amounts, bill.total) / whole if whole else None,
        )
        for number, row in enumerate(rows)
    ]
    return Statement(
        bill,
        lines,
        _total(lines),
        Decimal(bill.meter_millijoules).scaleb(-3),
        Decimal(bill.difference_millijoules).scaleb(-3),
    )


def _weight(amounts: Amounts, total: Amounts) -> int:
    if total.gpu_cost_nano + total.energy_cost_nano:
        return amounts.gpu_cost_nano + amounts.energy_cost_nano
    return amounts.millijoules


def _total(lines: Sequence[Line]) -> Line:
    busy = [line.busy_gpu_hours for line in lines if line.busy_gpu_hours is not None]
    idle = [line.idle_gpu_hours for line in lines if line.idle_gpu_hours is not None]
    return Line(
        "total",
        "total",
        sum((line.gpu_hours for line in lines), Decimal()),
        sum(busy, Decimal()) if busy else None,
        sum(idle, Decimal()) if idle else None,
        sum((line.energy_joules for line in lines), Decimal()),
        {
            basis: sum((line.kwh[basis] for line in lines if basis in line.kwh), Decimal())
            for basis in ENERGY
            if any(basis in line.kwh for line in lines)
        },
        sum((line.co2_grams for line in lines), Decimal()),
        sum((line.gpu_cost for line in lines), Decimal()),
        sum((line.energy_cost for line in lines), Decimal()),
        1.0 if any(line.share for line in lines) else None,
    )


def _column(
    amounts: Sequence[Amounts], value: Callable[[Amounts], int | None], unit: int, digits: int
) -> list[Decimal | None]:
    known = {(number,): found for number, one in enumerate(amounts) if (found := value(one)) is not None}
    cells = _cells(known, unit, digits)
    return [cells.get((number,)) for number in range(len(amounts))]


def _cells(values: Mapping[_Key, int], unit: int, digits: int) -> dict[_Key, Decimal]:
    """In units with so many digits; they add up to their rounded sum."""
    parts = rounded(values, unit // 10**digits)
    return {key: Decimal(part).scaleb(-digits) for key, part in parts.items()}
