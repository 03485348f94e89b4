"""Names and units that all readers of AMD GPUs share."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gputally.model import Reading

# Names of pci.ids, for GPUs without a product name.
MODELS = {
    0x13C0: "Radeon Graphics (Granite Ridge)",
    0x150E: "Radeon 880M/890M",
    0x1586: "Radeon 8050S/8060S",
    0x15BF: "Radeon 780M (Phoenix)",
    0x15C8: "Radeon 740M (Phoenix2)",
    0x1636: "Radeon Vega (Renoir)",
    0x1638: "Radeon Vega (Cezanne)",
    0x164E: "Radeon Graphics (Raphael)",
    0x1681: "Radeon 680M",
    0x1900: "Radeon 780M (Hawk Point)",
    0x66A1: "Radeon Pro VII/Instinct MI50",
    0x687F: "Radeon RX Vega 56/64",
    0x738C: "Instinct MI100",
    0x73A5: "Radeon RX 6950 XT",
    0x73BF: "Radeon RX 6800/6800 XT/6900 XT",
    0x73DF: "Radeon RX 6700/6700 XT/6750 XT",
    0x73EF: "Radeon RX 6650 XT",
    0x73FF: "Radeon RX 6600/6600 XT/6600M",
    0x7408: "Instinct MI250X",
    0x740C: "Instinct MI250X/MI250",
    0x740F: "Instinct MI210",
    0x743F: "Radeon RX 6400/6500 XT",
    0x7448: "Radeon Pro W7900",
    0x744C: "Radeon RX 7900 XT/7900 XTX/7900 GRE",
    0x745E: "Radeon Pro W7800",
    0x747E: "Radeon RX 7700 XT/7800 XT",
    0x7480: "Radeon RX 7600/7600 XT",
    0x74A0: "Instinct MI300A",
    0x74A1: "Instinct MI300X",
    0x74A2: "Instinct MI308X",
    0x74A5: "Instinct MI325X",
    0x74B5: "Instinct MI300X VF",
    0x7550: "Radeon RX 9070/9070 XT/9070 GRE",
    0x7551: "Radeon AI PRO R9700",
    0x7590: "Radeon RX 9060 XT",
    0x75A0: "Instinct MI350X",
    0x75A3: "Instinct MI355X",
}

CLOCK_DOMAINS = {
    "sclk": "graphics",
    "mclk": "memory",
    "socclk": "soc",
    "fclk": "fabric",
    "vclk": "video",
    "dclk": "decode",
}
"""Name of a clock in the kernel -> domain under which it is exported."""

# Two dies share a package: the first reports the power of both, the second reports 0.
TWO_DIES = (0x7408, 0x740C)
_TWO_DIES_NAME = "MI250"

# Instincts since MI200.
_COUNT_ENERGY = (range(0x7400, 0x7420), range(0x74A0, 0x74C0), range(0x75A0, 0x75C0))

_PCIE_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_SENSORS = {"memory": "mem", "hotspot": "junction", "vram": "mem"}
_NUMBERED_SENSOR = re.compile(r"(hbm)[ _]?([0-9]+)")
_NO_NAME = re.compile(r"0x[0-9a-f]+|unknown|n/a|", re.IGNORECASE)


def gpu_uuid(unique_id: int | None, pci_address: str) -> str:
    """Stable over boots: GPU- and the unique id, as rocminfo and ROCR_VISIBLE_DEVICES write it.

    GPUs without one (APUs, and all before GFX9) are named by their PCI address.
    """
    return f"GPU-{unique_id:016x}" if unique_id else f"GPU-{pci_address}"


def model_name(product_name: str | None, device_id: int | None) -> str:
    """The product's name with "AMD" in front, else the name of GPUs with that PCI device id."""
    name = product_name if product_name and not _NO_NAME.fullmatch(product_name) else None
    name = name or MODELS.get(device_id or 0)
    if name is None:
        return "AMD GPU" if device_id is None else f"AMD GPU 0x{device_id:04x}"
    return name if name.upper().startswith("AMD") else f"AMD {name}"


def pair_dies(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Sets `metered_by` of each die without a power meter: the last die before it on the bus that has one."""
    first: str | None = None
    meters: dict[str, str] = {}
    for reading in sorted(readings, key=lambda reading: reading.gpu.pci_bus_id or ""):
        if not reading.up or _TWO_DIES_NAME not in reading.gpu.model.upper():
            continue
        if reading.power_watts is not None:
            first = reading.gpu.uuid
        elif first is not None:
            meters[reading.gpu.uuid], first = first, None
    return tuple(
        replace(reading, gpu=replace(reading.gpu, metered_by=meters[reading.gpu.uuid]))
        if reading.gpu.uuid in meters
        else reading
        for reading in readings
    )


def sensor_name(name: str) -> str:
    """The kernel's name of a temperature sensor: edge, junction, mem, hbm0."""
    numbered = _NUMBERED_SENSOR.fullmatch(name.lower())
    return numbered[1] + numbered[2] if numbered else _SENSORS.get(name.lower(), name.lower())


def counts_energy(device_id: int) -> bool:
    """Whether its counter counts energy; the counter of a Radeon does not."""
    return any(device_id in ids for ids in _COUNT_ENERGY)


def energy_millijoules(ticks: int | None, device_id: int | None) -> int | None:
    """From the firmware's counter in 2^-16 J; None for a counter at 0, which does not run."""
    return ticks * 1000 >> 16 if ticks and device_id is not None and counts_energy(device_id) else None


def pcie_generation(gigatransfers: float | None) -> int | None:
    """From the speed of a lane in GT/s."""
    return None if gigatransfers is None else _PCIE_GENERATIONS.get(gigatransfers)
