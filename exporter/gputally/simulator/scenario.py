"""A scenario: its GPUs, workloads, faults and their schedule.

A `Scenario` is validated when it is created. `scenario_file` reads files; without a file,
`default_scenario` applies.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from gputally.model import FABRIC_PROBLEMS, RECOVERY_ACTIONS, THROTTLE_REASONS
from gputally.simulator import MODEL_NAMES
from gputally.simulator.amd_models import AMD_MODELS
from gputally.simulator.gpu_models import AmdModel, AnyModel, GpuModel, MigProfile, NvidiaModel
from gputally.simulator.nvidia_models import NVIDIA_MODELS
from gputally.simulator.ownership import HostOwner, PodOwner
from gputally.simulator.schedule import DAY, Moment, Span

GPU_MODELS: dict[str, AnyModel] = {**NVIDIA_MODELS, **AMD_MODELS}
"""By their names on the command line and in scenario files."""
MOST_GPUS = 1024
DEFAULT_GPUS = 8
DEFAULT_MODEL = "h100"
CUDA_VERSION = "13.0"

PROCESS_KINDS = ("compute", "graphics", "mps")
SOURCES = ("simulated", "simulated_pods")
"""The reader of the GPUs, and the pod source."""
PCIE_WIDTHS = (1, 2, 4, 8, 12, 16)
LEAST_RATE, MOST_RATE = 0.001, 1000.0
DEFAULT_MARGIN_CELSIUS = 3
ECC_LOCATIONS = ("device_memory", "l2_cache")
FABRIC_FAULTS = ("not_completed", "failed", *FABRIC_PROBLEMS)
"""The registration is not completed, or has failed; or a problem of the fabric."""
FAULT_THROTTLES = tuple(reason for reason in THROTTLE_REASONS if reason != "gpu_idle")
ALWAYS = Span()
AT_ONCE = Moment(0)


class ScenarioError(ValueError):
    """The scenario is invalid; the text names the error and what is allowed, in one line."""


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
        """In MiB, out of `available_mib`."""
        return self.mib if self.mib is not None else available_mib * (self.percent or 0) // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload on each of the named GPUs."""

    shape: Shape
    gpus: tuple[int, ...]
    span: Span = ALWAYS
    count: int = 1
    """Processes on each GPU."""
    memory: Memory | None = None
    """None: the default of the shape."""
    leak_mib: int = 0
    """Additional memory in each hour that it runs."""
    load_percent: int = 100
    """Load relative to the default of the shape."""
    power_percent: int = 100
    """Power relative to the default of the shape: 60 is typical for memory-bound work."""
    name: str | None = None
    kind: str = "compute"
    video: bool = False
    """It also decodes and encodes video."""
    instance: int = 0
    """The MIG instance that it runs in, on GPUs in MIG mode."""
    owner: PodOwner | HostOwner | None = None
    """None: unknown."""


class GpuFaultKind(StrEnum):
    """The kinds of faults."""

    XID = "xid"
    ECC = "ecc"
    THROTTLE = "throttle"
    LOST = "lost"
    ROW_REMAP_PENDING = "row_remap_pending"
    NVLINK_DOWN = "nvlink_down"
    RECOVERY = "recovery"
    ROW_REMAP_FAILURE = "row_remap_failure"
    RAS = "ras"
    XGMI_DOWN = "xgmi_down"
    NVLINK_ERRORS = "nvlink_errors"
    PCIE_DEGRADED = "pcie_degraded"
    PCIE_REPLAYS = "pcie_replays"
    HOT = "hot"
    ENERGY_STUCK = "energy_stuck"
    FABRIC = "fabric"
    SOURCE_DOWN = "source_down"


