"""The fields of the model and their columns in nvidia-smi."""

from collections.abc import Iterable
from typing import Any

from gputally.devices import Errors
from gputally.devices.nvidia_smi.csv_tables import CellValue, TableRow, Unreadable, canonical, parse_value
from gputally.model import (
    COMPUTE_MODES,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    Gpu,
    Labels,
    Reading,
    state_set,
)

_IDENTITY = (
    "uuid",
    "index",
    "name",
    "pci.bus_id",
    "serial",
    "vbios_version",
    "driver_version",
    "compute_cap",
)

# The first column that has a value fills the field.
_SCALARS: dict[str, tuple[str, ...]] = {
    "gpu_utilization_ratio": ("utilization.gpu",),
    "memory_utilization_ratio": ("utilization.memory",),
    "encoder_utilization_ratio": ("utilization.encoder",),
    "decoder_utilization_ratio": ("utilization.decoder",),
    "jpeg_utilization_ratio": ("utilization.jpeg",),
    "ofa_utilization_ratio": ("utilization.ofa",),
    "memory_total_bytes": ("memory.total",),
    "memory_used_bytes": ("memory.used",),
    "memory_free_bytes": ("memory.free",),
    "memory_reserved_bytes": ("memory.reserved",),
    "power_watts": ("power.draw", "power.draw.average", "power.draw.instant"),
    "power_limit_watts": ("power.limit",),
    "power_enforced_limit_watts": ("enforced.power.limit",),
    "power_default_limit_watts": ("power.default_limit",),
    "power_min_limit_watts": ("power.min_limit",),
    "power_max_limit_watts": ("power.max_limit",),
    "temperature_celsius": ("temperature.gpu",),
    "memory_temperature_celsius": ("temperature.memory",),
    "temperature_margin_celsius": ("temperature.gpu.tlimit",),
    "performance_state": ("pstate",),
    "retired_pages_pending": ("retired_pages.pending",),
    "pcie_generation": ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
    "pcie_generation_max": ("pcie.link.gen.max",),
    "pcie_width": ("pcie.link.width.current",),
    "pcie_width_max": ("pcie.link.width.max",),
    "persistence_mode": ("persistence_mode",),
    "accounting_mode": ("accounting.mode",),
    "ecc_mode": ("ecc.mode.current",),
    "mig_mode": ("mig.mode.current",),
}

_ECC_TYPES = ("corrected", "uncorrected")
_ECC_LIFETIMES = ("volatile", "aggregate")
_ECC_LOCATIONS = (
    "device_memory",
    "dram",
    "register_file",
    "l1_cache",
    "l2_cache",
    "texture_memory",
    "cbu",
    "sram",
)
_LABELLED: dict[str, dict[Labels, str]] = {
    "clock_hertz": {
        (domain,): f"clocks.current.{domain}" for domain in ("graphics", "sm", "memory", "video")
    },
    "clock_max_hertz": {(domain,): f"clocks.max.{domain}" for domain in ("graphics", "sm", "memory")},
    "clock_application_hertz": {
        (domain,): f"clocks.applications.{domain}" for domain in ("graphics", "memory")
    },
    "fan_speed_ratio": {("0",): "fan.speed"},
    "throttle_active": {(reason,): f"clocks_event_reasons.{reason}" for reason in THROTTLE_REASONS},
    "throttle_seconds": {(reason,): f"clocks_event_reasons_counters.{reason}" for reason in THROTTLE_REASONS},
    "ecc_errors": {
        (kind, lifetime): f"ecc.errors.{kind}.{lifetime}.total"
        for kind in _ECC_TYPES
        for lifetime in _ECC_LIFETIMES
    },
    "ecc_location_errors": {
        (kind, lifetime, location): f"ecc.errors.{kind}.{lifetime}.{location}"
        for kind in _ECC_TYPES
        for lifetime in _ECC_LIFETIMES
        for location in _ECC_LOCATIONS
    },
    "retired_pages": {
        ("single_bit",): "retired_pages.single_bit_ecc.count",
        ("double_bit",): "retired_pages.double_bit.count",
    },
}

# field -> column, all states, the tool's name of a state where it differs
_STATES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "compute_mode": ("compute_mode", COMPUTE_MODES, {}),
    "recovery_action": (
        "gpu_recovery_action",
        RECOVERY_ACTIONS,
        {"reset": "gpu_reset", "reboot": "node_reboot"},
    ),
}

FILLS = frozenset({*_SCALARS, *_LABELLED, *_STATES})

