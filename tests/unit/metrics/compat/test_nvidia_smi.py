"""nvidia_smi_*: the names of both tools, their labels, and the values that ours have."""

from dataclasses import replace

import pytest
from hypothesis import given

from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat.nvidia_smi import ROWS, families
from gputally.model import (
    COMPUTE_MODES,
    Gpu,
    MigInstance,
    MigReading,
    Process,
    Reading,
    Snapshot,
    SourceState,
    state_set,
)
from tests.support.snapshots import (
    BEGAN,
    LOOKS,
    Samples,
    amd,
    check_sound,
    kinds,
    ours,
    scene,
    simulated,
    snapshots,
    told,
)

SIDECAR = (
    "gpu_utilization_percent",
    "memory_utilization_percent",
    "memory_used_bytes",
    "temperature_celsius",
    "power_usage_watts",
)
# What nvidia_gpu_exporter 1.x says of an H100, and its dashboards of other cards.
EXPORTER = """
accounting_mode clocks_current_graphics_clock_hz clocks_current_memory_clock_hz clocks_current_sm_clock_hz
clocks_current_video_clock_hz clocks_event_reasons_applications_clocks_setting
clocks_event_reasons_counters_hw_power_brake_slowdown_seconds
clocks_event_reasons_counters_hw_thermal_slowdown_seconds
clocks_event_reasons_counters_sw_power_cap_seconds clocks_event_reasons_counters_sw_thermal_slowdown_seconds
clocks_event_reasons_counters_sync_boost_seconds clocks_event_reasons_gpu_idle
clocks_event_reasons_hw_power_brake_slowdown clocks_event_reasons_hw_slowdown
clocks_event_reasons_hw_thermal_slowdown clocks_event_reasons_sw_power_cap
clocks_event_reasons_sw_thermal_slowdown clocks_event_reasons_sync_boost
clocks_throttle_reasons_applications_clocks_setting clocks_throttle_reasons_gpu_idle
clocks_throttle_reasons_hw_power_brake_slowdown clocks_throttle_reasons_hw_thermal_slowdown
clocks_throttle_reasons_sw_power_cap clocks_throttle_reasons_sw_thermal_slowdown
clocks_throttle_reasons_sync_boost clocks_max_graphics_clock_hz clocks_max_memory_clock_hz
clocks_max_sm_clock_hz compute_mode ecc_errors_corrected_aggregate_device_memory
ecc_errors_corrected_aggregate_dram ecc_errors_corrected_aggregate_sram ecc_errors_corrected_aggregate_total
ecc_errors_corrected_volatile_device_memory ecc_errors_corrected_volatile_dram
ecc_errors_corrected_volatile_sram ecc_errors_corrected_volatile_total
ecc_errors_uncorrected_aggregate_device_memory ecc_errors_uncorrected_aggregate_dram
ecc_errors_uncorrected_aggregate_sram ecc_errors_uncorrected_aggregate_total
ecc_errors_uncorrected_volatile_device_memory ecc_errors_uncorrected_volatile_dram
ecc_errors_uncorrected_volatile_sram ecc_errors_uncorrected_volatile_total ecc_mode_current
energy_joules_total enforced_power_limit_watts fan_speed_ratio gpu_info gpu_recovery_action index
last_collect_duration_seconds last_collect_success last_collect_success_timestamp_seconds memory_free_bytes
memory_reserved_bytes memory_total_bytes memory_used_bytes mig_graphics_activity_ratio mig_info
mig_memory_free_bytes mig_memory_reserved_bytes mig_memory_total_bytes mig_memory_used_bytes
mig_mode_current mig_sm_activity_ratio mig_sm_occupancy_ratio mig_tensor_activity_ratio
pcie_link_gen_current pcie_link_gen_gpucurrent pcie_link_gen_max pcie_link_width_current
pcie_link_width_max pcie_throughput_rx_bytes_per_second pcie_throughput_tx_bytes_per_second
persistence_mode power_default_limit_watts power_draw_watts power_limit_watts power_max_limit_watts
power_min_limit_watts pstate remapped_rows_correctable remapped_rows_failure remapped_rows_histogram_high
remapped_rows_histogram_low remapped_rows_histogram_max remapped_rows_histogram_none
remapped_rows_histogram_partial remapped_rows_pending remapped_rows_uncorrectable temperature_gpu
temperature_gpu_tlimit temperature_memory utilization_decoder_ratio utilization_encoder_ratio
utilization_gpu_ratio utilization_jpeg_ratio utilization_memory_ratio utilization_ofa_ratio
xid_errors_total xid_last_timestamp_seconds
"""
COUNTERS = {
    "nvidia_smi_energy_joules_total",
    "nvidia_smi_failed_scrapes_total",
    "nvidia_smi_xid_errors_total",
}
INFOS = {"nvidia_smi_compute_app_info", "nvidia_smi_gpu_info", "nvidia_smi_mig_info"}
OTHER_LABELS = {
    "nvidia_smi_gpu_utilization_percent": ("uuid", "gpu_id"),
    "nvidia_smi_memory_utilization_percent": ("uuid", "gpu_id"),
    "nvidia_smi_temperature_celsius": ("uuid", "gpu_id"),
    "nvidia_smi_power_usage_watts": ("uuid", "gpu_id"),
    "nvidia_smi_xid_errors_total": ("uuid", "xid"),
    "nvidia_smi_xid_last_timestamp_seconds": ("uuid", "xid"),
    "nvidia_smi_last_collect_success": (),
    "nvidia_smi_last_collect_success_timestamp_seconds": (),
    "nvidia_smi_last_collect_duration_seconds": (),
    "nvidia_smi_failed_scrapes_total": (),
    "nvidia_smi_compute_apps_last_collect_success": (),
    "nvidia_smi_compute_app_info": ("uuid", "pid", "process_name"),
    "nvidia_smi_compute_app_used_memory_bytes": ("uuid", "pid", "process_name"),
    "nvidia_smi_gpu_info": (
        "uuid",
        "name",
        "driver_model_current",
        "driver_model_pending",
        "vbios_version",
        "driver_version",
        "pci_bus_id",
        "serial",
        "compute_cap",
        "pci_sub_device_id",
        "index",
        "cuda_version",
    ),
}
NOTHING = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=())
GPU = Gpu("GPU-2B39", 0, "nvidia", "H100")