MOMENTARY = frozenset({GpuFaultKind.XID, GpuFaultKind.ECC, GpuFaultKind.RAS})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFault:
    """One fault, at a moment (XID, ECC, RAS) or for a span (the others)."""

    kind: GpuFaultKind
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
    block: str = ""
    """The block of an AMD GPU that has the errors."""
    type: str = ""
    """Of RAS or NVLink errors."""
    count: int = 1
    """RAS errors each time."""
    rate: float = 0.0
    """Errors in each second."""
    generation: int | None = None
    width: int | None = None
    problem: str = ""
    """Of the NVLink fabric: one of FABRIC_FAULTS."""
    margin_celsius: int = DEFAULT_MARGIN_CELSIUS
    """Degrees below the slowdown temperature."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class MigLayout:
    """GPUs in MIG mode, and their profiles."""

    gpus: tuple[int, ...]
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All input of the engine."""

    gpus: int = DEFAULT_GPUS
    model: str | tuple[str, ...] = DEFAULT_MODEL
    """Of all GPUs, or of each."""
    seed: int = 0
    driver_version: str | None = None
    """None: the default of the model."""
    cuda_version: str = CUDA_VERSION
    power_limit_watts: int | None = None
    """None: the default of the model."""
    workloads: tuple[Workload, ...] = ()
    faults: tuple[GpuFault, ...] = ()
    mig: tuple[MigLayout, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.gpus <= MOST_GPUS:
            raise ScenarioError(f"gpus: {self.gpus} is not allowed; allowed: 1 to {MOST_GPUS}")
        if not isinstance(self.model, str) and len(self.model) != self.gpus:
            raise ScenarioError(f"model: {len(self.model)} models are not one for each of {self.gpus} GPUs")
        for card in self._cards(range(self.gpus)):
            self._check_power_limit(card)
        self._check_mig()
        for number, workload in enumerate(self.workloads, start=1):
            self._check_workload(f"workload {number}", workload)
        for number, fault in enumerate(self.faults, start=1):
            self._check_fault(f"fault {number}", fault)

    def card(self, gpu: int) -> AnyModel:
        try:
            return find_model(self.model if isinstance(self.model, str) else self.model[gpu])
        except ValueError as error:
            raise ScenarioError(str(error)) from None

    def layout(self, gpu: int) -> tuple[str, ...] | None:
        """The MIG profiles of this GPU; None when it is not in MIG mode."""
        return next((layout.profiles for layout in self.mig if gpu in layout.gpus), None)

    def _check_gpus(self, where: str, gpus: Iterable[int]) -> None:
        for gpu in gpus:
            if not 0 <= gpu < self.gpus:
                raise ScenarioError(
                    f"{where}: gpus: there is no GPU {gpu} here; allowed: 0 to {self.gpus - 1}"
                )

    def _cards(self, gpus: Iterable[int]) -> Iterator[AnyModel]:
        """The models of these GPUs, each once."""
        yield from {card.name: card for card in map(self.card, gpus)}.values()

    def _check_power_limit(self, card: GpuModel) -> None:
        limit = self.power_limit_watts
        if limit is not None and not card.least_limit_watts <= limit <= card.max_watts:
            raise ScenarioError(
                f"power_limit: {limit} W is not allowed on {card.name}; "
                f"allowed: {card.least_limit_watts} to {card.max_watts}"
            )

    def _check_mig(self) -> None:
        seen: set[int] = set()
        for number, layout in enumerate(self.mig, start=1):
            where = f"mig {number}"
            self._check_gpus(where, layout.gpus)
            if twice := seen & set(layout.gpus):
                raise ScenarioError(f"{where}: gpus: GPU {min(twice)} has a layout already")
            seen |= set(layout.gpus)
            for card in self._cards(layout.gpus):
                if not card.mig_profiles:
                    raise ScenarioError(f"{where}: {card.name} has no MIG mode")
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
        if workload.shape is Shape.IDLE and workload.leak_mib:
            raise ScenarioError(f"{where}: leak: without a process nothing leaks")
        if workload.shape is Shape.IDLE and isinstance(workload.owner, HostOwner):
            raise ScenarioError(f"{where}: owner: without a process only a pod can hold a GPU")
        if workload.kind not in PROCESS_KINDS:
            raise ScenarioError(
                f"{where}: kind: {workload.kind!r} is not known; allowed: {', '.join(PROCESS_KINDS)}"
            )
        if workload.kind == "mps" and any(
            not isinstance(card, NvidiaModel) for card in self._cards(workload.gpus)
        ):
            raise ScenarioError(f"{where}: kind: mps is NVIDIA's")
        for gpu in workload.gpus:
            instances = len(self.layout(gpu) or ("the whole GPU",))
            if not 0 <= workload.instance < instances:
                raise ScenarioError(
                    f"{where}: instance: GPU {gpu} has no MIG instance {workload.instance}; "
                    f"allowed: 0 to {instances - 1}"
                )

    def _check_fault(self, where: str, fault: GpuFault) -> None:
        self._check_gpus(where, fault.gpus)
        if fault.kind in MOMENTARY:
            _check_every(where, fault.moment.every, 1)
        else:
            _check_span(where, fault.span)
        if fault.kind is GpuFaultKind.XID and not 1 <= fault.code <= 999:
            raise ScenarioError(f"{where}: code: {fault.code} is not allowed; allowed: 1 to 999")
        if fault.kind is GpuFaultKind.ECC and fault.corrected + fault.uncorrected == 0:
            raise ScenarioError(f"{where}: needs corrected or uncorrected, at least 1")
        if fault.kind is GpuFaultKind.PCIE_DEGRADED and fault.generation is None and fault.width is None:
            raise ScenarioError(f"{where}: needs generation or width")
        if not 0 <= fault.margin_celsius <= 20:
            raise ScenarioError(f"{where}: margin: {fault.margin_celsius} is not allowed; allowed: 0 to 20")
        for card in self._cards(fault.gpus):
            _check_fault_on(where, fault, card)


def find_model(model: str) -> AnyModel:
    """The model of that name, in upper or lower case; ValueError lists the allowed names."""
    card = GPU_MODELS.get(model.lower())
    if card is None:
        raise ValueError(f"model {model!r} is not known; allowed: {', '.join(MODEL_NAMES)}")
    return card


def _check_fault_on(where: str, fault: GpuFault, card: AnyModel) -> None:
    if lacking := _lacking(fault.kind, card):
        raise ScenarioError(f"{where}: kind: {fault.kind} cannot be, {card.name} has no {lacking}")
    for key, value, allowed in (
        ("reason", fault.reason, tuple(reason for reason in card.throttle_reasons if reason != "gpu_idle")),
        ("action", fault.action, RECOVERY_ACTIONS),
        ("location", fault.location, ECC_LOCATIONS),
        ("block", fault.block, card.ras_blocks if isinstance(card, AmdModel) else ()),
        ("type", fault.type, _error_types(card)),
        ("problem", fault.problem, _fabric_faults(card)),
    ):
        if value and value not in allowed:
            raise ScenarioError(f"{where}: {key}: {value!r} is not known; allowed: {', '.join(allowed)}")
    for link in fault.links:
        if not 0 <= link < card.links:
            raise ScenarioError(f"{where}: links: there is no link {link}; allowed: 0 to {card.links - 1}")
    if fault.generation is not None and not 1 <= fault.generation <= card.pcie_generation:
        raise ScenarioError(
            f"{where}: generation: {fault.generation} is not allowed; allowed: 1 to {card.pcie_generation}"
        )
    widths = [width for width in PCIE_WIDTHS if width <= card.pcie_width]
    if fault.width is not None and fault.width not in widths:
        raise ScenarioError(
            f"{where}: width: {fault.width} is not allowed; allowed: {', '.join(map(str, widths))}"
        )


def _error_types(card: AnyModel) -> tuple[str, ...]:
    """The types of errors that the model counts."""
    return card.ras_types if isinstance(card, AmdModel) else card.nvlink_errors


def _fabric_faults(card: AnyModel) -> tuple[str, ...]:
    """What can be wrong with the NVLink fabric of the model."""
    tells_problems = isinstance(card, NvidiaModel) and card.fabric_health
    return tuple(fault for fault in FABRIC_FAULTS if tells_problems or fault not in FABRIC_PROBLEMS)


def _lacking(kind: GpuFaultKind, card: AnyModel) -> str | None:
    """The capability that this fault needs and the model lacks."""
    nvidia = card if isinstance(card, NvidiaModel) else None
    amd = card if isinstance(card, AmdModel) else None
    has: dict[GpuFaultKind, tuple[str, object]] = {
        GpuFaultKind.XID: ("XID errors", nvidia),
        GpuFaultKind.ECC: (
            "ECC by location: take ras" if amd and amd.ras_blocks else "ECC",
            nvidia and nvidia.ecc == "on",
        ),
        GpuFaultKind.ROW_REMAP_PENDING: (
            "spare memory rows",
            nvidia and (nvidia.remap_banks or nvidia.retires_pages),
        ),
        GpuFaultKind.ROW_REMAP_FAILURE: ("spare memory rows", nvidia and nvidia.remap_banks),
        GpuFaultKind.NVLINK_DOWN: ("NVLink", nvidia and nvidia.links),
        GpuFaultKind.NVLINK_ERRORS: ("NVLink", nvidia and nvidia.links),
        GpuFaultKind.RECOVERY: ("recovery action", nvidia and nvidia.recovery_action),
        GpuFaultKind.FABRIC: ("NVLink fabric", nvidia and nvidia.fabric),
        GpuFaultKind.RAS: ("RAS errors", amd and amd.ras_blocks),
        GpuFaultKind.XGMI_DOWN: ("XGMI links", amd and amd.links),
        GpuFaultKind.ENERGY_STUCK: ("energy counter", card.energy_counter),
    }
    what, there = has.get(kind, ("", True))
    return None if there else what


def _check_profiles(where: str, profiles: tuple[str, ...], card: GpuModel) -> None:
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