_MASKS = ("clocks_event_reasons.supported", "clocks_event_reasons.active")

WANTED = (
    *_IDENTITY,
    *(column for columns in _SCALARS.values() for column in columns),
    *(column for columns in _LABELLED.values() for column in columns.values()),
    *(column for column, _, _ in _STATES.values()),
    *_MASKS,
)

_LOST = "GPU is lost"
# A GPU that has fallen off the bus may keep values that the driver caches; it has none of these.
_VITAL_SIGNS = (
    "temperature.gpu",
    "power.draw",
    "utilization.gpu",
    "memory.used",
    "clocks.current.sm",
    "pstate",
)


def choose_columns(offered: Iterable[tuple[str, ...]], *, every: bool = False) -> tuple[str, ...]:
    """The columns to ask for, by the driver's names: the wanted ones, then all others where asked for.

    `offered` has all names of each column of the driver.
    """
    offered = tuple(offered)
    known = [name for names in offered for name in names]
    by_wanted = {canonical(name): name for name in known} | {name: name for name in known}
    wanted = tuple(by_wanted[column] for column in WANTED if column in by_wanted)
    if not every:
        return wanted
    return wanted + tuple(names[0] for names in offered if not set(names) & set(wanted))


def build_gpu(row: TableRow, cuda_version: str | None) -> Gpu | None:
    """Identity of the row's GPU; None when it has no uuid or index."""
    uuid, index = _text(row, "uuid"), _value(row, "index")
    if uuid is None or not isinstance(index, int):
        return None
    return Gpu(
        uuid=uuid,
        index=index,
        vendor="nvidia",
        model=_text(row, "name") or "unknown",
        pci_bus_id=_text(row, "pci.bus_id"),
        serial=_text(row, "serial"),
        vbios_version=_text(row, "vbios_version"),
        driver_version=_text(row, "driver_version"),
        cuda_version=cuda_version,
        compute_capability=_text(row, "compute_cap"),
    )


def is_lost(row: TableRow) -> bool:
    """Whether the tool reports it as lost, or all of its vital signs are errors."""
    if any(_LOST in text for text in row.values()):
        return True
    signs = [value for column in _VITAL_SIGNS if (value := _value(row, column)) is not None]
    return bool(signs) and all(isinstance(value, Unreadable) for value in signs)


def build_reading(gpu: Gpu, row: TableRow, errors: Errors) -> Reading:
    """The values of a row. Unreadable values are left out and counted in `errors`."""
    fields: dict[str, Any] = {}
    for field, columns in _SCALARS.items():
        fields[field] = _first(field, [_value(row, column) for column in columns], errors)
    for field, labelled in _LABELLED.items():
        values: dict[Labels, float] = {}
        for labels, column in labelled.items():
            value = _first(field, [_value(row, column)], errors)
            if value is not None:
                values[labels] = float(value)
        fields[field] = values
    _add_masked_reasons(fields["throttle_active"], row)
    for field in _LABELLED:
        fields[field] = fields[field] or None
    for field, (column, states, words) in _STATES.items():
        text = _first(field, [_value(row, column)], errors)
        if text is None:
            continue
        state = str(text).lower().replace(" ", "_")
        state = words.get(state, state)
        if state in states:
            fields[field] = state_set(states, state)
        else:
            errors[field, "unknown_state"] += 1
    return Reading(gpu=gpu, **fields)


def _add_masked_reasons(active: dict[Labels, float], row: TableRow) -> None:
    """Adds the reasons without a column, from the bit mask; the names are in the order of the bits."""
    supported, mask = (_value(row, column) for column in _MASKS)
    if not isinstance(supported, int) or not isinstance(mask, int):
        return
    for bit, reason in enumerate(THROTTLE_REASONS):
        if supported >> bit & 1:
            active.setdefault((reason,), float(mask >> bit & 1))


def _value(row: TableRow, column: str) -> CellValue:
    text = row.get(column)
    return None if text is None else parse_value(column, text)


def _text(row: TableRow, column: str) -> str | None:
    value = _value(row, column)
    return value if isinstance(value, str) else None


def _first(field: str, values: list[CellValue], errors: Errors) -> int | float | bool | str | None:
    """The first value; if there is none, the first error is counted."""
    for value in values:
        if value is not None and not isinstance(value, Unreadable):
            return value
    for value in values:
        if isinstance(value, Unreadable):
            errors[field, value.error] += 1
            break
    return None
