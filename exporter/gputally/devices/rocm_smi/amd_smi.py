"""Output of `amd-smi`, for hosts without rocm-smi: pure functions of its JSON.

`amd-smi static` has the identity and the limits of the GPUs, `amd-smi metric` their measurements. A value is
a number, with or without its unit; this and many names depend on the version. The document is a list of
GPUs, since ROCm 7 the list is in "gpu_data".
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gputally.devices import Errors
from gputally.devices.amd import (
    CLOCK_DOMAINS,
    TWO_DIES,
    counts_energy,
    gpu_uuid,
    model_name,
    pcie_generation,
    sensor_name,
)
from gputally.devices.rocm_smi.json_values import (
    Parsed,
    first_value,
    parse_device_id,
    parse_pci_address,
    parse_quantity,
    parse_text,
    parse_unique_id,
    parse_whole,
)
from gputally.model import Gpu, Labels, Reading

Facts = Mapping[str, object]
Path = tuple[str, ...]

# The first path with a value fills the field; the unit is that of numbers without one.
_METRICS: dict[str, tuple[str, tuple[Path, ...]]] = {
    "gpu_utilization_ratio": ("%", (("usage", "gfx_activity"),)),
    "memory_utilization_ratio": ("%", (("usage", "umc_activity"),)),
    "power_watts": (
        "W",
        (("power", "socket_power"), ("power", "current_power"), ("power", "average_socket_power")),
    ),
}
_COUNTS: dict[str, tuple[str, tuple[Path, ...]]] = {
    "memory_total_bytes": ("MB", (("mem_usage", "total_vram"), ("fb_usage", "vram_total"))),
    "memory_used_bytes": ("MB", (("mem_usage", "used_vram"), ("fb_usage", "vram_used"))),
    "memory_visible_total_bytes": ("MB", (("mem_usage", "total_visible_vram"),)),
    "memory_visible_used_bytes": ("MB", (("mem_usage", "used_visible_vram"),)),
    "gtt_total_bytes": ("MB", (("mem_usage", "total_gtt"),)),
    "gtt_used_bytes": ("MB", (("mem_usage", "used_gtt"),)),
    "pcie_width": ("", (("pcie", "width"), ("pcie", "current_lanes"), ("pcie", "pcie_lanes"))),
    "pcie_replays": ("", (("pcie", "replay_count"),)),
}
_LIMITS: dict[str, tuple[str, tuple[Path, ...]]] = {
    "power_limit_watts": (
        "W",
        (
            ("limit", "ppt0", "socket_power_limit"),
            ("limit", "socket_power_limit"),
            ("limit", "socket_power"),
            ("limit", "current_power"),
        ),
    ),
    "power_min_limit_watts": (
        "W",
        (("limit", "ppt0", "min_power_limit"), ("limit", "min_power_limit"), ("limit", "min_power")),
    ),
    "power_max_limit_watts": (
        "W",
        (("limit", "ppt0", "max_power_limit"), ("limit", "max_power_limit"), ("limit", "max_power")),
    ),
    "temperature_slowdown_celsius": (
        "C",
        (("limit", "slowdown_edge_temperature"), ("limit", "slowdown_hotspot_temperature")),
    ),
    "temperature_shutdown_celsius": (
        "C",
        (("limit", "shutdown_edge_temperature"), ("limit", "shutdown_hotspot_temperature")),
    ),
}
FILLS = frozenset(
    {
        *_METRICS,
        *_COUNTS,
        *_LIMITS,
        "clock_hertz",
        "clock_max_hertz",
        "ecc_errors",
        "energy_millijoules",
        "fan_speed_ratio",
        "memory_free_bytes",
        "memory_temperature_celsius",
        "pcie_generation",
        "ras_errors",
        "sensor_celsius",
        "temperature_celsius",
    }
)
# ROCm 6.0 and later; 5.7 has other names.
METRIC_OPTIONS = (
    "--usage",
    "--power",
    "--clock",
    "--temperature",
    "--pcie",
    "--fan",
    "--energy",
    "--mem-usage",
)
"""The measurements that `build_reading` uses, without RAS."""
RAS_OPTIONS = ("--ecc-blocks",)
_RAS_SECTIONS = ("ecc_blocks", "ecc_block")
_RAS_TYPES = {"correctable": "corrected", "uncorrectable": "uncorrected", "deferred": "deferred"}
_CLOCK = re.compile(r"([a-z]+)(?:_([0-9]+))?")
_CLOCK_NAMES = {"gfx": "sclk", "mem": "mclk"}


def gpus_of(document: object) -> dict[int, Facts]:
    """The GPUs of a document, by the tool's number; empty for another document."""
    entries = document.get("gpu_data") if isinstance(document, dict) else document
    return {
        entry["gpu"]: entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("gpu"), int)
    }


