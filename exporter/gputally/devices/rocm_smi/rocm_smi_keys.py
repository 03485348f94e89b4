"""The fields of the model and their keys in `rocm-smi --json`, in the spelling of every version.

Keys are compared in lower case and without a colon at the end. Names have changed their meaning, too:
"GPU memory use (%)" was the memory's utilisation, which is "GPU Memory Read/Write Activity (%)" since
ROCm 6.1. "GPU Memory Allocated (VRAM%)" is not used: the bytes are more precise.
"Memory Activity" and "GFX Activity" are counters without a unit, for which there is no field.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from gputally.devices import Errors
from gputally.devices.amd import (
    CLOCK_DOMAINS,
    TWO_DIES,
    energy_millijoules,
    gpu_uuid,
    model_name,
    pcie_generation,
    sensor_name,
)
from gputally.devices.rocm_smi.json_values import (
    first_value,
    is_nothing,
    parse_device_id,
    parse_pci_address,
    parse_quantity,
    parse_text,
    parse_unique_id,
    parse_whole,
)
from gputally.model import Gpu, Labels, Reading

CardJson = Mapping[str, object]

# Each option prints some of the keys below; the tool rejects all when it does not support one.
OPTIONS: dict[str, tuple[str, ...]] = {
    "--showid": (),
    "--showuniqueid": (),
    "--showbus": (),
    "--showproductname": (),
    "--showserial": (),
    "--showvbios": (),
    "--showdriverversion": (),
    "--showuse": (),
    "--showmemuse": (),
    "--showmeminfo": ("vram", "vis_vram", "gtt"),
    "--showpower": (),
    "--showmaxpower": (),
    "--showenergycounter": (),
    "--showtemp": (),
    "--showclocks": (),
    "--showfan": (),
    "--showreplaycount": (),
    "--showcomputepartition": (),
    "--showmemorypartition": (),
    "--showpids": (),
}

# The first key that has a value fills the field; the unit is that of its number.
_NUMBERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gpu_utilization_ratio": ("%", ("gpu use (%)",)),
    "memory_utilization_ratio": ("%", ("gpu memory read/write activity (%)", "gpu memory use (%)")),
    "power_watts": (
        "W",
        ("current socket graphics package power (w)", "average graphics package power (w)"),
    ),
    "power_limit_watts": ("W", ("max graphics package power (w)",)),
}
_COUNTS = {
    "memory_total_bytes": "vram total memory (b)",
    "memory_used_bytes": "vram total used memory (b)",
    "memory_visible_total_bytes": "vis_vram total memory (b)",
    "memory_visible_used_bytes": "vis_vram total used memory (b)",
    "gtt_total_bytes": "gtt total memory (b)",
    "gtt_used_bytes": "gtt total used memory (b)",
    "pcie_replays": "pcie replay count",
}
FILLS = frozenset(
    {
        *_NUMBERS,
        *_COUNTS,
        "clock_hertz",
        "energy_millijoules",
        "fan_speed_ratio",
        "memory_free_bytes",
        "memory_temperature_celsius",
        "pcie_generation",
        "pcie_width",
        "sensor_celsius",
        "temperature_celsius",
    }
)
_DEVICE_ID = ("device id", "gpu id")
_SENSOR = re.compile(r"temperature \(sensor ([a-z0-9 ]+)\) \(c\)")
_CLOCK = re.compile(r"([a-z0-9]+) clock (?:speed|level)")
_MEGAHERTZ = re.compile(r"\(([0-9]{1,6})mhz\)", re.IGNORECASE)
_PCIE = re.compile(r"([0-9.]{1,5})GT/s,? x([0-9]{1,2})", re.IGNORECASE)


def with_plain_keys(card: Mapping[str, object]) -> CardJson:
    """The card under keys that are the same for all versions; of two equal keys, the one with a value."""
    plain: dict[str, object] = {}
    for key, value in card.items():
        name = key.strip().lower().rstrip(":")
        if is_nothing(plain.get(name)):
            plain[name] = value
    return plain


def build_gpu(card: CardJson, index: int, driver_version: str | None, errors: Errors) -> Gpu | None:
    """Identity of the GPU; None when the tool does not report it."""
    unique_id = first_value("uuid", [card.get("unique id")], parse_unique_id, errors)
    address = first_value("uuid", [card.get("pci bus")], parse_pci_address, errors)
    if unique_id is None and address is None:
        return None
    return Gpu(
        uuid=gpu_uuid(unique_id, address or ""),
        index=index,
        vendor="amd",
        model=model_name(parse_text(card.get("card series")), _device_id(card)),
        pci_bus_id=address,
        serial=parse_text(card.get("serial number")),
        vbios_version=parse_text(card.get("vbios version")),
        driver_version=driver_version,
    )


def partition_profile(card: CardJson) -> str | None:
    """The GPU's partition modes, like CPX/NPS4; None when it does not support partitions."""
    modes = [parse_text(card.get(key)) for key in ("compute partition", "memory partition")]
    return "/".join(mode for mode in modes if mode) or None


