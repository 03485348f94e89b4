"""The sensors of a card as the hwmon folder of the kernel shows them: power, temperatures, clocks, fan.

https://docs.kernel.org/gpu/amdgpu/thermal.html: temperatures are in millidegrees, power in microwatts,
clocks in hertz. Which of them there are differs by card; a limit of 0 is none.
"""

import re
from dataclasses import dataclass, field

from gputally.devices.amd import CLOCK_DOMAINS
from gputally.devices.amdgpu.files import Files

_INPUT = re.compile(r"(?P<kind>temp|freq)(?P<number>\d+)_input")
_OLD_NAMES = {"temp1": "edge", "freq1": "sclk", "freq2": "mclk"}  # before the kernel had labels for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Hwmon:
    """What the sensors said in one look."""

    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_default_limit_watts: float | None = None
    power_min_limit_watts: float | None = None
    power_max_limit_watts: float | None = None
    celsius: dict[str, float] = field(default_factory=dict)
    critical_celsius: dict[str, float] = field(default_factory=dict)
    emergency_celsius: dict[str, float] = field(default_factory=dict)
    clock_hertz: dict[str, float] = field(default_factory=dict)
    fan_ratio: float | None = None


def read_hwmon(files: Files) -> Hwmon:
    """`files` are those of the card's device folder."""
    folder = _find(files)
    if folder is None:
        return Hwmon()
    names = files.names(folder)
    inputs = [match for name in names if (match := _INPUT.fullmatch(name))]
    celsius: dict[str, float] = {}
    critical: dict[str, float] = {}
    emergency: dict[str, float] = {}
    clocks: dict[str, float] = {}
    for match in inputs:
        sensor = match["kind"] + match["number"]
        path = f"{folder}/{sensor}"
        label = files.text("hwmon", f"{path}_label") or _OLD_NAMES.get(sensor, sensor)
        if match["kind"] == "freq":
            _note(clocks, CLOCK_DOMAINS.get(label, label), files.divided("clock_hertz", f"{path}_input", 1))
            continue
        _note(celsius, label, files.divided("sensor_celsius", f"{path}_input", 1000))
        field = "sensor_critical_celsius"
        _note(critical, label, files.divided(field, f"{path}_crit", 1000) or None)
        _note(emergency, label, files.divided(field, f"{path}_emergency", 1000) or None)
    return Hwmon(
        power_watts=_power(files, folder),
        power_limit_watts=_limit(files, folder, "power_limit_watts", ""),
        power_default_limit_watts=_limit(files, folder, "power_default_limit_watts", "_default"),
        power_min_limit_watts=_limit(files, folder, "power_min_limit_watts", "_min"),
        power_max_limit_watts=_limit(files, folder, "power_max_limit_watts", "_max"),
        celsius=celsius,
        critical_celsius=critical,
        emergency_celsius=emergency,
        clock_hertz=clocks,
        fan_ratio=_fan(files, folder),
    )


def _find(files: Files) -> str | None:
    for name in files.names("hwmon"):
        folder = f"hwmon/{name}"
        if files.text("hwmon", f"{folder}/name") == "amdgpu":
            return folder
    return None


def _note(values: dict[str, float], name: str, value: float | None) -> None:
    if value is not None:
        values[name] = value


def _power(files: Files, folder: str) -> float | None:
    """A mean where there is one, as AMD's tools take it: it misses less between two looks than a moment."""
    average = files.divided("power_watts", f"{folder}/power1_average", 1_000_000)
    if average is not None:
        return average
    return files.divided("power_watts", f"{folder}/power1_input", 1_000_000)


def _limit(files: Files, folder: str, field: str, suffix: str) -> float | None:
    return files.divided(field, f"{folder}/power1_cap{suffix}", 1_000_000) or None


def _fan(files: Files, folder: str) -> float | None:
    """How hard the fan is driven, which AMD's tools and NVML call its speed; else how fast it turns."""
    for now, most in (("pwm1", "pwm1_max"), ("fan1_input", "fan1_max")):
        value = files.number("fan_speed_ratio", f"{folder}/{now}")
        highest = files.number("hwmon", f"{folder}/{most}")
        if value is not None and highest:
            return value / highest
    return None