def build_gpu(static: Facts, index: int, errors: Errors) -> Gpu | None:
    """Identity of the GPU; None when the tool does not report it."""
    unique_id = _read("uuid", static, (("asic", "asic_serial"),), parse_unique_id, errors)
    address = _read("uuid", static, (("bus", "bdf"),), parse_pci_address, errors)
    if unique_id is None and address is None:
        return None
    name = parse_text(_at(static, ("asic", "market_name"))) or parse_text(
        _at(static, ("board", "product_name"))
    )
    return Gpu(
        uuid=gpu_uuid(unique_id, address or ""),
        index=index,
        vendor="amd",
        model=model_name(name, parse_device_id(_at(static, ("asic", "device_id")))),
        pci_bus_id=address,
        serial=parse_text(_at(static, ("board", "product_serial"))),
        vbios_version=next(
            (text for kind in ("ifwi", "vbios") if (text := parse_text(_at(static, (kind, "version"))))), None
        ),
        driver_version=parse_text(_at(static, ("driver", "version")))
        or parse_text(_at(static, ("driver", "driver_version"))),
    )


def ras_section(metric: Facts) -> Facts:
    """The part of the measurements that has the RAS errors."""
    return {name: metric[name] for name in _RAS_SECTIONS if name in metric}


def partition_profile(static: Facts) -> str | None:
    """The GPU's partition modes, like CPX/NPS4; None when it does not support partitions."""
    places = (("partition", "compute_partition"), ("partition", "memory_partition"))
    modes = [parse_text(_at(static, place)) for place in places]
    return "/".join(mode for mode in modes if mode) or None


def build_reading(gpu: Gpu, static: Facts, metric: Facts, errors: Errors) -> Reading:
    """The GPU's values. Malformed values are left out and counted in `errors`."""
    fields: dict[str, Any] = {}
    for field, (unit, places) in _METRICS.items():
        fields[field] = _read(field, metric, places, partial(parse_quantity, unit=unit), errors)
    for field, (unit, places) in _COUNTS.items():
        fields[field] = _read(field, metric, places, partial(parse_whole, unit=unit), errors)
    total, used = fields["memory_total_bytes"], fields["memory_used_bytes"]
    fields["memory_free_bytes"] = None if total is None or used is None else max(0, total - used)
    joules = _read(
        "energy_millijoules",
        metric,
        (("energy", "total_energy_consumption"),),
        partial(parse_quantity, unit="J"),
        errors,
    )
    device_id = parse_device_id(_at(static, ("asic", "device_id")))
    counts = device_id is None or counts_energy(device_id)
    fields["energy_millijoules"] = round(joules * 1000) if joules and counts else None
    if not fields["power_watts"] and device_id in TWO_DIES:
        fields["power_watts"] = fields["energy_millijoules"] = None
    fan = _read("fan_speed_ratio", metric, (("fan", "usage"),), partial(parse_quantity, unit="%"), errors)
    fields["fan_speed_ratio"] = None if fan is None else {("0",): fan}
    celsius = _temperatures(metric, errors)
    fields["sensor_celsius"] = celsius or None
    fields["temperature_celsius"] = celsius.get(("edge",), celsius.get(("junction",)))
    fields["memory_temperature_celsius"] = celsius.get(("mem",))
    fields["clock_hertz"] = _clocks(metric, errors, ("clk", "cur_clk")) or None
    fields["clock_max_hertz"] = _clocks(metric, errors, ("max_clk",)) or None
    fields["pcie_generation"] = _generation(metric, errors)
    ras = _ras(metric, errors)
    fields["ras_errors"] = ras or None
    fields["ecc_errors"] = _sum_blocks(ras) or None
    up = any(value is not None for value in fields.values())
    for field, (unit, places) in _LIMITS.items():
        fields[field] = _read(field, static, places, partial(parse_quantity, unit=unit), errors) or None
    return Reading(gpu=gpu, up=up, **fields)


