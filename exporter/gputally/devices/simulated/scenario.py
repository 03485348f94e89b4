"""What is simulated: which GPUs, what runs on them, what goes wrong and when.

A `Scenario` is checked when it is made, so the engine can trust it. Files are read by
`scenario_file`; without one, `default_scenario.py` has a mixture of everything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gputally.devices.simulated.models import Card, MigProfile, find_card
from gputally.devices.simulated.ownership import HostOwner, PodOwner
from gputally.devices.simulated.schedule import DAY, Moment, Span
from gputally.model import RECOVERY_ACTIONS, THROTTLE_REASONS

MOST_GPUS = 1024
DEFAULT_GPUS = 8
DEFAULT_MODEL = "h100"
DRIVER_VERSION = "580.95.05"
CUDA_VERSION = "13.0"

PROCESS_KINDS = ("compute", "graphics", "mps")
ECC_LOCATIONS = ("device_memory", "l2_cache")
FAULT_THROTTLES = tuple(reason for reason in THROTTLE_REASONS if reason != "gpu_idle")
ALWAYS = Span()
AT_ONCE = Moment(0)


class ScenarioError(ValueError):
    """The scenario cannot be played; the text says what is wrong and what is allowed, in one line."""


class Shape(StrEnum):
    """How a workload behaves over time."""

    TRAINING = "training"
    INFERENCE = "inference"
    NOTEBOOK = "notebook"
    UNREQUESTED = "unrequested"
    HANG = "hang"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Memory:
    """How much device memory a workload takes on each GPU: a share of it, or MiB."""

    percent: int | None = None
    mib: int | None = None

    def of(self, available_mib: int) -> int:
        """In MiB, where `available_mib` is all there is to have."""
        return self.mib if self.mib is not None else available_mib * (self.percent or 0) // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Something that runs on each of the named GPUs."""

    shape: Shape
    gpus: tuple[int, ...]
    span: Span = ALWAYS
    count: int = 1
    """Processes on each GPU."""
    memory: Memory | None = None
    """None: what the shape usually takes."""
    load_percent: int = 100
    """How hard it works, compared with the shape at its usual."""
    power_percent: int = 100
    """What it draws for that work, compared with the shape: 60 is about right when it waits for memory."""
    name: str | None = None
    kind: str = "compute"
    video: bool = False
    """It decodes and encodes video beside its computing."""
    instance: int = 0
    """The MIG instance it runs in, on GPUs in MIG mode."""
    owner: PodOwner | HostOwner | None = None
    """None: nobody can tell."""


class FaultKind(StrEnum):
    """What can go wrong on a schedule."""

    XID = "xid"
    ECC = "ecc"
    THROTTLE = "throttle"
    LOST = "lost"
    ROW_REMAP_PENDING = "row_remap_pending"
    NVLINK_DOWN = "nvlink_down"
    RECOVERY = "recovery"


