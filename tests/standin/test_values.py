"""The real pynvml reads from the stand-in the numbers that a hand-written scenario has, in NVML's units."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml

OneGpu = Callable[[str], Any]
Play = Callable[[str], Path]

H100 = """\
driver_version 580.95.05
nvml_version 13.580.95.05
cuda_version 13000
frame 0
gpu 0
uuid GPU-5fd4f087-86f3-7a43-b711-4771313afc50
name NVIDIA H100 80GB HBM3
serial 1650522003820
vbios 96.00.74.00.01
pci_bus_id 00000000:19:00.0
board_part 692-2G520-0200-000
minor_number 3
architecture 9
brand 14
cc_major 9
cc_minor 0
util.gpu 87
util.memory 45
util.encoder 1
util.decoder 2
util.jpeg 3
util.ofa 4
memory.total 85520809984
memory.used 71000000000
memory.free 14000000000
memory.reserved 520809984
bar1.total 137438953472
bar1.used 24903680
bar1.free 137414049792
power.usage 345120
power.limit 700000
power.enforced 699000
power.default 700001
power.min 200000
power.max 700002
energy 123456789012345
temp.gpu 61
temp.memory 74
temp.slowdown 89
temp.shutdown 94
temp.margin -3
clock.graphics 1980
clock.sm 1981
clock.memory 2619
clock.video 1545
clock_max.graphics 1990
clock_max.sm 1991
clock_max.memory 2620
clock_max.video 1546
clock_app.graphics 1700
clock_app.memory 2600
clock_app_default.graphics 1695
fan.0 30
fan.1 35
pstate 2
throttle.active 68
throttle.supported 511
persistence 1
accounting 0
ecc_mode 1
ecc_pending 0
compute_mode 3
mig_mode 0
mig_pending 1
"""


@pytest.fixture
def h100(play: Play) -> Any:
    play(H100)
    return nvml.nvmlDeviceGetHandleByIndex(0)


def test_identity_and_versions(h100: Any) -> None:
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert nvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    assert nvml.nvmlDeviceGetCount() == 1
    assert nvml.nvmlDeviceGetUUID(h100) == "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
    assert nvml.nvmlDeviceGetName(h100) == "NVIDIA H100 80GB HBM3"
    assert nvml.nvmlDeviceGetSerial(h100) == "1650522003820"
    assert nvml.nvmlDeviceGetVbiosVersion(h100) == "96.00.74.00.01"
    assert nvml.nvmlDeviceGetBoardPartNumber(h100) == "692-2G520-0200-000"
    assert nvml.nvmlDeviceGetMinorNumber(h100) == 3
    assert nvml.nvmlDeviceGetArchitecture(h100) == nvml.NVML_DEVICE_ARCH_HOPPER
    assert nvml.nvmlDeviceGetBrand(h100) == nvml.NVML_BRAND_NVIDIA
    assert nvml.nvmlDeviceGetCudaComputeCapability(h100) == (9, 0)
    assert nvml.nvmlDeviceGetIndex(h100) == 0
    pci = nvml.nvmlDeviceGetPciInfo(h100)
    assert (pci.busId, pci.domain, pci.bus, pci.device) == ("00000000:19:00.0", 0, 0x19, 0)


@pytest.mark.parametrize(
    ("function", "key"),
    [
        ("nvmlDeviceGetHandleByUUID", "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"),
        ("nvmlDeviceGetHandleBySerial", "1650522003820"),
        ("nvmlDeviceGetHandleByPciBusId", "0000:19:00.0"),
    ],
)
def test_a_gpu_is_found_by_uuid_serial_and_pci_address(h100: Any, function: str, key: str) -> None:
    found = getattr(nvml, function)(key.encode())
    assert nvml.nvmlDeviceGetMinorNumber(found) == 3
    with pytest.raises(nvml.NVMLError_NotFound):
        getattr(nvml, function)(key.replace("1", "2").encode())


def test_utilisation_in_percent(h100: Any) -> None:
    rates = nvml.nvmlDeviceGetUtilizationRates(h100)
    assert (rates.gpu, rates.memory) == (87, 45)
    assert nvml.nvmlDeviceGetEncoderUtilization(h100)[0] == 1
    assert nvml.nvmlDeviceGetDecoderUtilization(h100)[0] == 2
    assert nvml.nvmlDeviceGetJpgUtilization(h100)[0] == 3
    assert nvml.nvmlDeviceGetOfaUtilization(h100)[0] == 4


def test_only_version_2_of_the_memory_call_separates_reserved_memory(h100: Any) -> None:
    memory = nvml.nvmlDeviceGetMemoryInfo(h100, version=nvml.nvmlMemory_v2)
    assert (memory.total, memory.used, memory.free, memory.reserved) == (
        85520809984,
        71000000000,
        14000000000,
        520809984,
    )
    old = nvml.nvmlDeviceGetMemoryInfo(h100)
    assert (old.total, old.used, old.free) == (85520809984, 71520809984, 14000000000)
    bar1 = nvml.nvmlDeviceGetBAR1MemoryInfo(h100)
    assert (bar1.bar1Total, bar1.bar1Used, bar1.bar1Free) == (137438953472, 24903680, 137414049792)


def test_power_in_milliwatts_and_energy_in_millijoules(h100: Any) -> None:
    assert nvml.nvmlDeviceGetPowerUsage(h100) == 345120
    assert nvml.nvmlDeviceGetPowerManagementLimit(h100) == 700000
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(h100) == 699000
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(h100) == 700001
    assert nvml.nvmlDeviceGetPowerManagementLimitConstraints(h100) == [200000, 700002]
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(h100) == 123456789012345


def test_temperatures_in_degrees(h100: Any) -> None:
    assert nvml.nvmlDeviceGetTemperature(h100, nvml.NVML_TEMPERATURE_GPU) == 61
    assert nvml.nvmlDeviceGetTemperatureV(h100, nvml.NVML_TEMPERATURE_GPU) == 61
    assert nvml.nvmlDeviceGetTemperatureThreshold(h100, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) == 89
    assert nvml.nvmlDeviceGetTemperatureThreshold(h100, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN) == 94
    assert nvml.nvmlDeviceGetMarginTemperature(h100) == -3
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetTemperatureThreshold(h100, nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX)


def test_clocks_in_megahertz(h100: Any) -> None:
    now = [nvml.nvmlDeviceGetClockInfo(h100, domain) for domain in range(4)]
    most = [nvml.nvmlDeviceGetMaxClockInfo(h100, domain) for domain in range(4)]
    assert (now, most) == ([1980, 1981, 2619, 1545], [1990, 1991, 2620, 1546])
    assert nvml.nvmlDeviceGetApplicationsClock(h100, nvml.NVML_CLOCK_GRAPHICS) == 1700
    assert nvml.nvmlDeviceGetApplicationsClock(h100, nvml.NVML_CLOCK_MEM) == 2600
    assert nvml.nvmlDeviceGetDefaultApplicationsClock(h100, nvml.NVML_CLOCK_GRAPHICS) == 1695
    ids = [nvml.nvmlDeviceGetClock(h100, nvml.NVML_CLOCK_GRAPHICS, id) for id in range(4)]
    assert ids == [1980, 1700, 1695, 1990]
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetApplicationsClock(h100, nvml.NVML_CLOCK_SM)


def test_fans_performance_state_and_throttling(h100: Any) -> None:
    assert nvml.nvmlDeviceGetNumFans(h100) == 2
    assert nvml.nvmlDeviceGetFanSpeed(h100) == 30
    assert [nvml.nvmlDeviceGetFanSpeed_v2(h100, fan) for fan in (0, 1)] == [30, 35]
    assert nvml.nvmlDeviceGetPerformanceState(h100) == 2
    assert nvml.nvmlDeviceGetPowerState(h100) == 2
    thermal_and_cap = nvml.nvmlClocksThrottleReasonHwThermalSlowdown | nvml.nvmlClocksThrottleReasonSwPowerCap
    assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h100) == thermal_and_cap == 68
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(h100) == 68
    assert nvml.nvmlDeviceGetSupportedClocksEventReasons(h100) == 511


def test_modes(h100: Any) -> None:
    assert nvml.nvmlDeviceGetPersistenceMode(h100) == 1
    assert nvml.nvmlDeviceGetAccountingMode(h100) == 0
    assert nvml.nvmlDeviceGetEccMode(h100) == [1, 0]
    assert nvml.nvmlDeviceGetComputeMode(h100) == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert nvml.nvmlDeviceGetMigMode(h100) == [0, 1]


def test_values_missing_in_the_scenario_are_not_supported(gpu: OneGpu) -> None:
    handle = gpu("")
    for function, arguments in {
        "nvmlDeviceGetPowerUsage": (),
        "nvmlDeviceGetTotalEnergyConsumption": (),
        "nvmlDeviceGetUtilizationRates": (),
        "nvmlDeviceGetMemoryInfo": (),
        "nvmlDeviceGetSerial": (),
        "nvmlDeviceGetNumFans": (),
        "nvmlDeviceGetMigMode": (),
        "nvmlDeviceGetNvLinkState": (0,),
        "nvmlDeviceGetComputeRunningProcesses": (),
        "nvmlDeviceGetProcessUtilization": (0,),
        "nvmlDeviceGetPcieThroughput": (0,),
        "nvmlDeviceGetCpuAffinity": (1,),
    }.items():
        with pytest.raises(nvml.NVMLError_NotSupported):
            getattr(nvml, function)(handle, *arguments)


def test_a_wrong_struct_version_is_refused(gpu: OneGpu) -> None:
    handle = gpu("memory.total 4\nmemory.used 1\nmemory.free 2\nmemory.reserved 1\n")
    memory = nvml.c_nvmlMemory_v2_t()
    memory.version = nvml.nvmlMemory_v2 + 1
    assert nvml.nvmlLib.nvmlDeviceGetMemoryInfo_v2(handle, nvml.byref(memory)) == 25


def test_ecc_retired_pages_and_remapped_rows(gpu: OneGpu) -> None:
    handle = gpu(
        "ecc.corrected.volatile.total 11\n"
        "ecc.uncorrected.aggregate.total 14\n"
        "ecc.corrected.aggregate.sram 27\n"
        "ecc.uncorrected.volatile.device_memory 22\n"
        "retired.single_bit 3\nretired.double_bit 0\nretired.pending 1\n"
        "remapped.correctable 5\nremapped.uncorrectable 6\nremapped.pending 1\nremapped.failure 0\n"
        "remap_banks.max 639\nremap_banks.high 4\nremap_banks.partial 3\n"
        "remap_banks.low 2\nremap_banks.none 1\n"
    )
    assert nvml.nvmlDeviceGetTotalEccErrors(handle, 0, 0) == 11
    assert nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 1) == 14
    sram, dram = nvml.NVML_MEMORY_LOCATION_SRAM, nvml.NVML_MEMORY_LOCATION_DEVICE_MEMORY
    assert nvml.nvmlDeviceGetMemoryErrorCounter(handle, 0, 1, sram) == 27
    assert nvml.nvmlDeviceGetMemoryErrorCounter(handle, 1, 0, dram) == 22
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMemoryErrorCounter(handle, 1, 0, sram)
    assert len(nvml.nvmlDeviceGetRetiredPages(handle, 0)) == 3
    assert nvml.nvmlDeviceGetRetiredPages(handle, 1) == []
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle) == 1
    assert nvml.nvmlDeviceGetRemappedRows(handle) == (5, 6, 1, 0)
    banks = nvml.nvmlDeviceGetRowRemapperHistogram(handle)
    assert (banks.max, banks.high, banks.partial, banks.low, banks.none) == (639, 4, 3, 2, 1)


def test_pcie(gpu: OneGpu) -> None:
    handle = gpu(
        "pcie.gen 4\npcie.gen_max 5\npcie.gen_max_device 6\npcie.width 8\npcie.width_max 16\n"
        "pcie.replays 9\npcie.tx 1200\npcie.rx 3400\n"
    )
    assert nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle) == 4
    assert nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle) == 5
    assert nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(handle) == 6
    assert nvml.nvmlDeviceGetCurrPcieLinkWidth(handle) == 8
    assert nvml.nvmlDeviceGetMaxPcieLinkWidth(handle) == 16
    assert nvml.nvmlDeviceGetPcieReplayCounter(handle) == 9
    before = time.monotonic()
    assert nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) == 1200
    assert nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) == 3400
    assert time.monotonic() - before >= 0.040, "the driver measures for 20 ms and lets the caller wait"


def test_nvlink_by_link(gpu: OneGpu) -> None:
    handle = gpu(
        "nvlink.0.state 1\nnvlink.0.version 6\nnvlink.0.replay 1\nnvlink.0.recovery 2\nnvlink.0.crc_flit 3\n"
        "nvlink.0.crc_data 4\nnvlink.0.ecc_data 5\nnvlink.17.state 0\nnvlink.17.version 6\n"
    )
    assert nvml.nvmlDeviceGetNvLinkState(handle, 0) == 1
    assert nvml.nvmlDeviceGetNvLinkState(handle, 17) == 0
    assert nvml.nvmlDeviceGetNvLinkVersion(handle, 0) == nvml.NVML_NVLINK_VERSION_4_0
    counters = [nvml.nvmlDeviceGetNvLinkErrorCounter(handle, 0, counter) for counter in range(5)]
    assert counters == [1, 2, 3, 4, 5]
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetNvLinkState(handle, 1)


def test_time_throttled_in_nanoseconds(gpu: OneGpu) -> None:
    handle = gpu("violation.power 7000000001\nviolation.thermal 5\n")
    assert nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_POWER).violationTime == 7000000001
    assert nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_THERMAL).violationTime == 5
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_RELIABILITY)


def test_gpm_in_percent_between_two_samples(gpu: OneGpu) -> None:
    handle = gpu("gpm.graphics 99.5\ngpm.sm 87.25\ngpm.dram 0\n")
    assert nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 1
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.sample1, request.sample2 = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    wanted = (nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, nvml.NVML_GPM_METRIC_FP64_UTIL)
    request.numMetrics = len(wanted)
    for place, metric in enumerate(wanted):
        request.metrics[place].metricId = metric
    nvml.nvmlGpmSampleGet(handle, request.sample1)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMetricsGet(request)
    nvml.nvmlGpmSampleGet(handle, request.sample2)
    nvml.nvmlGpmMetricsGet(request)
    answers = [(request.metrics[i].nvmlReturn, request.metrics[i].value) for i in range(3)]
    assert answers[:2] == [(0, 87.25), (0, 0.0)]
    assert answers[2][0] == nvml.NVML_ERROR_NOT_SUPPORTED
    for sample in (request.sample1, request.sample2):
        nvml.nvmlGpmSampleFree(sample)


def test_a_gpu_without_gpm_reports_it_as_not_supported(gpu: OneGpu) -> None:
    assert nvml.nvmlGpmQueryDeviceSupport(gpu("util.gpu 3\n")).isSupportedDevice == 0
