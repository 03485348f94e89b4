"""The records that a bill reads, and how they are grouped. The rules are in alerts/groups/bill.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gputally.commands.bill.amounts import UNATTRIBUTED, Amounts

METER = "gputally_bill_meter:joules"
TIME = "gputally_bill_time:seconds"
ENERGY = "gputally_bill_energy:joules"
GPU_COST = "gputally_bill_gpu_cost:money"
ENERGY_COST = "gputally_bill_energy_cost:money"
CO2 = "gputally_bill_co2:grams"
ALLOCATED = "gputally_bill_allocated:seconds"
BUSY = "gputally_bill_busy:seconds"
IDLE = "gputally_bill_idle:seconds"
FLEET = "model"
"""The level of the sums over all nodes: meter, and what no owner is charged for."""

_ALLOCATED_STATES = ("used", "throttled", "idle", "starting", "unknown")
_NOT_ALLOCATED_STATES = ("free", "lost", "unobserved")
_NOT_ALLOCATED = f'state=~"{"|".join(_NOT_ALLOCATED_STATES)}"'

Labels = Mapping[str, str]
MILLI, MICRO, NANO = 10**3, 10**6, 10**9


@dataclass(frozen=True, slots=True)
class Part:
    """One record, what is read of it, and the amounts that its sum is."""

    record: str
    selector: str
    by: tuple[str, ...]
    """Labels by which it is summed, with those of the key."""
    amounts: Callable[[float, Labels], Amounts]


@dataclass(frozen=True, slots=True)
class Grouping:
    """What a row is: the level of the records of its owners, and the labels that make its key."""

    level: str
    labels: tuple[str, ...]
    host_label: str = ""
    """The label of host owners that is their key; empty: they are one row."""


GROUPINGS: Mapping[str, Grouping] = {
    "namespace": Grouping("namespace", ("namespace",)),
    "team": Grouping("namespace", ("namespace",)),
    "workload": Grouping("workload", ("namespace", "workload"), "owner"),
    "model": Grouping(FLEET, ("model",)),
    "node": Grouping("node", ("node",)),
    "pod": Grouping("pod", ("namespace", "pod"), "owner"),
}


def _energy(value: float, labels: Labels) -> Amounts:
    return Amounts(energy_millijoules={labels.get("basis") or UNATTRIBUTED: round(value * MILLI)})


def _held(value: float, _: Labels) -> Amounts:
    return Amounts(allocated_us=round(value * MICRO))


def _busy(value: float, _: Labels) -> Amounts:
    return Amounts(busy_us=round(value * MICRO))


def _idle(value: float, _: Labels) -> Amounts:
    return Amounts(idle_us=round(value * MICRO))


def _by_state(value: float, labels: Labels) -> Amounts:
    time_us = round(value * MICRO)
    state = labels.get("state")
    return Amounts(
        allocated_us=time_us,
        busy_us=time_us if state in ("used", "throttled") else None,
        idle_us=time_us if state == "idle" else None,
    )


def _gpu_cost(value: float, _: Labels) -> Amounts:
    return Amounts(gpu_cost_nano=round(value * NANO))


def _energy_cost(value: float, _: Labels) -> Amounts:
    return Amounts(energy_cost_nano=round(value * NANO))


def _co2(value: float, _: Labels) -> Amounts:
    return Amounts(co2_micrograms=round(value * MICRO))


def owner_parts(level: str) -> tuple[Part, ...]:
    """Of a level that has owners: pod, workload, host."""
    return (
        Part(f"{level}:{ENERGY}", "", ("basis",), _energy),
        Part(f"{level}:{ALLOCATED}", "", (), _held),
        Part(f"{level}:{BUSY}", "", (), _busy),
        Part(f"{level}:{IDLE}", "", (), _idle),
        Part(f"{level}:{GPU_COST}", "", (), _gpu_cost),
        Part(f"{level}:{ENERGY_COST}", "", (), _energy_cost),
        Part(f"{level}:{CO2}", "", (), _co2),
    )


def charged_parts(level: str) -> tuple[Part, ...]:
    """What all owners are charged for, of a level that is counted on the GPUs themselves: node, model."""
    return (
        Part(f"{level}:{ENERGY}", 'basis!=""', ("basis",), _energy),
        Part(f"{level}:{TIME}", f'state=~"{"|".join(_ALLOCATED_STATES)}"', ("state",), _by_state),
        Part(f"{level}:{GPU_COST}", 'state="allocated"', (), _gpu_cost),
        Part(f"{level}:{ENERGY_COST}", 'reason=""', (), _energy_cost),
        Part(f"{level}:{CO2}", 'reason=""', (), _co2),
    )


UNALLOCATED_PARTS = (
    Part(f"{FLEET}:{TIME}", _NOT_ALLOCATED, ("state",), _held),
    Part(f"{FLEET}:{GPU_COST}", _NOT_ALLOCATED, ("state",), _gpu_cost),
)
UNATTRIBUTED_PARTS = (
    Part(f"{FLEET}:{ENERGY}", 'reason!=""', ("reason",), _energy),
    Part(f"{FLEET}:{ENERGY_COST}", 'reason!=""', ("reason",), _energy_cost),
    Part(f"{FLEET}:{CO2}", 'reason!=""', ("reason",), _co2),
)