MOMENTARY = frozenset({FaultKind.XID, FaultKind.ECC})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, at a moment (XID, ECC) or for a span (the others)."""

    kind: FaultKind
    gpus: tuple[int, ...]
    moment: Moment = AT_ONCE
    span: Span = ALWAYS
    code: int = 0
    corrected: int = 0
    uncorrected: int = 0
    location: str = ECC_LOCATIONS[0]
    reason: str = ""
    links: tuple[int, ...] = ()
    action: str = ""


@dataclass(frozen=True, slots=True)
class MigLayout:
    """GPUs in MIG mode, and how they are cut."""

    gpus: tuple[int, ...]
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that the engine needs to know."""

    gpus: int = DEFAULT_GPUS
    model: str = DEFAULT_MODEL
    seed: int = 0
    driver_version: str = DRIVER_VERSION
    cuda_version: str = CUDA_VERSION
    power_limit_watts: int | None = None
    """None: the card's default."""
    workloads: tuple[Workload, ...] = ()
    faults: tuple[Fault, ...] = ()
    mig: tuple[MigLayout, ...] = ()

    def __post_init__(self) -> None:
        try:
            card = find_card(self.model)
        except ValueError as error:
            raise ScenarioError(str(error)) from None
        if not 1 <= self.gpus <= MOST_GPUS:
            raise ScenarioError(f"gpus: {self.gpus} is not allowed; allowed: 1 to {MOST_GPUS}")
        limit = self.power_limit_watts
        if limit is not None and not card.min_watts <= limit <= card.max_watts:
            raise ScenarioError(
                f"power_limit: {limit} W is not allowed on {card.name}; "
                f"allowed: {card.min_watts} to {card.max_watts}"
            )
        self._check_mig(card)
        for number, workload in enumerate(self.workloads, start=1):
            self._check_workload(f"workload {number}", workload)
        for number, fault in enumerate(self.faults, start=1):
            self._check_fault(f"fault {number}", fault, card)

    @property
    def card(self) -> Card:
        return find_card(self.model)

    def layout(self, gpu: int) -> tuple[str, ...] | None:
        """The MIG profiles of this GPU; None when it is not in MIG mode."""
        return next((layout.profiles for layout in self.mig if gpu in layout.gpus), None)

    def _check_gpus(self, where: str, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            if not 0 <= gpu < self.gpus:
                raise ScenarioError(
                    f"{where}: gpus: there is no GPU {gpu} here; allowed: 0 to {self.gpus - 1}"
                )

    def _check_mig(self, card: Card) -> None:
        seen: set[int] = set()
        for number, layout in enumerate(self.mig, start=1):
            where = f"mig {number}"
            self._check_gpus(where, layout.gpus)
            if not card.mig_profiles:
                raise ScenarioError(f"{where}: {card.name} has no MIG mode")
            if twice := seen & set(layout.gpus):
                raise ScenarioError(f"{where}: gpus: GPU {min(twice)} has a layout already")
            seen |= set(layout.gpus)
            _check_profiles(where, layout.profiles, card)

    def _check_workload(self, where: str, workload: Workload) -> None:
        self._check_gpus(where, workload.gpus)
        _check_span(where, workload.span)
        if not 1 <= workload.count <= 100:
            raise ScenarioError(f"{where}: count: {workload.count} is not allowed; allowed: 1 to 100")
        if not 1 <= workload.load_percent <= 100:
            raise ScenarioError(f"{where}: load: {workload.load_percent} is not allowed; allowed: 1 to 100")
        if not 1 <= workload.power_percent <= 100:
            raise ScenarioError(f"{where}: power: {workload.power_percent} is not allowed; allowed: 1 to 100")
        if workload.shape is Shape.IDLE and isinstance(workload.owner, HostOwner):
            raise ScenarioError(f"{where}: owner: without a process only a pod can hold a GPU")
        if workload.kind not in PROCESS_KINDS:
            raise ScenarioError(
                f"{where}: kind: {workload.kind!r} is not known; allowed: {', '.join(PROCESS_KINDS)}"
            )
        for gpu in workload.gpus:
            instances = len(self.layout(gpu) or ("the whole GPU",))
            if not 0 <= workload.instance < instances:
                raise ScenarioError(
                    f"{where}: instance: GPU {gpu} has no MIG instance {workload.instance}; "
                    f"allowed: 0 to {instances - 1}"
                )

    def _check_fault(self, where: str, fault: Fault, card: Card) -> None:
        self._check_gpus(where, fault.gpus)
        if fault.kind in MOMENTARY:
            _check_every(where, fault.moment.every, 1)
        else:
            _check_span(where, fault.span)
        if lacking := _lacking(fault, card):
            raise ScenarioError(f"{where}: kind: {fault.kind} cannot be, {card.name} has no {lacking}")
        if fault.kind is FaultKind.XID and not 1 <= fault.code <= 999:
            raise ScenarioError(f"{where}: code: {fault.code} is not allowed; allowed: 1 to 999")
        if fault.kind is FaultKind.ECC and fault.corrected + fault.uncorrected == 0:
            raise ScenarioError(f"{where}: needs corrected or uncorrected, at least 1")
        for key, value, allowed in (
            ("reason", fault.reason, FAULT_THROTTLES),
            ("action", fault.action, RECOVERY_ACTIONS),
            ("location", fault.location, ECC_LOCATIONS),
        ):
            if value and value not in allowed:
                raise ScenarioError(f"{where}: {key}: {value!r} is not known; allowed: {', '.join(allowed)}")
        for link in fault.links:
            if not 0 <= link < card.nvlinks:
                raise ScenarioError(
                    f"{where}: links: there is no link {link}; allowed: 0 to {card.nvlinks - 1}"
                )


def _lacking(fault: Fault, card: Card) -> str | None:
    """What the card would need to have this fault and has not."""
    if fault.kind is FaultKind.ECC and card.ecc != "on":
        return "ECC"
    if fault.kind is FaultKind.ROW_REMAP_PENDING and not (card.remap_banks or card.retires_pages):
        return "spare memory rows"
    if fault.kind is FaultKind.NVLINK_DOWN and not card.nvlinks:
        return "NVLink"
    if fault.kind is FaultKind.RECOVERY and not card.recovery_action:
        return "recovery action"
    return None


def _check_profiles(where: str, profiles: tuple[str, ...], card: Card) -> None:
    known = {profile.name: profile for profile in card.mig_profiles}
    chosen: list[MigProfile] = []
    for name in profiles:
        if name not in known:
            raise ScenarioError(f"{where}: profiles: {name!r} is not known; allowed: {', '.join(known)}")
        chosen.append(known[name])
        if profiles.count(name) > known[name].most:
            raise ScenarioError(f"{where}: profiles: at most {known[name].most} of {name} fit on one GPU")
    if not chosen:
        raise ScenarioError(f"{where}: profiles: needs at least one; allowed: {', '.join(known)}")
    if sum(p.slices for p in chosen) > 7 or sum(p.memory_slices for p in chosen) > 8:
        raise ScenarioError(f"{where}: profiles: {' + '.join(profiles)} do not fit on one GPU")


def _check_span(where: str, span: Span) -> None:
    if span.stop is not None and span.stop <= span.start:
        raise ScenarioError(f"{where}: stop: {span.stop} s is not after start ({span.start} s)")
    if span.every is not None and span.stop is None:
        raise ScenarioError(f"{where}: every: needs a stop as well")
    length = 1 if span.stop is None else span.stop - span.start
    _check_every(where, span.every, length)


def _check_every(where: str, every: int | None, length: int) -> None:
    if every is None:
        return
    if every < 1 or DAY % every:
        raise ScenarioError(
            f"{where}: every: {every} s does not divide a day; allowed: such as 10m, 1h, 6h or 1d"
        )
    if every < length:
        raise ScenarioError(f"{where}: every: {every} s is shorter than what it repeats ({length} s)")
