"""MIG devices: holes in the numbering, identity, memory, processes, profiles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml
from tools.servers.waiting import wait_until

Play = Callable[[str], Path]

PARENT = """\
frame 0
gpu 0
uuid GPU-0
name NVIDIA A100-SXM4-80GB
mig_mode 1
mig_pending 1
mig_max 7
util.gpu 50
util.memory 20
util.encoder 1
power.usage 200000
samples 0
processes 1
process 10 compute 100 - -
"""
SMALL = """\
mig 0
uuid MIG-aaaa
gi 7
ci 0
profile 1g.10gb
gi_slices 1
ci_slices 1
profile_id 19
multiprocessors 14
memory.total 10200547328
memory.used 1000
memory.free 10200546328
memory.reserved 0
gpm.sm 12.5
processes 1
process 11 compute 200 7 0 small
"""
LARGE = """\
mig 2
uuid MIG-bbbb
gi 2
ci 1
profile 1c.3g.40gb
gi_slices 3
ci_slices 1
profile_id 9
multiprocessors 16
processes 0
"""


@pytest.fixture
def parent(play: Play) -> Any:
    play(PARENT + SMALL + LARGE)
    return nvml.nvmlDeviceGetHandleByIndex(0)


def test_an_index_without_a_device_is_not_found(parent: Any) -> None:
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(parent) == 7
    uuids = {}
    for index in range(7):
        try:
            uuids[index] = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index))
        except nvml.NVMLError_NotFound:
            continue
    assert uuids == {0: "MIG-aaaa", 2: "MIG-bbbb"}
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 7)


def test_a_mig_device_has_its_identity(parent: Any) -> None:
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    assert nvml.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert nvml.nvmlDeviceIsMigDeviceHandle(parent).value == 0
    assert nvml.nvmlDeviceGetName(mig) == "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    assert nvml.nvmlDeviceGetGpuInstanceId(mig) == 7
    assert nvml.nvmlDeviceGetComputeInstanceId(mig) == 0
    whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert nvml.nvmlDeviceGetUUID(whole) == "GPU-0"
    attributes = nvml.nvmlDeviceGetAttributes_v2(mig)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (14, 10200547328 >> 20)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (1, 1)
    memory = nvml.nvmlDeviceGetMemoryInfo(mig, version=nvml.nvmlMemory_v2)
    assert (memory.total, memory.used, memory.free) == (10200547328, 1000, 10200546328)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetPowerUsage(mig)
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(b"MIG-bbbb")) == "MIG-bbbb"


def test_profiles_by_name(parent: Any) -> None:
    instance = nvml.nvmlDeviceGetGpuInstanceById(parent, 2)
    information = nvml.nvmlGpuInstanceGetInfo(instance)
    assert (information.id, information.profileId) == (2, 9)
    profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(parent, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE, 2)
    assert (profile.id, profile.sliceCount, profile.name) == (9, 3, "MIG 3g.40gb")
    compute = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 1)
    assert nvml.nvmlComputeInstanceGetInfo_v2(compute).id == 1
    named = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
        instance, nvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, 0, 2
    )
    assert named.sliceCount == 1
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetGpuInstanceById(parent, 5)


def test_the_gpu_lists_all_processes_and_a_mig_device_its_own(parent: Any) -> None:
    everybody = nvml.nvmlDeviceGetComputeRunningProcesses(parent)
    assert [(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in everybody] == [
        (10, 0xFFFFFFFF, 0xFFFFFFFF),
        (11, 7, 0),
    ]
    small, large = (nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index) for index in (0, 2))
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(small)] == [11]
    assert nvml.nvmlDeviceGetComputeRunningProcesses(large) == []
    assert nvml.nvmlSystemGetProcessName(11) == "small"


def test_in_mig_mode_the_gpu_has_power_but_no_utilisation(parent: Any) -> None:
    assert nvml.nvmlDeviceGetPowerUsage(parent) == 200000
    for function, arguments in {
        "nvmlDeviceGetUtilizationRates": (),
        "nvmlDeviceGetEncoderUtilization": (),
        "nvmlDeviceGetProcessUtilization": (0,),
    }.items():
        with pytest.raises(nvml.NVMLError_NotSupported):
            getattr(nvml, function)(parent, *arguments)


def test_activity_of_one_instance(parent: Any) -> None:
    assert nvml.nvmlGpmQueryDeviceSupport(parent).isSupportedDevice == 1
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    for sample in samples:
        nvml.nvmlGpmMigSampleGet(parent, 7, sample)
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.sample1, request.sample2 = samples
    request.numMetrics = 1
    request.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
    nvml.nvmlGpmMetricsGet(request)
    assert (request.metrics[0].nvmlReturn, request.metrics[0].value) == (0, 12.5)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlGpmMigSampleGet(parent, 2, samples[0])
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlGpmMigSampleGet(parent, 3, samples[0])
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)


def test_the_handle_of_a_destroyed_device_is_invalid(parent: Any, play: Play) -> None:
    small = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    assert nvml.nvmlDeviceGetUUID(small) == "MIG-aaaa"
    play(PARENT + SMALL.replace("MIG-aaaa", "MIG-cccc") + LARGE)

    def is_void() -> bool:
        try:
            return bool(nvml.nvmlDeviceGetUUID(small) == "never")
        except nvml.NVMLError_InvalidArgument:
            return True

    wait_until(is_void)
    again = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    assert nvml.nvmlDeviceGetUUID(again) == "MIG-cccc"


def test_a_frame_can_destroy_a_device(play: Play) -> None:
    play(PARENT + SMALL + "frame 0.2\ngpu 0\nmig 0 -\nutil.gpu 1\n")
    parent = nvml.nvmlDeviceGetHandleByIndex(0)

    def gone() -> bool:
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
        except nvml.NVMLError_NotFound:
            return True
        return False

    wait_until(gone)


def test_without_the_right_to_monitor_mig_the_whole_gpu_is_denied(play: Play) -> None:
    memory = "memory.total 1000\nmemory.used 10\nmemory.free 990\nmemory.reserved 0\n"
    play("mig_monitor 0\n" + PARENT + memory + SMALL + "gpu 1\nuuid GPU-1\nprocesses 0\n" + memory)
    split, whole = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    for function in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetMemoryInfo):
        with pytest.raises(nvml.NVMLError_NoPermission):
            function(split)
        function(whole)
        function(nvml.nvmlDeviceGetMigDeviceHandleByIndex(split, 0))


def test_without_the_right_to_monitor_mig_no_events_arrive(play: Play) -> None:
    xid, alone = nvml.nvmlEventTypeXidCriticalError, "mig_monitor 0\n"
    play(alone + PARENT + "xid 48 1\ngpu 1\nuuid GPU-1\n")
    events = nvml.nvmlEventSetCreate()
    for index in (0, 1):
        nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(index), xid, events)
    play(alone + PARENT + "xid 48 2\ngpu 1\nuuid GPU-1\nxid 79 1\n")
    assert nvml.nvmlEventSetWait_v2(events, 3_600_000).eventData == 79
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 0)
    nvml.nvmlEventSetFree(events)
