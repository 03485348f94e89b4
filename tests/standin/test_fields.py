"""nvmlDeviceGetFieldValues: every field id that means something in the model, with its own number."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml

OneGpu = Callable[[str], Any]

ECC = {
    3: "corrected.volatile.total",
    4: "uncorrected.volatile.total",
    5: "corrected.aggregate.total",
    6: "uncorrected.aggregate.total",
    7: "corrected.volatile.l1_cache",
    8: "uncorrected.volatile.l1_cache",
    9: "corrected.volatile.l2_cache",
    10: "uncorrected.volatile.l2_cache",
    11: "corrected.volatile.device_memory",
    12: "uncorrected.volatile.device_memory",
    13: "corrected.volatile.register_file",
    14: "uncorrected.volatile.register_file",
    15: "corrected.volatile.texture_memory",
    16: "uncorrected.volatile.texture_memory",
    17: "uncorrected.volatile.cbu",
    18: "corrected.aggregate.l1_cache",
    19: "uncorrected.aggregate.l1_cache",
    20: "corrected.aggregate.l2_cache",
    21: "uncorrected.aggregate.l2_cache",
    22: "corrected.aggregate.device_memory",
    23: "uncorrected.aggregate.device_memory",
    24: "corrected.aggregate.register_file",
    25: "uncorrected.aggregate.register_file",
    26: "corrected.aggregate.texture_memory",
    27: "uncorrected.aggregate.texture_memory",
    28: "uncorrected.aggregate.cbu",
}
PLAIN = {
    nvml.NVML_FI_DEV_ECC_CURRENT: "ecc_mode",
    nvml.NVML_FI_DEV_RETIRED_SBE: "retired.single_bit",
    nvml.NVML_FI_DEV_RETIRED_DBE: "retired.double_bit",
    nvml.NVML_FI_DEV_RETIRED_PENDING: "retired.pending",
    nvml.NVML_FI_DEV_PERF_POLICY_POWER: "violation.power",
    nvml.NVML_FI_DEV_PERF_POLICY_THERMAL: "violation.thermal",
    nvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST: "violation.sync_boost",
    nvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT: "violation.board_limit",
    nvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION: "violation.low_utilization",
    nvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY: "violation.reliability",
    nvml.NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS: "violation.app_clocks",
    nvml.NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS: "violation.base_clocks",
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "violation.sw_thermal",
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "violation.hw_thermal",
    nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "violation.hw_power_brake",
    nvml.NVML_FI_DEV_MEMORY_TEMP: "temp.memory",
    nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: "energy",
    nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER: "pcie.replays",
    nvml.NVML_FI_DEV_REMAPPED_COR: "remapped.correctable",
    nvml.NVML_FI_DEV_REMAPPED_UNC: "remapped.uncorrectable",
    nvml.NVML_FI_DEV_REMAPPED_PENDING: "remapped.pending",
    nvml.NVML_FI_DEV_REMAPPED_FAILURE: "remapped.failure",
    nvml.NVML_FI_DEV_POWER_INSTANT: "power.usage",
    nvml.NVML_FI_DEV_POWER_MIN_LIMIT: "power.min",
    nvml.NVML_FI_DEV_POWER_MAX_LIMIT: "power.max",
    nvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT: "power.default",
    nvml.NVML_FI_DEV_POWER_CURRENT_LIMIT: "power.enforced",
    nvml.NVML_FI_DEV_POWER_REQUESTED_LIMIT: "power.limit",
    nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: "recovery_action",
    **{id: f"ecc.{key}" for id, key in ECC.items()},
}


def number(value: Any) -> int:
    assert value.nvmlReturn == nvml.NVML_SUCCESS, f"field {value.fieldId}: {value.nvmlReturn}"
    if value.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return int(value.value.uiVal)
    if value.valueType == nvml.NVML_VALUE_TYPE_SIGNED_INT:
        return int(value.value.siVal)
    assert value.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    return int(value.value.ullVal)


def test_every_field_has_its_own_number(gpu: OneGpu) -> None:
    expected = {id: 1000 + place for place, id in enumerate(PLAIN)}
    handle = gpu("".join(f"{key} {expected[id]}\n" for id, key in PLAIN.items()))
    values = nvml.nvmlDeviceGetFieldValues(handle, list(PLAIN))
    assert {value.fieldId: number(value) for value in values} == expected


def test_energy_has_64_bits_and_a_second_id(gpu: OneGpu) -> None:
    handle = gpu("energy 9007199254740993\n")
    ids = [nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, nvml.NVML_FI_DEV_ENERGY]
    assert [number(v) for v in nvml.nvmlDeviceGetFieldValues(handle, ids)] == [9007199254740993] * 2


def test_temperature_limits_may_be_negative(gpu: OneGpu) -> None:
    handle = gpu("temp.tlimit_shutdown -8\ntemp.tlimit_slowdown -2\n")
    ids = [nvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, nvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT]
    assert [number(v) for v in nvml.nvmlDeviceGetFieldValues(handle, ids)] == [-8, -2]


def test_an_unsupported_field_is_reported_beside_a_supported_one(gpu: OneGpu) -> None:
    handle = gpu("temp.memory 74\n")
    ids = [nvml.NVML_FI_DEV_MEMORY_TEMP, nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 9999]
    returned = [value.nvmlReturn for value in nvml.nvmlDeviceGetFieldValues(handle, ids)]
    assert returned == [nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NOT_SUPPORTED]


@pytest.mark.parametrize("scope", [1, 2])
def test_module_power_differs_from_gpu_power(gpu: OneGpu, scope: int) -> None:
    handle = gpu("power.usage 345120\n")
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [(nvml.NVML_FI_DEV_POWER_INSTANT, scope)])
    assert value.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


def test_superchip_has_values_of_the_gpu_and_of_its_module(gpu: OneGpu) -> None:
    handle = gpu(
        "cc_major 9\ncc_minor 0\npower.usage 345120\npower.module 511000\nenergy 5000\nenergy.module 9000\n"
    )
    expected = {
        (nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_GPU): 345120,
        (nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_MODULE): 511000,
        (nvml.NVML_FI_DEV_ENERGY, nvml.NVML_POWER_SCOPE_GPU): 5000,
        (nvml.NVML_FI_DEV_ENERGY, nvml.NVML_POWER_SCOPE_MODULE): 9000,
        (nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0): 9000,
    }
    values = nvml.nvmlDeviceGetFieldValues(handle, list(expected))
    assert {(value.fieldId, value.scopeId): number(value) for value in values} == expected
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(handle) == 9000


@pytest.mark.parametrize("capability", [(7, 5), (8, 0)])
def test_mean_power_is_not_supported_on_turing_and_ga100(gpu: OneGpu, capability: tuple[int, int]) -> None:
    handle = gpu("cc_major {}\ncc_minor {}\npower.usage 345120\n".format(*capability))
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_AVERAGE])
    assert value.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


def links(version: int) -> str:
    lines = []
    for link in range(18):
        counters = {"state": int(link != 5), "version": version, "replay": 10 + link, "recovery": 30 + link}
        counters |= {
            "crc_flit": 50 + link,
            "crc_data": 70 + link,
            "ecc_data": 90 + link,
            "speed": 25000 + link,
        }
        counters |= {"tx": 1024 * (100 + link), "rx": 1024 * (200 + link), "receive": 300 + link}
        lines += [f"nvlink.{link}.{name} {value}\n" for name, value in counters.items()]
    return "".join(lines)


def test_nvlink_counters_by_id_and_by_scope(gpu: OneGpu) -> None:
    handle = gpu(links(version=5))
    every_link = 0xFFFFFFFF
    expected = {
        (nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0, 0): 50,
        (nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L11, 0): 61,
        (nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L5, 0): 75,
        (nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6, 0): 76,
        (nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L3, 0): 13,
        (nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L8, 0): 38,
        (nvml.NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L2, 0): 92,
        (nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0): sum(10 + link for link in range(18)),
        (nvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0): 18,
        (nvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 17): 27,
        (nvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, 17): 47,
        (nvml.NVML_FI_DEV_NVLINK_GET_SPEED, 3): 25003,
        (nvml.NVML_FI_DEV_NVLINK_GET_STATE, 4): 1,
        (nvml.NVML_FI_DEV_NVLINK_GET_STATE, 5): 0,
        (nvml.NVML_FI_DEV_NVLINK_GET_VERSION, 5): 5,
        (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 7): 107,
        (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, every_link): sum(100 + link for link in range(18)),
        (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, every_link): sum(200 + link for link in range(18)),
    }
    values = nvml.nvmlDeviceGetFieldValues(handle, list(expected))
    assert {(value.fieldId, value.scopeId): number(value) for value in values} == expected
    newer = (nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES)
    for value in nvml.nvmlDeviceGetFieldValues(handle, [(id, 0) for id in newer]):
        assert value.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


def test_on_hopper_the_older_error_fields_succeed_and_are_zero(gpu: OneGpu) -> None:
    handle = gpu(links(version=6))
    expected = {
        (nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0, 0): 0,
        (nvml.NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_L11, 0): 0,
        (nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0): 0,
        (nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_L3, 0): 25003,
        (nvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 17): 27,
        (nvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 17): 67,
    }
    values = nvml.nvmlDeviceGetFieldValues(handle, list(expected))
    assert {(value.fieldId, value.scopeId): number(value) for value in values} == expected
    ecc_data = nvml.NVML_NVLINK_ERROR_DL_ECC_DATA
    assert nvml.nvmlDeviceGetNvLinkErrorCounter(handle, 17, ecc_data) == 107


def test_the_fifth_generation_counts_bytes_and_other_errors(gpu: OneGpu) -> None:
    handle = gpu(links(version=7))
    expected = {
        (nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 3): 1024 * 103,
        (nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 3): 1024 * 203,
        (nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, 17): 317,
        (nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 0xFFFFFFFF): sum(1024 * (100 + n) for n in range(18)),
        (nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, 0xFFFFFFFF): sum(300 + n for n in range(18)),
    }
    values = nvml.nvmlDeviceGetFieldValues(handle, list(expected))
    assert {(value.fieldId, value.scopeId): number(value) for value in values} == expected
    old = [
        (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF),
        (nvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 0),
    ]
    for value in nvml.nvmlDeviceGetFieldValues(handle, old):
        assert value.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED
