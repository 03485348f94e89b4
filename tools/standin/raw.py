"""From the model's base units back to NVML's: what a `Reading` is in a scenario file."""

from collections.abc import Iterable, Mapping
from math import floor

from gputally.model import (
    COMPUTE_MODES,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    AccountedProcess,
    Activity,
    Labelled,
    MigReading,
    Process,
    ProcessSample,
    Reading,
)
from tools.standin.identity import nvlink_version, raw_identity, raw_mig_identity
from tools.standin.labels import (
    BANK_AVAILABILITY,
    CLOCK_DOMAINS,
    DIRECTIONS,
    ECC_LIFETIMES,
    ECC_LOCATIONS,
    ECC_TYPES,
    NVLINK5_ERRORS,
    NVLINK_ERRORS,
    REMAPPING_CAUSES,
    RETIREMENT_CAUSES,
    VIOLATION_OF_REASON,
)

Raw = dict[str, str]

PCIE_THROUGHPUT_UNIT = 1000
MIG_DEVICES_MAX = 7
_NOT_AVAILABLE = 2**64 - 1

_GPM = {
    "graphics": "graphics_active_ratio",
    "sm": "sm_active_ratio",
    "occupancy": "sm_occupancy_ratio",
    "tensor": "tensor_active_ratio",
    "dram": "dram_active_ratio",
    "fp64": "fp64_active_ratio",
    "fp32": "fp32_active_ratio",
    "fp16": "fp16_active_ratio",
}


def raw_gpu(reading: Reading) -> Raw:
    """All keys of a GPU but its process lists, its samples and its MIG devices."""
    pairs: dict[str, str | int | float | None] = {**raw_identity(reading.gpu)}
    if reading.up:
        pairs |= {
            **_utilisation(reading),
            **_memory(reading),
            **_power(reading),
            **_temperatures(reading),
            **_clocks(reading),
            **_memory_health(reading),
            **_pcie(reading),
            **_nvlink(reading),
            **_modes(reading),
            **_activity(reading),
            **{f"xid {xid}": count for xid, count in _plain(reading.xid_errors)},
            "samples": None if reading.process_samples is None else 0,
        }
    return _texts(pairs)


def raw_mig(mig: MigReading) -> Raw:
    """All keys of a MIG device but its process list."""
    return _texts(
        {
            **raw_mig_identity(mig.instance),
            "multiprocessors": mig.multiprocessors,
            **_memory(mig),
            **_activity(mig),
        }
    )


def raw_process(process: Process) -> str:
    """The `process` line."""
    facts = (
        process.pid,
        process.kind,
        *(
            "-" if fact is None else fact
            for fact in (process.memory_used_bytes, process.gpu_instance_id, process.compute_instance_id)
        ),
    )
    return " ".join(["process", *map(str, facts), *([process.name] if process.name else [])])


def raw_sample(sample: ProcessSample, clock_zero: float | None) -> str:
    """The `sample` line; its time is relative to time 0 when that is known."""
    ratios = (sample.sm_ratio, sample.memory_ratio, sample.encoder_ratio, sample.decoder_ratio)
    time = _moment(sample.timestamp_us, clock_zero)
    return " ".join(["sample", str(sample.pid), time, *(str(_percent(ratio or 0.0)) for ratio in ratios)])


def raw_account(ended: AccountedProcess, clock_zero: float | None) -> str:
    """The `account` line of a process that has ended; its start is relative to time 0 when that is known."""
    memory = _NOT_AVAILABLE if ended.memory_peak_bytes is None else ended.memory_peak_bytes
    milliseconds = ended.ran_us // 1000
    started = _moment(ended.started_us, clock_zero)
    return f"account {ended.pid} {_percent(ended.sm_ratio)} 0 {memory} {milliseconds} {started} 0"


def _moment(microseconds: int, clock_zero: float | None) -> str:
    if clock_zero is None:
        return str(microseconds)
    return f"{microseconds - round(clock_zero * 1_000_000):+d}"


def _texts(pairs: Mapping[str, str | int | float | None]) -> Raw:
    for key, value in pairs.items():
        if isinstance(value, str) and (not value.strip() or "\n" in value or value == "-"):
            raise ValueError(f"a scenario cannot hold {key} {value!r}")
    return {key: str(value) for key, value in pairs.items() if value is not None}


