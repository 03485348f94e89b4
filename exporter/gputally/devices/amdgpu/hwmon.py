"""The sensors of a GPU in the kernel's hwmon directory: power, temperatures, clocks, fan.

https://docs.kernel.org/gpu/amdgpu/thermal.html: temperatures are in millidegrees, power in microwatts,
clocks in hertz. Not every GPU has all of them; a limit of 0 is no limit.
"""

import re
from dataclasses import dataclass, field

from gputally.devices.amd import CLOCK_DOMAINS
from gputally.devices.amdgpu.files import Files

_INPUT = re.compile(r"(?P<kind>temp|freq)(?P<number>\d+)_input")
_OLD_NAMES = {"temp1": "edge", "freq1": "sclk", "freq2": "mclk"}  # of kernels without labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Hwmon:
    """The values of the sensors."""

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
    """`files` are those of the GPU's device directory."""
    directory = _find(files)
    if directory is None:
        return Hwmon()
    names = files.names(directory)
    inputs = [match for name in names if (match := _INPUT.fullmatch(name))]
    celsius: dict[str, float] = {}
    critical: dict[str, float] = {}
    emergency: dict[str, float] = {}
    clocks: dict[str, float] = {}
    for match in inputs:
        sensor = match["kind"] + match["number"]
        path = f"{directory}/{sensor}"
        label = files.text("hwmon", f"{path}_label") or _OLD_NAMES.get(sensor, sensor)
        if match["kind"] == "freq":
            _note(clocks, CLOCK_DOMAINS.get(label, label), files.divided("clock_hertz", f"{path}_input", 1))
            continue
        _note(celsius, label, files.divided("sensor_celsius", f"{path}_input", 1000))
        field = "sensor_critical_celsius"
        _note(critical, label, files.divided(field, f"{path}_crit", 1000) or None)
        _note(emergency, label, files.divided(field, f"{path}_emergency", 1000) or None)
    return Hwmon(
        power_watts=_power(files, directory),
        power_limit_watts=_limit(files, directory, "power_limit_watts", ""),
        power_default_limit_watts=_limit(files, directory, "power_default_limit_watts", "_default"),
        power_min_limit_watts=_limit(files, directory, "power_min_limit_watts", "_min"),
        power_max_limit_watts=_limit(files, directory, "power_max_limit_watts", "_max"),
        celsius=celsius,
        critical_celsius=critical,
        emergency_celsius=emergency,
        clock_hertz=clocks,
        fan_ratio=_fan(files, directory),
    )


def _find(files: Files) -> str | None:
    for name in files.names("hwmon"):
        directory = f"hwmon/{name}"
        if files.text("hwmon", f"{directory}/name") == "amdgpu":
            return directory
    return None


def _note(values: dict[str, float], name: str, value: float | None) -> None:
    if value is not None:
        values[name] = value


def _power(files: Files, directory: str) -> float | None:
    """The mean where there is one, as in AMD's tools: it covers more of the time between two samples."""
    average = files.divided("power_watts", f"{directory}/power1_average", 1_000_000)
    if average is not None:
        return average
    return files.divided("power_watts", f"{directory}/power1_input", 1_000_000)


def _limit(files: Files, directory: str, field: str, suffix: str) -> float | None:
    return files.divided(field, f"{directory}/power1_cap{suffix}", 1_000_000) or None


def _fan(files: Files, directory: str) -> float | None:
    """The fan's drive (PWM), which AMD's tools and NVML call its speed; else its revolutions."""
    for now, most in (("pwm1", "pwm1_max"), ("fan1_input", "fan1_max")):
        value = files.number("fan_speed_ratio", f"{directory}/{now}")
        highest = files.number("hwmon", f"{directory}/{most}")
        if value is not None and highest:
            return value / highest
    return None
