"""Process lists, samples and names, with NVML's protocol of sizes."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml
from tools.servers.waiting import wait_until
from tools.standin.scenario import replace_scenario

OneGpu = Callable[[str], Any]

THREE = (
    "processes 3\n"
    "process 4711 compute 1073741824 - - /usr/bin/python3 train.py\n"
    "process 4712 compute+graphics - - -\n"
    "process 4713 mps 2048 - - nvidia-cuda-mps\n"
)
SAMPLES = (
    "sample 4711 1760000000100000 62 31 5 6\n"
    "sample 4712 1760000000200000 7 8 0 0\n"
    "sample 4711 1760000000300000 64 32 0 0\n"
)


def test_each_list_has_its_processes(gpu: OneGpu) -> None:
    handle = gpu(THREE)
    compute = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [(p.pid, p.usedGpuMemory) for p in compute] == [(4711, 1073741824), (4712, None)]
    assert {(p.gpuInstanceId, p.computeInstanceId) for p in compute} == {(0xFFFFFFFF, 0xFFFFFFFF)}
    assert [p.pid for p in nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)] == [4712]
    assert [p.pid for p in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)] == [4713]
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)] == [4711, 4712]


def test_a_buffer_that_is_too_small_returns_the_required_size(gpu: OneGpu) -> None:
    handle = gpu(THREE)
    function = nvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3
    count = ctypes.c_uint(0)
    assert function(handle, ctypes.byref(count), None) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 2
    entries = (nvml.c_nvmlProcessInfo_v3_t * 2)()
    count.value = 1
    assert function(handle, ctypes.byref(count), entries) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert (count.value, entries[0].pid) == (2, 0)
    assert function(handle, ctypes.byref(count), entries) == nvml.NVML_SUCCESS
    assert [entry.pid for entry in entries] == [4711, 4712]


def test_the_oldest_list_has_only_pid_and_memory(gpu: OneGpu) -> None:
    class Old(ctypes.Structure):
        _fields_ = (("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong))

    handle = gpu(THREE)
    count, entries = ctypes.c_uint(4), (Old * 4)()
    assert nvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses(handle, ctypes.byref(count), entries) == 0
    assert [(entries[i].pid, entries[i].memory) for i in range(count.value)] == [
        (4711, 1073741824),
        (4712, 2**64 - 1),
    ]


def test_a_supported_list_may_be_empty(gpu: OneGpu) -> None:
    handle = gpu("processes 0\n")
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []


def test_details_by_mode(gpu: OneGpu) -> None:
    handle = gpu(THREE.replace("graphics -", "graphics 77"))  # pynvml's wrapper trips over "not available"
    version = nvml.nvmlProcessDetailList_v1
    listed = nvml.nvmlDeviceGetRunningProcessDetailList(handle, version, nvml.NVML_PROCESS_MODE_COMPUTE)
    assert [(p.pid, p.usedGpuMemory) for p in listed] == [(4711, 1073741824), (4712, 77)]
    mps = nvml.nvmlDeviceGetRunningProcessDetailList(handle, version, nvml.NVML_PROCESS_MODE_MPS)
    assert [p.pid for p in mps] == [4713]


def test_names_are_whole_command_lines_or_not_found(gpu: OneGpu) -> None:
    gpu(THREE)
    assert nvml.nvmlSystemGetProcessName(4711) == "/usr/bin/python3 train.py"
    for nameless in (4712, 99):
        with pytest.raises(nvml.NVMLError_NotFound):
            nvml.nvmlSystemGetProcessName(nameless)


def test_only_samples_after_the_last_seen_one_are_returned(gpu: OneGpu) -> None:
    handle = gpu(SAMPLES)
    samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert [(s.pid, s.timeStamp, s.smUtil, s.memUtil, s.encUtil, s.decUtil) for s in samples] == [
        (4711, 1760000000100000, 62, 31, 5, 6),
        (4712, 1760000000200000, 7, 8, 0, 0),
        (4711, 1760000000300000, 64, 32, 0, 0),
    ]
    later = nvml.nvmlDeviceGetProcessUtilization(handle, 1760000000200000)
    assert [(s.pid, s.smUtil) for s in later] == [(4711, 64)]
    information = nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 1760000000100000)
    assert [(s.pid, s.timeStamp, s.smUtil) for s in information] == [
        (4712, 1760000000200000, 7),
        (4711, 1760000000300000, 64),
    ]


@pytest.mark.parametrize("lines", [SAMPLES, "samples 0\n"])
def test_without_new_samples_the_result_is_not_found(gpu: OneGpu, lines: str) -> None:
    handle = gpu(lines)
    for function in (nvml.nvmlDeviceGetProcessUtilization, nvml.nvmlDeviceGetProcessesUtilizationInfo):
        with pytest.raises(nvml.NVMLError_NotFound):
            function(handle, 1760000000300000)


def test_samples_relative_to_time_zero_are_recent(play: Callable[[str], Path]) -> None:
    play("start 1760000000.5\nframe 0\ngpu 0\nuuid GPU-0\nsample 7 +250000 1 2 3 4\n")
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert sample.timeStamp == 1760000000750000


def test_a_new_list_replaces_the_old_one(gpu: OneGpu, scenario: Path) -> None:
    handle = gpu(THREE)
    more = "".join(f"process {pid} compute 1 - -\n" for pid in range(1, 1001))
    replace_scenario(scenario, f"frame 0\ngpu 0\nuuid GPU-0\nprocesses 1000\n{more}")
    wait_until(lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == 1000)
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == list(range(1, 1001))