def _at(facts: object, path: Path) -> object:
    """The value at a path; None when the path does not exist."""
    for name in path:
        if not isinstance(facts, Mapping):
            return None
        facts = facts.get(name)
    return facts


def _read(
    field: str,
    facts: Facts,
    places: tuple[Path, ...],
    parse: Callable[[object], Parsed | None],
    errors: Errors,
) -> Parsed | None:
    return first_value(field, (_at(facts, path) for path in places), parse, errors)


def _section(facts: Facts, *names: str) -> Facts:
    """A part of the document; empty when there is none, or it is "N/A"."""
    found = next((part for name in names if isinstance(part := facts.get(name), Mapping)), None)
    return {} if found is None else found


def _temperatures(metric: Facts, errors: Errors) -> dict[Labels, float]:
    celsius: dict[Labels, float] = {}
    for name, value in _section(metric, "temperature").items():
        sensor = sensor_name(name.removesuffix("_temperature").removesuffix("_stacks"))
        several = (
            {f"{sensor}{number}": one for number, one in enumerate(value)} if isinstance(value, list) else {}
        )
        for label, one in (several or {sensor: value}).items():
            if isinstance(one, Mapping) and "value" not in one:
                continue  # by partition, then by die
            degrees = first_value("sensor_celsius", [one], partial(parse_quantity, unit="C"), errors)
            if degrees is not None:
                celsius[(label,)] = float(degrees)
    return celsius


def _clocks(metric: Facts, errors: Errors, names: tuple[str, ...]) -> dict[Labels, float]:
    """Of several dies or engines, the highest clock."""
    hertz: dict[Labels, float] = {}
    for clock in _section(metric, "clock"):
        match = _CLOCK.fullmatch(clock)
        places = tuple(("clock", clock, name) for name in names)
        value = _read("clock_hertz", metric, places, partial(parse_quantity, unit="MHz"), errors)
        if match and value is not None:
            name = _CLOCK_NAMES.get(match[1], match[1])
            domain = (CLOCK_DOMAINS.get(name, name),)
            hertz[domain] = max(hertz.get(domain, 0.0), float(value))
    return hertz


def _generation(metric: Facts, errors: Errors) -> int | None:
    places = tuple(("pcie", name) for name in ("speed", "current_speed", "pcie_speed"))
    speed = _read("pcie_generation", metric, places, partial(parse_quantity, unit="GT/s"), errors)
    if speed is None:
        return None
    return pcie_generation(speed if speed < 1000 else speed / 1000)  # ROCm 5.7 counts in MT/s


def _ras(metric: Facts, errors: Errors) -> dict[Labels, float]:
    counts: dict[Labels, float] = {}
    section = next((name for name in _RAS_SECTIONS if name in metric), "")
    for block in _section(metric, section):
        for word, kind in _RAS_TYPES.items():
            places = ((section, block, f"{word}_count"), (section, block, word))
            count = _read("ras_errors", metric, places, parse_whole, errors)
            if count is not None:
                counts[block.lower(), kind] = float(count)
    return counts


def _sum_blocks(ras: Mapping[Labels, float]) -> dict[Labels, float]:
    """The tool's own totals are not used: they are 0 where it cannot count."""
    sums: dict[Labels, float] = {}
    for (_, kind), count in ras.items():
        if kind != "deferred":
            sums[kind, "volatile"] = sums.get((kind, "volatile"), 0.0) + count
    return sums