def found_in(*readings: Reading) -> dict[str, Samples]:
    return told(families(scene(replace(NOTHING, readings=readings))))


def test_the_profile_has_every_name_of_both_tools_once() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert {f"nvidia_smi_{name}" for name in (*SIDECAR, *EXPORTER.split())} <= set(names)
    assert {row.ours for row in ROWS} - {""} <= {metric.name for metric in CATALOG}


def test_types_and_labels_are_those_of_the_tools() -> None:
    found = families(scene(simulated()))
    assert {f"nvidia_smi_{name}" for name in SIDECAR} <= set(kinds(found))
    for family in found:
        name = family.metric.name
        assert family.metric.labels == OTHER_LABELS.get(name, ("uuid",)), name
        counts = Kind.COUNTER if name in COUNTERS else Kind.GAUGE
        assert family.metric.kind is (Kind.INFO if name in INFOS else counts), name


@pytest.mark.parametrize(
    ("name", "our_name", "times", "where"),
    [
        ("gpu_utilization_percent", "utilization_ratio", 100, ()),
        ("memory_utilization_percent", "memory_utilization_ratio", 100, ()),
        ("temperature_celsius", "temperature_celsius", 1, ()),
        ("power_usage_watts", "power_watts", 1, ()),
        ("memory_used_bytes", "memory_used_bytes", 1, ()),
        ("memory_total_bytes", "memory_total_bytes", 1, ()),
        ("utilization_gpu_ratio", "utilization_ratio", 1, ()),
        ("utilization_encoder_ratio", "encoder_utilization_ratio", 1, ()),
        ("temperature_gpu", "temperature_celsius", 1, ()),
        ("temperature_memory", "memory_temperature_celsius", 1, ()),
        ("power_draw_watts", "power_watts", 1, ()),
        ("enforced_power_limit_watts", "power_enforced_limit_watts", 1, ()),
        ("clocks_current_sm_clock_hz", "clock_hertz", 1, ("sm",)),
        ("clocks_max_memory_clock_hz", "clock_max_hertz", 1, ("memory",)),
        ("clocks_event_reasons_sw_power_cap", "throttle_active", 1, ("sw_power_cap",)),
        ("clocks_throttle_reasons_sw_power_cap", "throttle_active", 1, ("sw_power_cap",)),
        (
            "clocks_event_reasons_counters_sw_power_cap_seconds",
            "throttle_seconds_total",
            1,
            ("sw_power_cap",),
        ),
        ("ecc_errors_corrected_volatile_total", "ecc_errors_total", 1, ("corrected", "volatile")),
        (
            "ecc_errors_uncorrected_aggregate_device_memory",
            "ecc_location_errors_total",
            1,
            ("uncorrected", "aggregate", "device_memory"),
        ),
        ("remapped_rows_correctable", "remapped_rows", 1, ("correctable",)),
        ("remapped_rows_histogram_max", "remap_banks", 1, ("max",)),
        ("pcie_link_gen_current", "pcie_generation", 1, ()),
        ("pstate", "performance_state", 1, ()),
        ("persistence_mode", "persistence_mode", 1, ()),
        ("energy_joules_total", "energy_joules_total", 1, ()),
    ],
)
def test_values_equal_ours(name: str, our_name: str, times: float, where: tuple[str, ...]) -> None:
    theirs = told(families(scene(simulated())))[f"nvidia_smi_{name}"]
    found = ours(simulated())[f"gputally_gpu_{our_name}"]
    assert {labels[0]: value for labels, value in theirs.items()} == pytest.approx(
        {
            uuid.removeprefix("GPU-"): value * times
            for (_, uuid, *rest), value in found.items()
            if tuple(rest) == where
        }
    )


