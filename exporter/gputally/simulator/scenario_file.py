"""Scenario files: TOML to `Scenario`, or an error in one line.

The format is described in docs/simulator.md.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gputally.model import RECOVERY_ACTIONS
from gputally.simulator.ownership import HOST_KINDS, HostOwner, PodOwner
from gputally.simulator.scenario import (
    CUDA_VERSION,
    DEFAULT_GPUS,
    DEFAULT_MARGIN_CELSIUS,
    DEFAULT_MODEL,
    ECC_LOCATIONS,
    FABRIC_FAULTS,
    FAULT_THROTTLES,
    LEAST_RATE,
    MOMENTARY,
    MOST_GPUS,
    MOST_RATE,
    SOURCES,
    GpuFault,
    GpuFaultKind,
    Memory,
    MigLayout,
    Scenario,
    ScenarioError,
    Shape,
    Workload,
)
from gputally.simulator.schedule import Moment, Span

T = TypeVar("T")

_TOP = (
    "gpus",
    "model",
    "seed",
    "driver_version",
    "cuda_version",
    "power_limit",
    "workload",
    "fault",
    "mig",
)
_WORKLOAD = (
    "shape",
    "gpus",
    "start",
    "stop",
    "every",
    "count",
    "memory",
    "leak",
    "load",
    "power",
    "name",
    "kind",
    "video",
    "instance",
    "pod",
    "container",
    "controller",
    "requested",
    "owner",
)
_FAULT = {
    GpuFaultKind.XID: ("at", "every", "code"),
    GpuFaultKind.ECC: ("at", "every", "corrected", "uncorrected", "location"),
    GpuFaultKind.THROTTLE: ("start", "stop", "every", "reason"),
    GpuFaultKind.LOST: ("start", "stop", "every"),
    GpuFaultKind.ROW_REMAP_PENDING: ("start", "stop", "every"),
    GpuFaultKind.NVLINK_DOWN: ("start", "stop", "every", "links"),
    GpuFaultKind.RECOVERY: ("start", "stop", "every", "action"),
    GpuFaultKind.ROW_REMAP_FAILURE: ("start", "stop", "every"),
    GpuFaultKind.RAS: ("at", "every", "block", "type", "count"),
    GpuFaultKind.XGMI_DOWN: ("start", "stop", "every", "links"),
    GpuFaultKind.NVLINK_ERRORS: ("start", "stop", "every", "links", "type", "rate"),
    GpuFaultKind.PCIE_DEGRADED: ("start", "stop", "every", "generation", "width"),
    GpuFaultKind.PCIE_REPLAYS: ("start", "stop", "every", "rate"),
    GpuFaultKind.HOT: ("start", "stop", "every", "margin"),
    GpuFaultKind.ENERGY_STUCK: ("start", "stop", "every"),
    GpuFaultKind.FABRIC: ("start", "stop", "every", "problem"),
    GpuFaultKind.SOURCE_DOWN: ("start", "stop", "every", "source"),
}
_LINKED = {GpuFaultKind.NVLINK_DOWN, GpuFaultKind.NVLINK_ERRORS, GpuFaultKind.XGMI_DOWN}
_TYPED = {GpuFaultKind.RAS, GpuFaultKind.NVLINK_ERRORS}
_RATED = {GpuFaultKind.PCIE_REPLAYS, GpuFaultKind.NVLINK_ERRORS}
_MIG = ("gpus", "profiles")

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,7})\s*(%|MiB|GiB)", re.ASCII)

# Names as Kubernetes allows them.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")


def load_scenario(
    path: Path, *, gpus: int | None = None, model: str | None = None, seed: int | None = None
) -> Scenario:
    """The scenario in the file; arguments override it."""
    import tomllib  # noqa: PLC0415  # only needed with a scenario file

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: is not TOML: {error}") from None
    given = {"gpus": gpus, "model": model, "seed": seed}
    try:
        return parse_scenario(data | {key: value for key, value in given.items() if value is not None})
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def parse_scenario(data: Mapping[str, Any]) -> Scenario:
    """The scenario that these tables describe; ScenarioError names the table, the key and what is allowed."""
    top = _TomlTable("", data, _TOP)
    model: str | tuple[str, ...] = DEFAULT_MODEL
    model = top.get("model", model, _models)
    gpus = top.get("gpus", DEFAULT_GPUS if isinstance(model, str) else len(model), _gpu_count)
    return Scenario(
        gpus=gpus,
        model=model,
        seed=top.get("seed", 0, _integer),
        driver_version=top.get("driver_version", None, _version),
        cuda_version=top.get("cuda_version", CUDA_VERSION, _version),
        power_limit_watts=top.get("power_limit", None, _integer),
        workloads=tuple(_workload(table, gpus) for table in top.tables("workload", _WORKLOAD)),
        faults=tuple(_fault(table, gpus) for table in top.tables("fault", None)),
        mig=tuple(_mig_layout(table, gpus) for table in top.tables("mig", _MIG)),
    )


class _TomlTable:
    """One table of the file: returns validated values and names itself in errors."""

    def __init__(self, where: str, data: Mapping[str, Any], allowed: tuple[str, ...] | None) -> None:
        self._prefix = f"{where}: " if where else ""
        self._data = data
        if allowed is not None:
            self.allow(allowed)

    def allow(self, keys: tuple[str, ...]) -> None:
        for key in self._data:
            if key not in keys:
                name = key if key.isprintable() else repr(key)
                raise ScenarioError(f"{self._prefix}{name}: is not known; allowed: {', '.join(keys)}")

    def refuse(self, keys: tuple[str, ...], reason: str) -> None:
        for key in keys:
            if key in self._data:
                raise ScenarioError(f"{self._prefix}{key}: {reason}")

    def get(self, key: str, default: T, check: Callable[[Any], T]) -> T:
        return default if key not in self._data else self.need(key, check)

    def need(self, key: str, check: Callable[[Any], T]) -> T:
        if key not in self._data:
            raise ScenarioError(f"{self._prefix}{key}: is missing")
        try:
            return check(self._data[key])
        except ValueError as error:
            raise ScenarioError(f"{self._prefix}{key}: {self._data[key]!r} is not allowed; {error}") from None

    def tables(self, key: str, allowed: tuple[str, ...] | None) -> "list[_TomlTable]":
        rows = self._data.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ScenarioError(f"{self._prefix}{key}: is not a list of tables; write [[{key}]]")
        return [_TomlTable(f"{key} {number}", row, allowed) for number, row in enumerate(rows, start=1)]


def _workload(table: _TomlTable, gpus: int) -> Workload:
    shape = Shape(table.need("shape", _one_of(*Shape)))
    return Workload(
        shape=shape,
        gpus=table.get("gpus", tuple(range(gpus)), _indexes(gpus)),
        span=_span(table),
        count=table.get("count", 1, _integer),
        memory=table.get("memory", None, _memory),
        leak_mib=table.get("leak", 0, _mebibytes),
        load_percent=table.get("load", 100, _percent),
        power_percent=table.get("power", 100, _percent),
        name=table.get("name", None, _text),
        kind=table.get("kind", "compute", _text),
        video=table.get("video", False, _flag),
        instance=table.get("instance", 0, _integer),
        owner=_owner(table, shape),
    )


def _owner(table: _TomlTable, shape: Shape) -> PodOwner | HostOwner | None:
    pod = table.get("pod", None, _pod)
    if pod is None:
        table.refuse(("container", "controller", "requested"), "needs a pod as well")
        return table.get("owner", None, _host_owner)
    table.refuse(("owner",), "is the pod already")
    return PodOwner(
        *pod,
        container=table.get("container", "main", _container),
        controller=table.get("controller", "", _controller),
        requested=table.get("requested", shape is not Shape.UNREQUESTED, _flag),
    )


def _fault(table: _TomlTable, gpus: int) -> GpuFault:
    kind = GpuFaultKind(table.need("kind", _one_of(*GpuFaultKind)))
    # A source is always down for all GPUs.
    of_gpus = kind is not GpuFaultKind.SOURCE_DOWN
    table.allow(("kind", *(["gpus"] if of_gpus else []), *_FAULT[kind]))
    momentary = kind in MOMENTARY
    return GpuFault(
        kind=kind,
        gpus=table.get("gpus", tuple(range(gpus)), _indexes(gpus)) if of_gpus else (),
        moment=Moment(table.need("at", _seconds), table.get("every", None, _seconds))
        if momentary
        else Moment(0),
        span=Span() if momentary else _span(table),
        code=table.need("code", _integer) if kind is GpuFaultKind.XID else 0,
        corrected=table.get("corrected", 0, _count),
        uncorrected=table.get("uncorrected", 0, _count),
        location=table.get("location", ECC_LOCATIONS[0], _one_of(*ECC_LOCATIONS)),
        reason=table.need("reason", _one_of(*FAULT_THROTTLES)) if kind is GpuFaultKind.THROTTLE else "",
        links=table.need("links", _integers) if kind in _LINKED else (),
        action=table.need("action", _one_of(*RECOVERY_ACTIONS)) if kind is GpuFaultKind.RECOVERY else "",
        problem=table.need("problem", _one_of(*FABRIC_FAULTS)) if kind is GpuFaultKind.FABRIC else "",
        block=table.need("block", _text) if kind is GpuFaultKind.RAS else "",
        type=table.need("type", _text) if kind in _TYPED else "",
        count=table.get("count", 1, _at_least_one),
        rate=table.need("rate", _rate) if kind in _RATED else 0.0,
        generation=table.get("generation", None, _integer),
        width=table.get("width", None, _integer),
        margin_celsius=table.get("margin", DEFAULT_MARGIN_CELSIUS, _integer),
        source=table.get("source", SOURCES[0], _one_of(*SOURCES)) if not of_gpus else "",
    )


def _mig_layout(table: _TomlTable, gpus: int) -> MigLayout:
    return MigLayout(
        gpus=table.get("gpus", tuple(range(gpus)), _indexes(gpus)), profiles=table.need("profiles", _texts)
    )


def _span(table: _TomlTable) -> Span:
    return Span(
        table.get("start", 0, _seconds), table.get("stop", None, _seconds), table.get("every", None, _seconds)
    )


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("allowed: a whole number")
    return value


def _gpu_count(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_GPUS:
        raise ValueError(f"allowed: 1 to {MOST_GPUS}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 1_000_000:
        raise ValueError("allowed: a whole number, 0 to 1000000")
    return value


def _at_least_one(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise ValueError("allowed: a whole number, 1 to 1000000")
    return value


def _rate(value: Any) -> float:
    if type(value) not in (int, float) or not LEAST_RATE <= value <= MOST_RATE:
        raise ValueError(f"allowed: {LEAST_RATE:g} to {MOST_RATE:g} in a second")
    return float(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("allowed: true, false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("allowed: text on one line")
    return value


def _models(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return tuple(item.lower() for item in value)
    if not isinstance(value, str):
        raise ValueError("allowed: the name of a model, or a list with one for each GPU")
    return value.lower()


def _pod(value: Any) -> tuple[str, str]:
    namespace, _, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not _LABEL.fullmatch(namespace) or not _NAME.fullmatch(_unnumbered(name)):
        raise ValueError('allowed: namespace/name, such as "vision/train-0"')
    return namespace, name


def _container(value: Any) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise ValueError('allowed: the name of a container, such as "main"')
    return value


def _controller(value: Any) -> str:
    kind, _, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not _KIND.fullmatch(kind) or not _NAME.fullmatch(_unnumbered(name)):
        raise ValueError('allowed: Kind/name, such as "Job/pretrain"')
    return f"{kind}/{name}"


def _host_owner(value: Any) -> HostOwner:
    kind, _, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if kind not in HOST_KINDS or not name or not name.isprintable():
        raise ValueError(f'allowed: kind/name, such as "slurm/42", of {", ".join(HOST_KINDS)}')
    return HostOwner(kind, name)


def _unnumbered(name: str) -> str:
    """The name as in the first run."""
    return name.replace("{run}", "0")


def _version(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,3}", value, re.ASCII):
        raise ValueError('allowed: numbers with dots between, such as "580.95.05"')
    return value


def _percent(value: Any) -> int:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] != "%":
        raise ValueError('allowed: a share such as "60%"')
    return int(match[1])


def _memory(value: Any) -> Memory:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError('allowed: such as "60%", "512MiB", "24GiB"')
    amount = int(match[1])
    if match[2] == "%":
        if amount > 100:
            raise ValueError("allowed: at most 100%")
        return Memory(percent=amount)
    return Memory(mib=amount * (1024 if match[2] == "GiB" else 1))


def _mebibytes(value: Any) -> int:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] == "%":
        raise ValueError('allowed: such as "512MiB", "1GiB" in an hour')
    return _memory(value).mib or 0


def _seconds(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str) and value and (match := _DURATION.fullmatch(value)):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    raise ValueError('allowed: whole seconds, or text such as "90s", "5m", "1h30m", "2d"')


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or any(type(item) is not int for item in value):
        raise ValueError("allowed: a list of whole numbers")
    return tuple(sorted(set(value)))


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("allowed: a list of texts")
    return tuple(value)


def _indexes(gpus: int) -> Callable[[Any], tuple[int, ...]]:
    def check(value: Any) -> tuple[int, ...]:
        if value == "all":
            return tuple(range(gpus))
        try:
            return _integers(value)
        except ValueError:
            raise ValueError('allowed: "all", or a list such as [0, 1]') from None

    return check


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"allowed: {', '.join(allowed)}")
        return str(value)

    return check
