"""Process lists, samples and names, with NVML's protocol of sizes."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputally.devices.nvml.process_samples import Entry
from tests.standin.real_pynvml import nvml
from tests.support.sample_ring import PERIOD_US, Ring, Taken
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


def answers(handle: Any, last_seen: int) -> list[tuple[int, ...]]:
    samples = nvml.nvmlDeviceGetProcessUtilization(handle, last_seen)
    return [(s.pid, s.timeStamp, s.smUtil, s.memUtil, s.encUtil, s.decUtil) for s in samples]


def test_means_are_over_all_samples_since_the_last_one_seen(gpu: OneGpu) -> None:
    handle = gpu(SAMPLES)
    assert answers(handle, 0) == [
        (4711, 1760000000300000, 42, 21, 2, 2),
        (4712, 1760000000200000, 2, 3, 0, 0),
    ]
    assert answers(handle, 1760000000200000) == [(4711, 1760000000300000, 64, 32, 0, 0)]
    information = nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 1760000000100000)
    assert [(s.pid, s.timeStamp, s.smUtil) for s in information] == [
        (4712, 1760000000200000, 4),
        (4711, 1760000000300000, 32),
    ]


def test_samples_of_no_process_count_and_processes_without_utilisation_are_left_out(gpu: OneGpu) -> None:
    handle = gpu(SAMPLES + "sample - 1760000000400000\nsample 9 1760000000500000 0 0 0 0\n")
    assert [(pid, sm) for pid, _, sm, *_ in answers(handle, 1760000000100000)] == [(4712, 2), (4711, 16)]


def test_entries_of_one_time_are_one_sample(gpu: OneGpu) -> None:
    handle = gpu("sample 1 100 60 0 0 0\nsample 2 100 0 0 30 0\n")
    assert answers(handle, 0) == [(1, 100, 60, 0, 0, 0), (2, 100, 0, 0, 30, 0)]


def test_every_sample_is_the_other_answer(gpu: OneGpu) -> None:
    handle = gpu("samples.raw 1\n" + SAMPLES + "sample - 1760000000400000\n")
    assert answers(handle, 1760000000100000) == [
        (4712, 1760000000200000, 7, 8, 0, 0),
        (4711, 1760000000300000, 64, 32, 0, 0),
    ]


@pytest.mark.parametrize("answer", [Ring.means, Ring.every_sample])
def test_the_driver_keeps_72_samples(gpu: OneGpu, answer: Callable[[Ring, int, int], list[Entry]]) -> None:
    history = [Taken(1 + place % 3, place % 90, place % 70) for place in range(100)]
    ring, now = Ring(history, 0), 101 * PERIOD_US
    raw = answer is Ring.every_sample
    handle = gpu(f"samples.raw {int(raw)}\n" + ring.lines(now))
    for last_seen in (0, 50 * PERIOD_US, 90 * PERIOD_US):
        found, expected = sorted(answers(handle, last_seen)), sorted(answer(ring, last_seen, now))
        assert [entry[:2] for entry in found] == [entry[:2] for entry in expected]
        for one, other in zip(found, expected, strict=True):
            assert one == pytest.approx(other, abs=1), "halves are rounded either way"


def test_a_buffer_needs_room_for_a_hundred(gpu: OneGpu) -> None:
    handle = gpu(SAMPLES)
    function = nvml.nvmlLib.nvmlDeviceGetProcessUtilization
    last_seen = ctypes.c_ulonglong(0)
    for room, entries in ((0, None), (99, (nvml.c_nvmlProcessUtilizationSample_t * 99)())):
        count = ctypes.c_uint(room)
        assert function(handle, entries, ctypes.byref(count), last_seen) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
        assert count.value == 100
    entries = (nvml.c_nvmlProcessUtilizationSample_t * 100)()
    count = ctypes.c_uint(100)
    assert function(handle, entries, ctypes.byref(count), last_seen) == nvml.NVML_SUCCESS
    assert count.value == 2


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
    # pynvml asks for the length first: the list may be replaced before it asks for the entries.
    wait_until(
        lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == 1000,
        ignore=(nvml.NVMLError_InsufficientSize,),
    )
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == list(range(1, 1001))
