"""--compat nvidia-smi by nvidia_gpu_exporter's own test: real machines, and what it serves of each.

A machine is replayed through the reader; series are compared by name, labels, type and value.
"""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gputally.metrics.compat.nvidia_smi import ROWS
from tests.support.command_line import run
from tests.unit.devices.nvidia_smi.captures import MACHINE_NAMES, MACHINES, CapturedNvidiaSmi

Family = tuple[str, dict[tuple[str, frozenset[tuple[str, str]]], float]]
PAGE = Path(__file__).parents[4] / "docs" / "migrate.md"
SERVED = {
    "linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04": 89,
    "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01": 134,
    "linux-x86_64__nvidia-h200-mig__590.48.01": 125,
}
"""Families; all that it serves."""
# In the queries of nvidia_gpu_exporter 1.14: its two dashboards and its alerts.
QUERIED = """
clocks_current_graphics_clock_hz clocks_current_memory_clock_hz clocks_current_sm_clock_hz
clocks_current_video_clock_hz clocks_event_reasons_applications_clocks_setting clocks_event_reasons_gpu_idle
clocks_event_reasons_hw_power_brake_slowdown clocks_event_reasons_hw_thermal_slowdown
clocks_event_reasons_sw_power_cap clocks_event_reasons_sw_thermal_slowdown clocks_event_reasons_sync_boost
clocks_max_graphics_clock_hz clocks_max_memory_clock_hz clocks_throttle_reasons_applications_clocks_setting
clocks_throttle_reasons_gpu_idle clocks_throttle_reasons_hw_power_brake_slowdown
clocks_throttle_reasons_hw_thermal_slowdown clocks_throttle_reasons_sw_power_cap
clocks_throttle_reasons_sw_thermal_slowdown clocks_throttle_reasons_sync_boost compute_app_info
compute_app_used_memory_bytes compute_apps_last_collect_success compute_mode
ecc_errors_uncorrected_aggregate_total ecc_errors_uncorrected_volatile_total energy_joules_total
enforced_power_limit_watts fabric_state fan_speed_ratio gpu_info gpu_recovery_action index
last_collect_duration_seconds last_collect_success last_collect_success_timestamp_seconds memory_total_bytes
memory_used_bytes mig_info mig_memory_used_bytes mig_sm_activity_ratio mig_tensor_activity_ratio
pcie_throughput_rx_bytes_per_second pcie_throughput_tx_bytes_per_second power_default_limit_watts
power_draw_watts power_limit_watts pstate remapped_rows_failure remapped_rows_pending retired_pages_pending
temperature_gpu utilization_gpu_ratio utilization_memory_ratio xid_errors_total xid_last_timestamp_seconds
"""
# What it serves beside the columns of nvidia-smi.
FIXED = """
command_exit_code compute_app_info compute_app_used_memory_bytes compute_apps
compute_apps_last_collect_success energy_joules_total failed_scrapes_total gpu_info
last_collect_duration_seconds last_collect_success last_collect_success_timestamp_seconds
mig_graphics_activity_ratio mig_info mig_memory_free_bytes mig_memory_reserved_bytes mig_memory_total_bytes
mig_memory_used_bytes mig_pcie_throughput_rx_bytes_per_second mig_pcie_throughput_tx_bytes_per_second
mig_sm_activity_ratio mig_sm_occupancy_ratio mig_tensor_activity_ratio nvml_return_code
pcie_throughput_rx_bytes_per_second pcie_throughput_tx_bytes_per_second xid_errors_total
xid_last_timestamp_seconds
"""
NAMES = {row.name.removeprefix("nvidia_smi_") for row in ROWS}


def families_in(text: str) -> dict[str, Family]:
    """Name -> type and series."""
    return {
        family.name.removeprefix("nvidia_smi_"): (
            family.type,
            {(one.name, frozenset(one.labels.items())): one.value for one in family.samples},
        )
        for family in text_string_to_metric_families(text)
        if family.name.startswith("nvidia_smi_")
    }


def expected_of(name: str) -> dict[str, Family]:
    return families_in((MACHINES / f"{name}__load.metrics").read_text())


def scraped_from(tool: CapturedNvidiaSmi) -> dict[str, Family]:
    command = (
        "serve",
        "--once",
        "--reader",
        "nvidia-smi",
        "--compat",
        "nvidia-smi",
        "--nvidia-smi",
        tool.path,
    )
    finished = run(*command)
    assert finished.returncode == 0, finished.stderr
    return families_in(finished.stdout)


@pytest.mark.parametrize("name", MACHINE_NAMES)
def test_every_family_of_a_real_machine_is_served_with_the_same_series(name: str, tmp_path: Path) -> None:
    expected = expected_of(name)
    found = scraped_from(CapturedNvidiaSmi.on_machine(tmp_path, name, "load"))
    assert {family: found.get(family) for family in expected} == expected
    assert len(expected) == SERVED[name]


@pytest.mark.parametrize("name", MACHINE_NAMES)
def test_an_idle_machine_is_served_too(name: str, tmp_path: Path) -> None:
    found = scraped_from(CapturedNvidiaSmi.on_machine(tmp_path, name, "idle"))
    assert set(found["last_collect_success"][1].values()) == {1}
    assert set(found["compute_apps"][1].values()) == {0}


def test_every_name_in_its_dashboards_and_alerts_is_served() -> None:
    of_columns = {family for name in MACHINE_NAMES for family in expected_of(name)}
    assert set(QUERIED.split()) <= NAMES | of_columns


def test_the_page_lists_every_name_that_a_reader_does_not_have() -> None:
    page = PAGE.read_text()

    def listed(mark: str) -> set[str]:
        part = re.search(rf"<!-- {mark} -->(.*?)<!-- /{mark} -->", page, re.DOTALL)
        assert part, mark
        return set(re.findall(r"`([a-z0-9_]+)`", part[1]))

    assert listed("not served") == set(FIXED.split()) - NAMES
    columns = {family for name in MACHINE_NAMES for family in expected_of(name)}
    counters = {name.removesuffix("_total") for name in NAMES}  # the parser cuts it off
    assert listed("only with nvidia-smi") == columns - NAMES - counters
