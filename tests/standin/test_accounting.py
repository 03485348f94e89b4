"""Accounting: its buffer, and its mode, which root sets for everybody."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputally.model import AccountedProcess, Gpu, Reading
from tests.standin.conftest import Play
from tests.standin.real_pynvml import nvml
from tests.support.users import as_nobody, as_root
from tools.standin.scenario import Frame, environment, scenario_text

OneGpu = Callable[[str], Any]


def test_running_and_ended_processes_have_statistics(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\naccount 4711 55 20 1073741824 0 1760000000000000 1\naccount 12 1 2 3 4 5 0\n")
    assert nvml.nvmlDeviceGetAccountingPids(handle) == [12, 4711], "first those that have ended"
    stats = nvml.nvmlDeviceGetAccountingStats(handle, 4711)
    assert (stats.gpuUtilization, stats.memoryUtilization, stats.maxMemoryUsage) == (55, 20, 1073741824)
    assert (stats.time, stats.startTime, stats.isRunning) == (0, 1760000000000000, 1)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetAccountingStats(handle, 13)


def test_a_process_that_ends_becomes_the_last_of_the_ended(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\naccount 7 1 0 0 0 100 1\naccount 8 1 0 0 5 200 0\naccount 7 1 0 0 9 100 0\n")
    assert nvml.nvmlDeviceGetAccountingPids(handle) == [8, 7]
    assert nvml.nvmlDeviceGetAccountingStats(handle, 7).time == 9


def test_while_a_pid_is_reused_its_first_process_is_reported(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\naccount 7 1 0 0 9 100 0\naccount 7 2 0 0 0 300 1\n")
    assert nvml.nvmlDeviceGetAccountingPids(handle) == [7, 7]
    assert nvml.nvmlDeviceGetAccountingStats(handle, 7).startTime == 100


def test_a_buffer_that_is_too_small_returns_the_required_size(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\naccount 7 1 0 0 9 100 0\naccount 8 2 0 0 0 300 1\n")
    count, pids = ctypes.c_uint(1), (ctypes.c_uint * 2)()
    function = nvml.nvmlLib.nvmlDeviceGetAccountingPids
    assert function(handle, ctypes.byref(count), pids) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert (count.value, pids[0]) == (2, 0)
    assert function(handle, ctypes.byref(count), pids) == nvml.NVML_SUCCESS
    assert list(pids) == [7, 8]


def test_readings_with_accounted_processes_have_times_relative_to_time_zero(play: Play) -> None:
    ended = AccountedProcess(
        4711, started_us=1_700_000_002_000_000, ran_us=3_500_000, sm_ratio=0.42, memory_peak_bytes=None
    )
    gpu = Gpu(uuid="GPU-0", index=0, vendor="nvidia", model="NVIDIA H100 80GB HBM3")
    reading = Reading(gpu=gpu, accounting_mode=True, accounted=(ended,))
    text = scenario_text([Frame(0.0, (reading,))], start=1760000000.0, clock_zero=1700000000.0)
    play(text)
    function = nvml.nvmlLib.nvmlDeviceGetAccountingStats
    stats = nvml.c_nvmlAccountingStats_t()
    assert function(nvml.nvmlDeviceGetHandleByIndex(0), 4711, ctypes.byref(stats)) == nvml.NVML_SUCCESS
    assert (stats.gpuUtilization, stats.time, stats.startTime) == (42, 3500, 1_760_000_002_000_000)
    assert (stats.maxMemoryUsage, stats.isRunning) == (2**64 - 1, 0)


SAMPLES = (
    "sample 7 1760000000100000 62 31 0 0\nsample 8 1760000000300000 50 10 0 0\nsample - 1760000000500000\n"
    "sample 7 1760000000800000 20 5 0 0\nsample 7 1760000001100000 100 100 0 0\n"
)


def test_sums_are_of_the_samples_since_the_process_started(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\naccount 7 1 2 3 0 1760000000200000 1\n" + SAMPLES)
    stats = nvml.nvmlDeviceGetAccountingStats_v2(handle, 7)
    assert (stats.pid, stats.isRunning, stats.gpuUtilization, stats.memoryUtilization) == (7, 1, 1, 2)
    assert (stats.maxMemoryUsage, stats.time, stats.startTime) == (3, 0, 1760000000200000)
    assert (stats.sampleCount, stats.sumGpuUtil, stats.sumFbUtil) == (4, 12000, 10500)


def test_sums_of_an_ended_process_lack_its_last_second(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\naccount 7 1 2 3 1500 1760000000000000 0\n" + SAMPLES)
    stats = nvml.nvmlDeviceGetAccountingStats_v2(handle, 7)
    assert (stats.isRunning, stats.sampleCount, stats.sumGpuUtil, stats.sumFbUtil) == (0, 4, 8200, 3600)


def test_sums_of_an_unknown_process_are_not_found(gpu: OneGpu) -> None:
    handle = gpu("accounting 1\n" + SAMPLES)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetAccountingStats_v2(handle, 7)


def test_without_accounting_mode_there_are_no_statistics(gpu: OneGpu) -> None:
    handle = gpu("accounting 0\naccount 12 1 2 3 4 5 0\n")
    for function in (
        nvml.nvmlDeviceGetAccountingPids,
        lambda h: nvml.nvmlDeviceGetAccountingStats(h, 12),
        lambda h: nvml.nvmlDeviceGetAccountingStats_v2(h, 12),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            function(handle)


SET = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetAccountingMode(handle))
try:
    pynvml.nvmlDeviceSetAccountingMode(handle, {mode})
except pynvml.NVMLError as error:
    print(error)
"""


def set_mode(user: tuple[str, ...], scenario: Path, mode: int) -> list[str]:
    """What another process sees, and what comes of its setting the mode."""
    command = [*user, sys.executable, "-c", SET.format(mode=mode)]
    variables = {**os.environ, **environment(scenario)}
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def test_root_sets_the_mode_for_every_process_of_the_scenario(gpu: OneGpu, scenario: Path) -> None:
    handle = gpu("accounting 0\n")
    assert set_mode(as_root(), scenario, 1) == ["0"]
    assert nvml.nvmlDeviceGetAccountingMode(handle) == 1
    assert set_mode(as_root(), scenario, 0) == ["1"]
    assert nvml.nvmlDeviceGetAccountingMode(handle) == 0


def test_other_users_may_not_set_the_mode(gpu: OneGpu, scenario: Path) -> None:
    handle = gpu("accounting 0\n")
    assert set_mode(as_nobody(), scenario, 1) == ["0", "Insufficient Permissions"]
    assert nvml.nvmlDeviceGetAccountingMode(handle) == 0


@pytest.mark.parametrize("lines", ["accounting -\n", "accounting 1\nmig_mode 1\n"])
def test_accounting_mode_cannot_be_set_if_it_is_not_supported(gpu: OneGpu, lines: str) -> None:
    handle = gpu(lines)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceSetAccountingMode(handle, 1)


def test_in_mig_mode_it_is_off(gpu: OneGpu) -> None:
    assert nvml.nvmlDeviceGetAccountingMode(gpu("accounting 1\nmig_mode 1\n")) == 0