def build_reading(gpu: Gpu, card: CardJson, errors: Errors) -> Reading:
    """The GPU's values. Malformed values are left out and counted in `errors`."""
    device_id = _device_id(card)
    fields: dict[str, Any] = {}
    for field, (unit, keys) in _NUMBERS.items():
        fields[field] = first_value(field, map(card.get, keys), partial(parse_quantity, unit=unit), errors)
    for field, key in _COUNTS.items():
        fields[field] = first_value(field, [card.get(key)], parse_whole, errors)
    total, used = fields["memory_total_bytes"], fields["memory_used_bytes"]
    fields["memory_free_bytes"] = None if total is None or used is None else max(0, total - used)
    fields["power_limit_watts"] = fields["power_limit_watts"] or None
    # The tool's own "Accumulated Energy (uJ)" is computed from a rounded unit.
    ticks = first_value("energy_millijoules", [card.get("energy counter")], parse_whole, errors)
    fields["energy_millijoules"] = energy_millijoules(ticks, device_id)
    if not fields["power_watts"] and device_id in TWO_DIES:
        fields["power_watts"] = fields["energy_millijoules"] = None
    percent = partial(parse_quantity, unit="%")
    fan = first_value("fan_speed_ratio", [card.get("fan speed (%)")], percent, errors)
    fields["fan_speed_ratio"] = None if fan is None else {("0",): fan}
    celsius = _temperatures(card, errors)
    fields["sensor_celsius"] = celsius or None
    fields["temperature_celsius"] = celsius.get(("edge",), celsius.get(("junction",)))
    fields["memory_temperature_celsius"] = celsius.get(("mem",))
    fields["clock_hertz"] = _clocks(card) or None
    fields["pcie_generation"], fields["pcie_width"] = _pcie(card)
    return Reading(gpu=gpu, up=any(value is not None for value in fields.values()), **fields)


def _device_id(card: CardJson) -> int | None:
    """The chip's device id; "Card model" has been a name, a vendor id and a board id in earlier versions."""
    return next(
        (number for key in _DEVICE_ID if (number := parse_device_id(card.get(key))) is not None), None
    )


def _temperatures(card: CardJson, errors: Errors) -> dict[Labels, float]:
    celsius: dict[Labels, float] = {}
    for key, text in card.items():
        if match := _SENSOR.fullmatch(key):
            value = first_value("sensor_celsius", [text], parse_quantity, errors)
            if value is not None:
                celsius[(sensor_name(match[1]),)] = float(value)
    return celsius


def _clocks(card: CardJson) -> dict[Labels, float]:
    """A sleeping clock has a level and no speed."""
    clocks: dict[Labels, float] = {}
    for key, value in card.items():
        name = _CLOCK.fullmatch(key)
        speed = _MEGAHERTZ.search(str(value))
        if name and speed:
            clocks[(CLOCK_DOMAINS.get(name[1], name[1]),)] = float(speed[1]) * 1e6
    return clocks


def _pcie(card: CardJson) -> tuple[int | None, int | None]:
    match = _PCIE.search(str(card.get("pcie clock level")))
    if match is None:
        return None, None
    try:
        return pcie_generation(float(match[1])), int(match[2])
    except ValueError:
        return None, None
