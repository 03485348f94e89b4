"""The two NVIDIA readers tell the same of the same GPUs: the real nvidia-smi and NVML on one scenario.

`test_every_value` shows that NVML's reader gives the scenario's values; here nvidia-smi's reader gives
them too, wherever the tool has a column for them.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from gputally.devices.nvidia_smi import NvidiaSmiReader
from gputally.model import Reading
from tests.support.worlds import EVERY_MODEL, play
from tools.dependencies.programs import path as program
from tools.standin.scenario import environment

MIB = 1024 * 1024

# What the tool does not report, or reports in another way, and why.
NOT_COMPARED = {
    "gpu": "compared by its own parts below",
    "mig": "the tool's tables have no MIG devices",
    "processes": "compared by its own parts below",
    "process_samples": "the tool's tables have no samples",
}
IDENTITY = ("uuid", "index", "vendor", "model", "pci_bus_id", "serial", "vbios_version", "driver_version")


def near(found: float, expected: float) -> bool:
    """Equal but for what the tool rounds away: bytes to MiB, watts to hundredths."""
    return abs(found - expected) <= (MIB if expected > MIB else 0.011)


def differences(found: Reading, expected: Reading) -> dict[str, tuple[Any, Any]]:
    different: dict[str, tuple[Any, Any]] = {}
    for name in (field.name for field in fields(Reading) if field.name not in NOT_COMPARED):
        mine, other = getattr(found, name), getattr(expected, name)
        if mine is None:
            continue
        if other is None:
            different[name] = (mine, other)
        elif isinstance(mine, Mapping):
            both = mine.keys() & other.keys()
            if not both or any(not near(mine[key], other[key]) for key in both):
                different[name] = (mine, other)
        elif not near(mine, other):
            different[name] = (mine, other)
    for name in IDENTITY:
        mine, other = getattr(found.gpu, name), getattr(expected.gpu, name)
        if mine != other:
            different[f"gpu.{name}"] = (mine, other)
    return different


def compute_pids(reading: Reading) -> set[int]:
    return {process.pid for process in reading.processes or () if "compute" in process.kind}


def with_raw_margin(reading: Reading) -> Reading:
    """nvidia-smi prints T.Limit, and not the card's offset of it (its column list has none)."""
    margin, offset = reading.temperature_margin_celsius, reading.temperature_slowdown_offset_celsius
    return reading if margin is None else replace(reading, temperature_margin_celsius=margin + (offset or 0))


@pytest.mark.parametrize("version", ["535", "550"])
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_nvidia_smi_and_nvml_report_the_same_values(
    name: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario: Callable[[], tuple[Reading, ...]] = EVERY_MODEL[name]
    expected = scenario()
    for variable, value in environment(play(tmp_path / "world", expected)).items():
        monkeypatch.setenv(variable, value)
    tool = program(f"nvidia-smi-{version}")
    report = NvidiaSmiReader(command=str(tool), timeout_seconds=30).read()
    assert [reading.gpu.uuid for reading in report.readings] == [reading.gpu.uuid for reading in expected]
    for found, told in zip(report.readings, expected, strict=True):
        assert differences(found, with_raw_margin(told)) == {}
        assert compute_pids(found) == compute_pids(told)
        assert sum(getattr(found, field.name) is not None for field in fields(Reading)) > 25
    assert report.errors == {}