def _nearest(value: float) -> int:
    """Halves go up: Python's own rounding would send 0.5 W to 0 mW as often as to 1."""
    return floor(value + 0.5)


def _scaled(value: float | None, factor: float) -> int | None:
    return None if value is None else _nearest(value * factor)


def _percent(ratio: float | None) -> int | None:
    return _scaled(ratio, 100)


def _bit(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _plain(labelled: Labelled | None) -> Iterable[tuple[str, int]]:
    """The values of a field with one label, whole."""
    return ((label, _nearest(value)) for (label,), value in (labelled or {}).items())


def _chosen(labelled: Labelled | None, known: tuple[str, ...], what: str) -> dict[str, float]:
    """The values of a field with one label; a label that NVML cannot express is a mistake."""
    values = {label: value for (label,), value in (labelled or {}).items()}
    if unknown := values.keys() - set(known):
        raise ValueError(f"{what} {sorted(unknown)} has no place in NVML; known: {', '.join(known)}")
    return values


def _current(states: Labelled | None, known: tuple[str, ...], what: str) -> int | None:
    active = [known.index(state) for state, value in _chosen(states, known, what).items() if value]
    return active[0] if active else None


def _utilisation(reading: Reading) -> dict[str, int | None]:
    return {
        "util.gpu": _percent(reading.gpu_utilization_ratio),
        "util.memory": _percent(reading.memory_utilization_ratio),
        "util.encoder": _percent(reading.encoder_utilization_ratio),
        "util.decoder": _percent(reading.decoder_utilization_ratio),
        "util.jpeg": _percent(reading.jpeg_utilization_ratio),
        "util.ofa": _percent(reading.ofa_utilization_ratio),
    }


def _memory(reading: Reading | MigReading) -> dict[str, int | None]:
    values: dict[str, int | None] = {
        "memory.total": reading.memory_total_bytes,
        "memory.used": reading.memory_used_bytes,
        "memory.free": reading.memory_free_bytes,
        "memory.reserved": reading.memory_reserved_bytes,
    }
    if isinstance(reading, Reading):
        values |= {
            "bar1.total": reading.bar1_total_bytes,
            "bar1.used": reading.bar1_used_bytes,
            "bar1.free": reading.bar1_free_bytes,
        }
    return values


def _power(reading: Reading) -> dict[str, int | None]:
    return {
        "power.usage": _scaled(reading.power_watts, 1000),
        "power.limit": _scaled(reading.power_limit_watts, 1000),
        "power.enforced": _scaled(reading.power_enforced_limit_watts, 1000),
        "power.default": _scaled(reading.power_default_limit_watts, 1000),
        "power.min": _scaled(reading.power_min_limit_watts, 1000),
        "power.max": _scaled(reading.power_max_limit_watts, 1000),
        "energy": reading.energy_millijoules,
    }


def _temperatures(reading: Reading) -> dict[str, int | None]:
    return {
        "temp.gpu": _scaled(reading.temperature_celsius, 1),
        "temp.memory": _scaled(reading.memory_temperature_celsius, 1),
        "temp.slowdown": _scaled(reading.temperature_slowdown_celsius, 1),
        "temp.shutdown": _scaled(reading.temperature_shutdown_celsius, 1),
        "temp.margin": _scaled(reading.temperature_margin_celsius, 1),
    }


def _clocks(reading: Reading) -> dict[str, int | None]:
    values: dict[str, int | None] = {}
    for kind, clocks in (
        ("clock", reading.clock_hertz),
        ("clock_max", reading.clock_max_hertz),
        ("clock_app", reading.clock_application_hertz),
    ):
        for domain, hertz in _chosen(clocks, CLOCK_DOMAINS, "clock domain").items():
            values[f"{kind}.{domain}"] = _nearest(hertz / 1_000_000)
    for fan, ratio in (reading.fan_speed_ratio or {}).items():
        values[f"fan.{int(fan[0])}"] = _percent(ratio)
    values["pstate"] = reading.performance_state
    if reading.throttle_active is not None:
        active = _chosen(reading.throttle_active, THROTTLE_REASONS, "throttle reason")
        values["throttle.supported"] = sum(1 << THROTTLE_REASONS.index(reason) for reason in active)
        values["throttle.active"] = sum(
            1 << THROTTLE_REASONS.index(reason) for reason, on in active.items() if on
        )
    held = _chosen(reading.throttle_seconds, tuple(VIOLATION_OF_REASON), "throttle reason with a counter")
    for reason, seconds in held.items():
        values[f"violation.{VIOLATION_OF_REASON[reason]}"] = _nearest(seconds * 1_000_000_000)
    return values


def _memory_health(reading: Reading) -> dict[str, int | None]:
    values: dict[str, int | None] = {}
    for (kind, lifetime), count in (reading.ecc_errors or {}).items():
        values[_ecc_key(kind, lifetime, "total")] = _nearest(count)
    for (kind, lifetime, location), count in (reading.ecc_location_errors or {}).items():
        values[_ecc_key(kind, lifetime, location)] = _nearest(count)
    for prefix, labelled, known in (
        ("retired", reading.retired_pages, RETIREMENT_CAUSES),
        ("remapped", reading.remapped_rows, REMAPPING_CAUSES),
        ("remap_banks", reading.remap_banks, BANK_AVAILABILITY),
    ):
        for label, count in _chosen(labelled, known, prefix).items():
            values[f"{prefix}.{label}"] = _nearest(count)
    values["retired.pending"] = _bit(reading.retired_pages_pending)
    values["remapped.pending"] = _bit(reading.remapped_rows_pending)
    values["remapped.failure"] = _bit(reading.remapped_rows_failure)
    return values


def _ecc_key(kind: str, lifetime: str, location: str) -> str:
    if kind not in ECC_TYPES or lifetime not in ECC_LIFETIMES or location not in ("total", *ECC_LOCATIONS):
        raise ValueError(f"NVML has no ECC counter {kind} {lifetime} {location}")
    return f"ecc.{kind}.{lifetime}.{location}"


def _pcie(reading: Reading) -> dict[str, int | None]:
    values = {
        "pcie.gen": reading.pcie_generation,
        "pcie.gen_max": reading.pcie_generation_max,
        "pcie.gen_max_device": reading.pcie_generation_max,
        "pcie.width": reading.pcie_width,
        "pcie.width_max": reading.pcie_width_max,
        "pcie.replays": reading.pcie_replays,
    }
    for direction, speed in _chosen(
        reading.pcie_throughput_bytes_per_second, DIRECTIONS, "PCIe direction"
    ).items():
        values[f"pcie.{direction}"] = _nearest(speed / PCIE_THROUGHPUT_UNIT)
    return values


def _nvlink(reading: Reading) -> dict[str, int | None]:
    values: dict[str, int | None] = {}
    links = sorted(int(link) for (link,) in (reading.nvlink_up or {}))
    for link in links:
        values[f"nvlink.{link}.state"] = int(bool((reading.nvlink_up or {})[(str(link),)]))
        values[f"nvlink.{link}.version"] = nvlink_version(reading.gpu)
    for (link_text, kind), count in (reading.nvlink_errors or {}).items():
        if kind not in (*NVLINK_ERRORS, *NVLINK5_ERRORS):
            raise ValueError(f"NVML has no NVLink error counter {kind}")
        values[f"nvlink.{int(link_text)}.{kind}"] = _nearest(count)
    for direction, total in _chosen(reading.nvlink_bytes, DIRECTIONS, "NVLink direction").items():
        # The model has one sum, the driver counts by link: deal it out evenly.
        share, rest = divmod(_nearest(total), len(links) or 1)
        for place, link in enumerate(links or [0]):
            values[f"nvlink.{link}.{direction}"] = share + (place < rest)
    return values


def _modes(reading: Reading) -> dict[str, int | None]:
    return {
        "recovery_action": _current(reading.recovery_action, RECOVERY_ACTIONS, "recovery action"),
        "persistence": _bit(reading.persistence_mode),
        "accounting": _bit(reading.accounting_mode),
        "ecc_mode": _bit(reading.ecc_mode),
        "ecc_pending": _bit(reading.ecc_mode),
        "mig_mode": _bit(reading.mig_mode),
        "mig_pending": _bit(reading.mig_mode),
        "mig_max": None if reading.mig_mode is None else MIG_DEVICES_MAX,
        "compute_mode": _current(reading.compute_mode, COMPUTE_MODES, "compute mode"),
    }


def _activity(activity: Activity) -> dict[str, float | None]:
    ratios = {key: getattr(activity, field) for key, field in _GPM.items()}
    return {f"gpm.{key}": None if ratio is None else ratio * 100 for key, ratio in ratios.items()}
