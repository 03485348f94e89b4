"""The real rocm-smi, of two generations, on the hosts that reader amdgpu is tested with."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gputally.devices import Report
from gputally.devices.amdgpu import AmdgpuReader
from gputally.devices.rocm_smi import RocmSmiReader
from gputally.model import Unavailable
from tests.support.amd_host import AmdHost
from tests.support.amd_trees import planted
from tools.dependencies import programs

TOOLS = ("rocm-smi-5", "rocm-smi-6")
# What the tool measures in another way, or tells less of.
DIFFERENT = {"gpu", "up", "mig", "processes", "process_samples", "fan_speed_ratio"}
FAN_PERCENT = 0.005  # the tool rounds
OF_GPU = ("uuid", "index", "vendor", "model", "pci_bus_id", "serial", "vbios_version")


def read(directory: Path, fixture: str | None, tool: str) -> Report:
    host = AmdHost(directory, fixture)
    return RocmSmiReader(host.command(programs.path(tool)), timeout_seconds=60).read()


def said_differently(said: Any, truth: Any) -> bool:
    """Whether the tool contradicts the kernel; that it knows less is no contradiction."""
    if isinstance(said, dict) and isinstance(truth, dict):
        return any(truth.get(labels) != value for labels, value in said.items())
    return said is not None and said != truth


@pytest.mark.parametrize(
    ("fixture", "tool"),
    [
        *(
            (fixture, tool)
            for fixture in ("apu", "mi210", "mi250", "rx7900xtx", "vega-no-mem-busy")
            for tool in TOOLS
        ),
        ("mi300x", "rocm-smi-6"),
        ("mi300x-cpx", "rocm-smi-6"),
        ("card10", "rocm-smi-6"),
    ],
)
def test_both_readers_report_the_same_values_of_one_host(tmp_path: Path, fixture: str, tool: str) -> None:
    kernel = AmdgpuReader(planted(fixture) / "sys", planted(fixture) / "proc").read()
    report = read(tmp_path, fixture, tool)
    assert report.errors == {}
    for one, other in zip(report.readings, kernel.readings, strict=True):
        assert [getattr(one.gpu, name) for name in OF_GPU] == [getattr(other.gpu, name) for name in OF_GPU]
        assert one.up
        contradictions = {
            field.name: (getattr(one, field.name), getattr(other, field.name))
            for field in fields(one)
            if field.name not in DIFFERENT
            if said_differently(getattr(one, field.name), getattr(other, field.name))
        }
        assert contradictions == {}
        for fan, ratio in (one.fan_speed_ratio or {}).items():
            assert other.fan_speed_ratio is not None
            assert abs(ratio - other.fan_speed_ratio[fan]) <= FAN_PERCENT
        assert one.gpu_utilization_ratio is not None
        assert one.memory_used_bytes is not None
        assert one.temperature_celsius is not None
    assert fixture == "apu" or any(reading.power_limit_watts for reading in report.readings)
    assert fixture != "card10" or report.readings[1].fan_speed_ratio == {("0",): 0.32}


def test_power_and_energy_of_a_package_with_two_dies(tmp_path: Path) -> None:
    first, second = read(tmp_path, "mi250", "rocm-smi-6").readings
    assert first.power_watts is not None
    assert first.energy_millijoules is not None
    assert second.power_watts is None
    assert second.energy_millijoules is None


def test_an_mi300x_with_a_tool_that_crashes_on_it(tmp_path: Path) -> None:
    first, *_ = read(tmp_path, "mi300x", "rocm-smi-5").readings
    assert first.up
    assert first.memory_total_bytes == 206141652992
    assert first.energy_millijoules is None


def test_processes_are_those_that_the_kernel_lists(tmp_path: Path) -> None:
    (reading,) = read(tmp_path, "mi210", "rocm-smi-6").readings
    kernel = AmdgpuReader(planted("mi210") / "sys", planted("mi210") / "proc").read().readings[0]
    assert reading.processes
    assert kernel.processes is not None
    assert [(one.pid, one.memory_used_bytes) for one in reading.processes] == [
        (one.pid, one.memory_used_bytes) for one in kernel.processes
    ]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_host_without_the_driver(tool: str) -> None:
    with pytest.raises(Unavailable, match="Driver not initialized") as failure:
        RocmSmiReader(str(programs.path(tool)), timeout_seconds=60).read()
    assert "modprobe amdgpu" in failure.value.fix


def test_a_host_without_gpus(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No AMD GPUs specified") as failure:
        read(tmp_path, None, "rocm-smi-5")
    assert "lspci -d 1002:" in failure.value.fix


def test_a_tool_that_loops_without_a_gpu(tmp_path: Path) -> None:
    command = AmdHost(tmp_path, None).command(programs.path("rocm-smi-6"))
    with pytest.raises(Unavailable, match=r"still running after .* and was killed"):
        RocmSmiReader(command, timeout_seconds=2).read()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_does_not_understand_the_kernel(tmp_path: Path, tool: str) -> None:
    host = AmdHost(tmp_path, "mi210")
    for links in host.sys.glob("class/kfd/kfd/topology/nodes/*/properties"):
        links.write_text(links.read_text().replace("hive_id", "hive"))
    with pytest.raises(Unavailable, match="exit code 8: ERROR:root:ROCm SMI returned 8") as failure:
        RocmSmiReader(host.command(programs.path(tool)), timeout_seconds=60).read()
    assert "/sys/class/kfd" in failure.value.fix