def test_used_memory_has_the_labels_of_total_memory_for_division() -> None:
    found = told(families(scene(simulated())))
    assert set(found["nvidia_smi_memory_used_bytes"]) == set(found["nvidia_smi_memory_total_bytes"])
    assert set(found["nvidia_smi_memory_used_bytes"]) == set(found["nvidia_smi_index"])


def test_a_gpu_has_the_name_that_this_exporter_gives() -> None:
    gpu = replace(GPU, pci_bus_id="00000000:71:00.0", driver_version="590.48", cuda_version="13.1")
    ((labels, one),) = found_in(Reading(gpu=gpu))["nvidia_smi_gpu_info"].items()
    assert one == 1
    assert labels == (
        *("2b39", "H100", "[N/A]", "[N/A]", "", "590.48", "00000000:71:00.0", "", "", "", "0", "13.1"),
    )


def test_states_are_numbers() -> None:
    found = found_in(Reading(gpu=GPU, compute_mode=state_set(COMPUTE_MODES, "exclusive_process")))
    assert found["nvidia_smi_compute_mode"] == {("2b39",): 3}
    assert "nvidia_smi_gpu_recovery_action" not in found


def test_xid_errors_are_counted_by_code_and_kept_for_a_lost_gpu() -> None:
    reading = Reading(
        gpu=GPU, power_watts=70, xid_errors={("79",): 2}, xid_last_timestamp_seconds={("79",): 5.0}
    )
    found = found_in(reading.lost())
    assert found.pop("nvidia_smi_gpu_info")
    assert found == {
        "nvidia_smi_xid_errors_total": {("2b39", "79"): 2},
        "nvidia_smi_xid_last_timestamp_seconds": {("2b39", "79"): 5.0},
    }


def test_memory_of_a_gpu_instance_occurs_once_for_all_its_compute_instances() -> None:
    slices = tuple(
        MigReading(
            instance=MigInstance(f"MIG-{number}", GPU.uuid, 0, 2, number, "1c.3g.40gb"),
            memory_used_bytes=7,
            sm_active_ratio=0.25,
        )
        for number in (0, 1)
    )
    found = found_in(Reading(gpu=GPU, mig=slices))
    assert found["nvidia_smi_mig_memory_used_bytes"] == {("2b39", "2"): 7}
    assert found["nvidia_smi_mig_sm_activity_ratio"] == {("2b39", "2"): 0.25}
    assert set(found["nvidia_smi_mig_info"]) == {
        ("2b39", "0", "2", "0", "1c.3g.40gb"),
        ("2b39", "1", "2", "1", "1c.3g.40gb"),
    }
    assert "nvidia_smi_mig_memory_total_bytes" not in found


def test_health_is_that_of_the_available_source() -> None:
    found = told(families(scene(simulated())))
    assert found["nvidia_smi_last_collect_success"] == {(): True}
    assert found["nvidia_smi_last_collect_success_timestamp_seconds"] == {(): BEGAN + LOOKS[-1]}
    broken = SourceState(name="nvml", up=False, last_success_seconds=3.0)
    amd_only = SourceState(name="amdgpu", up=True)
    answering = SourceState(name="nvidia-smi", up=True, failures=2, overruns=1, exit_code=0)
    fallback = told(families(scene(replace(NOTHING, sources=(broken, answering)))))
    assert fallback == {
        "nvidia_smi_last_collect_success": {(): True},
        "nvidia_smi_failed_scrapes_total": {(): 3},
        "nvidia_smi_command_exit_code": {(): 0},
    }
    down = told(families(scene(replace(NOTHING, sources=(broken, amd_only)))))
    assert down["nvidia_smi_last_collect_success"] == {(): False}
    assert not families(scene(replace(NOTHING, sources=(amd_only,))))


