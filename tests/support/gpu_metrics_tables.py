"""Builds amdgpu's binary tables as the driver does: all ones, then the header and what is given."""

import struct
from collections.abc import Sequence

from gputally.devices.amdgpu.gpu_metrics_layouts import (
    ATTRIBUTE_TYPES,
    ATTRIBUTES,
    ATTRIBUTES_VERSION,
    HEADER,
    LAYOUTS,
    Version,
)

Given = int | Sequence[int]

CARD_VERSIONS = (*LAYOUTS, ATTRIBUTES_VERSION)
IDS = {name: number for number, (name, _) in enumerate(ATTRIBUTES)}
UNITS = dict(ATTRIBUTES)

# How the driver of MI300 and MI350 types the attributes (smu_v13_0_6_ppt.h); those not named are H.
_ATTRIBUTE_TYPES = {
    **dict.fromkeys(("gfx_busy_inst", "gfxclk_lock_status", "accumulation_counter"), "I"),
    **{name: "I" for name in IDS if name.endswith("_residency_acc")},
    **{name: "Q" for name in IDS if name.endswith("_acc") and not name.endswith("_residency_acc")},
    **dict.fromkeys(("gfx_activity_acc", "mem_activity_acc"), "I"),
    **dict.fromkeys(("energy_accumulator", "firmware_timestamp", "system_clock_counter"), "Q"),
    **dict.fromkeys(("mem_max_bandwidth", "pcie_bandwidth_inst"), "Q"),
}


def build(version: Version, **values: Given) -> bytes:
    """A card's `gpu_metrics`; fields of partition 0 are called xcp0_gfx_busy_inst and so on."""
    layout = LAYOUTS.get(version)
    if layout is None:
        assert version == ATTRIBUTES_VERSION
        return build_attributes(
            version,
            *(attribute(name, _ATTRIBUTE_TYPES.get(name, "H"), *_many(v)) for name, v in values.items()),
        )
    numbers = list(layout.shape.unpack(b"\xff" * layout.shape.size))
    numbers[:3] = layout.shape.size, *version
    for name, value in values.items():
        places = range(*layout.fields[name][0].indices(len(numbers)))
        for place, number in zip(places, _many(value), strict=False):
            numbers[place] = number
    return layout.shape.pack(*numbers)


def build_attributes(version: Version, *attributes: bytes) -> bytes:
    body = struct.pack("@i", len(attributes)) + b"".join(attributes)
    return HEADER.pack(HEADER.size + len(body), *version) + body


def attribute(name: str, code: str, *numbers: int, unit: int | None = None) -> bytes:
    return attribute_of(IDS[name], code, *numbers, unit=UNITS[name] if unit is None else unit)


def attribute_of(number: int, code: str, *numbers: int, unit: int) -> bytes:
    word = unit << 24 | ATTRIBUTE_TYPES.index(code) << 20 | number << 10 | len(numbers)
    return struct.pack("@Q", word) + struct.pack(f"={len(numbers)}{code}", *numbers)


def _many(value: Given) -> Sequence[int]:
    return [value] if isinstance(value, int) else value
