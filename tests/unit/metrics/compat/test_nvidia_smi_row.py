"""The rule that makes a metric of any column of nvidia-smi."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.metrics.compat.nvidia_smi_row import printed_column

# Headers and cells of drivers 590 and 610, and what nvidia_gpu_exporter 1.14 makes of them.
KNOWN = [
    ("memory.used [MiB]", "815 MiB", "memory_used_bytes", 815 * 2**20),
    ("utilization.gpu [%]", "8 %", "utilization_gpu_ratio", 0.08),
    ("clocks.current.sm [MHz]", "1980 MHz", "clocks_current_sm_clock_hz", 1.98e9),
    (
        "clocks_event_reasons_counters.sync_boost [us]",
        "7 us",
        "clocks_event_reasons_counters_sync_boost_seconds",
        7e-6,
    ),
    ("power_smoothing.window_multiplier [ms]", "5 ms", "power_smoothing_window_multiplier_seconds", 0.005),
    ("bbx.time_run [seconds]", "3 seconds", "bbx_time_run_seconds", 3),
    (
        "power_smoothing.curr_profile.ramp_up_rate [W/s]",
        "2 W/s",
        "power_smoothing_curr_profile_ramp_up_rate_watts_per_second",
        2,
    ),
    ("encoder.stats.averageFps", "30", "encoder_stats_average_fps", 30),
    ("pci.baseClass", "0x3", "pci_base_class", 3),
    ("pci.sub_device_id", "0x40051458", "pci_sub_device_id", 0x40051458),
    (
        "vgpu_driver_capability.heterogenous_multivGPU",
        "1",
        "vgpu_driver_capability_heterogenous_multiv_gpu",
        1,
    ),
    ("vgpu_device_capability.fractional_multiVgpu", "1", "vgpu_device_capability_fractional_multi_vgpu", 1),
    (
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        "No",
        "ecc_errors_uncorrected_aggregate_sram_threshold_exceeded",
        0,
    ),
    ("clocks_event_reasons.gpu_idle", "Not Active", "clocks_event_reasons_gpu_idle", 0),
    ("compute_mode", "Exclusive_Process", "compute_mode", 3),
    ("pstate", "P8", "pstate", 8),
    ("name", "NVIDIA H200", "name", 200),
    ("name", "NVIDIA H100 80GB HBM3", "name", None),
    ("driver_version", "610.57.04", "driver_version", None),
    ("gpu_recovery_action", "None", "gpu_recovery_action", 0),
    ("gpu_recovery_action", "Drain and Reset", "gpu_recovery_action", 4),
    ("gpu_recovery_action", "Reboot", "gpu_recovery_action", 2),
    ("gpu_recovery_action", "Step 9", "gpu_recovery_action", None),
    ("fabric.state", "Completed", "fabric_state", 3),
    ("fabric.state", "Not Supported", "fabric_state", 0),
    ("fabric.state", "[N/A]", "fabric_state", None),
    ("temperature.memory", "[N/A]", "temperature_memory", None),
    ("new.column [furlong/s]", "2 furlong/s", "new_column_furlong_s", 2),
    ("serial", "9" * 400, "serial", None),
    ("serial", "0xNOT", "serial", None),
]


@pytest.mark.parametrize(("header", "cell", "name", "value"), KNOWN)
def test_a_column_has_the_name_and_the_number_that_the_exporter_gives_it(
    header: str, cell: str, name: str, value: float | None
) -> None:
    column = printed_column(header)
    assert column.metric.name == f"nvidia_smi_{name}"
    assert column.value(cell) == value


@given(st.text(), st.text() | st.from_regex(r"[+-]?[0-9]{0,400}(\.[0-9]*)? ?(MiB|W)?"))
def test_any_header_has_a_legal_name_and_any_cell_a_finite_value_or_none(header: str, cell: str) -> None:
    column = printed_column(header)
    assert re.fullmatch(r"nvidia_smi_[a-zA-Z0-9_:]*", column.metric.name)
    value = column.value(cell)
    assert value is None or math.isfinite(value)