TRAIN = Process(7, "compute+mps", "python3", 70)
DESKTOP = Process(8, "graphics", "Xorg", 80)


def test_compute_processes_are_listed_and_an_unread_list_is_no_empty_one() -> None:
    other = replace(GPU, uuid="GPU-5C", index=1)
    found = found_in(Reading(gpu=GPU, processes=(TRAIN, DESKTOP)), Reading(gpu=other))
    assert found["nvidia_smi_compute_app_info"] == {("2b39", "7", "python3"): 1}
    assert found["nvidia_smi_compute_app_used_memory_bytes"] == {("2b39", "7", "python3"): 70}
    assert found["nvidia_smi_compute_apps"] == {("2b39",): 1}
    assert found["nvidia_smi_compute_apps_last_collect_success"] == {(): 1}
    unread = found_in(Reading(gpu=GPU))
    assert unread["nvidia_smi_compute_apps_last_collect_success"] == {(): 0}
    assert "nvidia_smi_compute_apps" not in unread
    assert not {name for name in found_in(Reading(gpu=GPU, up=False)) if "compute_app" in name}


def test_a_process_has_the_name_that_nvidia_smi_printed() -> None:
    hidden = Process(7, "compute", None, 70)
    found = found_in(Reading(gpu=GPU, processes=(hidden,), nvidia_smi_names={7: "[Not Found]"}))
    assert set(found["nvidia_smi_compute_app_info"]) == {("2b39", "7", "[Not Found]")}
    assert set(found_in(Reading(gpu=GPU, processes=(hidden,)))["nvidia_smi_compute_app_info"]) == {
        ("2b39", "7", "")
    }


def test_a_process_on_a_mig_device_is_one_of_its_gpu() -> None:
    mig = MigReading(instance=MigInstance("MIG-1", GPU.uuid, 0, 2, 0), processes=(TRAIN,))
    found = found_in(Reading(gpu=GPU, mig=(mig,)))
    assert found["nvidia_smi_compute_apps"] == {("2b39",): 1}


def test_a_gpu_read_by_nvidia_smi_and_one_read_otherwise_share_the_families() -> None:
    row = {"uuid": "GPU-2B39", "name": "NVIDIA H200", "power.draw [W]": "98.14 W", "fan.speed [%]": "[N/A]"}
    printed = Reading(gpu=GPU, power_watts=1.0, fan_speed_ratio={("0",): 0.5}, nvidia_smi_row=row)
    other = Reading(gpu=replace(GPU, uuid="GPU-5C", index=1), power_watts=2.0)
    found = found_in(printed, other)
    assert found["nvidia_smi_power_draw_watts"] == {("2b39",): 98.14, ("5c",): 2.0}
    assert found["nvidia_smi_name"] == {("2b39",): 200}
    assert "nvidia_smi_fan_speed_ratio" not in found, "the column is there, and has no value"
    info = {labels[0]: labels for labels in found["nvidia_smi_gpu_info"]}
    assert info["2b39"][:3] == ("2b39", "NVIDIA H200", "")
    assert info["5c"][:3] == ("5c", "H100", "[N/A]")


def test_an_amd_gpu_has_exactly_its_supported_values() -> None:
    snapshot = amd("rx7900xtx")
    found = told(families(scene(snapshot)))
    (reading,) = snapshot.readings
    uuid = reading.gpu.uuid.lower().removeprefix("gpu-")
    assert found["nvidia_smi_temperature_celsius"] == {(uuid, "0"): reading.temperature_celsius}
    assert found["nvidia_smi_memory_used_bytes"] == {(uuid,): reading.memory_used_bytes}
    absent = ("pstate", "clocks_current_sm_clock_hz", "compute_mode", "persistence_mode", "ecc_mode_current")
    assert not {f"nvidia_smi_{name}" for name in absent} & set(found)


@given(snapshots())
def test_no_series_occurs_twice(snapshot: Snapshot) -> None:
    check_sound(families(scene(snapshot)))
