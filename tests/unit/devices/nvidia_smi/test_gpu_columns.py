"""From a row of nvidia-smi to a Reading: the right field, the right labels, nothing invented."""

from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices import Errors
from gputally.devices.nvidia_smi.csv_tables import TableRow, parse_help_columns, parse_query_gpu
from gputally.devices.nvidia_smi.gpu_columns import WANTED, build_gpu, build_reading, choose_columns, is_lost
from gputally.model import THROTTLE_REASONS, Gpu, Reading
from tests.unit.devices.nvidia_smi.captures import CAPTURES, QUERY_CAPTURES

GPU = Gpu(uuid="GPU-1", index=0, vendor="nvidia", model="M")


def captured(capture: str, tool: str = "550", index: int = 0) -> TableRow:
    return parse_query_gpu((CAPTURES / capture / f"query-gpu-{tool}.csv").read_text()).rows[index]


def read(row: TableRow) -> tuple[Reading, Errors]:
    errors: Errors = Counter()
    return build_reading(GPU, row, errors), errors


def test_a_failing_h100_field_by_field() -> None:
    row = captured("h100-failing")
    gpu = build_gpu(row, "12.4")
    assert gpu == Gpu(
        uuid="GPU-01000100-0000-0000-0000-000000000000",
        index=0,
        vendor="nvidia",
        model="NVIDIA H100 80GB HBM3",
        pci_bus_id="00000000:1A:00.0",
        serial="1562821083900",
        vbios_version="96.00.74.00.09",
        driver_version="550.163.01",
        cuda_version="12.4",
        compute_capability="9.0",
    )
    errors: Errors = Counter()
    reading = build_reading(gpu, row, errors)
    assert errors == {}
    locations = (
        "device_memory",
        "dram",
        "register_file",
        "l1_cache",
        "l2_cache",
        "texture_memory",
        "cbu",
        "sram",
    )
    assert reading == Reading(
        gpu=gpu,
        gpu_utilization_ratio=0.87,
        memory_utilization_ratio=0.41,
        encoder_utilization_ratio=0.0,
        decoder_utilization_ratio=0.0,
        jpeg_utilization_ratio=0.01,
        ofa_utilization_ratio=0.02,
        memory_total_bytes=81920 * 2**20,
        memory_used_bytes=60416 * 2**20,
        memory_free_bytes=20480 * 2**20,
        memory_reserved_bytes=1024 * 2**20,
        power_watts=612.34,
        power_limit_watts=700.0,
        power_enforced_limit_watts=0.0,
        power_default_limit_watts=700.0,
        power_min_limit_watts=200.0,
        power_max_limit_watts=700.0,
        temperature_celsius=66.0,
        memory_temperature_celsius=74.0,
        temperature_margin_celsius=0.0,
        clock_hertz={("graphics",): 1.755e9, ("sm",): 1.755e9, ("memory",): 1.593e9, ("video",): 1.545e9},
        clock_max_hertz={("graphics",): 1.98e9, ("sm",): 1.98e9, ("memory",): 1.593e9},
        clock_application_hertz={("graphics",): 1.98e9, ("memory",): 1.593e9},
        performance_state=0,
        throttle_active={(reason,): float(reason == "sw_power_cap") for reason in THROTTLE_REASONS},
        ecc_errors={
            ("corrected", "volatile"): 0.0,
            ("corrected", "aggregate"): 0.0,
            ("uncorrected", "volatile"): 29.0,
            ("uncorrected", "aggregate"): 38.0,
        },
        ecc_location_errors={
            **{
                (kind, lifetime, location): 0.0
                for kind in ("corrected", "uncorrected")
                for lifetime in ("volatile", "aggregate")
                for location in locations
            },
            ("uncorrected", "volatile", "device_memory"): 21.0,
            ("uncorrected", "volatile", "dram"): 22.0,
            ("uncorrected", "aggregate", "device_memory"): 30.0,
            ("uncorrected", "aggregate", "dram"): 31.0,
        },
        retired_pages={("single_bit",): 0.0, ("double_bit",): 0.0},
        retired_pages_pending=False,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        persistence_mode=True,
        accounting_mode=True,
        ecc_mode=True,
        mig_mode=False,
        compute_mode={
            ("default",): 1.0,
            ("exclusive_thread",): 0.0,
            ("prohibited",): 0.0,
            ("exclusive_process",): 0.0,
        },
    )


@pytest.mark.parametrize("capture", QUERY_CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_healthy_capture_has_no_errors(capture: Path) -> None:
    for row in parse_query_gpu(capture.read_text()).rows:
        if is_lost(row):
            assert capture.parent.name == "h100-lost"
            assert row["index"] == "2"
            continue
        reading, errors = read(row)
        assert errors == {}
        assert reading.power_watts is not None
        assert reading.recovery_action is None, "neither tool offers it; 'None' is also a state of its own"


def test_the_two_tools_read_the_same_from_the_same_gpu() -> None:
    assert read(captured("b200", "535")) == read(captured("b200", "550"))


NEWER = {
    "uuid": "GPU-1",
    "gpu_recovery_action": "Reset",
    "fan.speed": "38 %",
    "clocks_event_reasons_counters.sw_power_cap": "15820333506 us",
    "clocks_event_reasons_counters.sync_boost": "0 us",
    "clocks.applications.graphics": "[Requested functionality has been deprecated]",
    "clocks.applications.memory": "[Requested functionality has been deprecated]",
    "power.draw": "[N/A]",
    "power.draw.average": "[N/A]",
    "power.draw.instant": "98.14 W",
    "pcie.link.gen.gpucurrent": "[N/A]",
    "pcie.link.gen.current": "3",
    "compute_mode": "Exclusive_Process",
    "temperature.gpu.tlimit": "-2",
}


def test_columns_of_newer_drivers_are_read() -> None:
    reading, errors = read(NEWER)
    assert errors == {}
    assert reading.recovery_action is not None
    assert [action for (action,), value in reading.recovery_action.items() if value] == ["gpu_reset"]
    assert reading.throttle_seconds == {("sw_power_cap",): 15820.333506, ("sync_boost",): 0.0}
    assert reading.fan_speed_ratio == {("0",): 0.38}
    assert reading.clock_application_hertz is None
    assert reading.power_watts == 98.14
    assert reading.pcie_generation == 3
    assert reading.compute_mode is not None
    assert reading.compute_mode["exclusive_process",] == 1
    assert reading.temperature_margin_celsius == -2


@pytest.mark.parametrize(
    ("word", "action"),
    [
        ("None", "none"),
        ("Reset", "gpu_reset"),
        ("GPU Reset", "gpu_reset"),
        ("Reboot", "node_reboot"),
        ("Node Reboot", "node_reboot"),
        ("Drain P2P", "drain_p2p"),
        ("Drain and Reset", "drain_and_reset"),
    ],
)
def test_every_recovery_action_is_recognised(word: str, action: str) -> None:
    reading, _ = read({"gpu_recovery_action": word})
    assert reading.recovery_action is not None
    assert [name for (name,), value in reading.recovery_action.items() if value] == [action]


def test_an_unknown_state_is_counted_and_not_guessed() -> None:
    reading, errors = read({"gpu_recovery_action": "Pray", "compute_mode": "[Unknown Error]"})
    assert reading == Reading(gpu=GPU)
    assert errors == {("recovery_action", "unknown_state"): 1, ("compute_mode", "unknown_error"): 1}


def test_errors_are_counted_for_the_field_without_a_value() -> None:
    reading, errors = read(
        {
            "power.draw": "[Unknown Error]",
            "power.draw.instant": "12.00 W",
            "temperature.gpu": "ERR!",
            "clocks.current.sm": "fast",
            "clocks.current.memory": "405 MHz",
            "ecc.errors.corrected.volatile.dram": "[Insufficient Permissions]",
        }
    )
    assert reading == Reading(gpu=GPU, power_watts=12.0, clock_hertz={("memory",): 405e6})
    assert errors == {
        ("temperature_celsius", "unknown_error"): 1,
        ("clock_hertz", "malformed"): 1,
        ("ecc_location_errors", "insufficient_permissions"): 1,
    }


def test_throttle_reasons_without_a_column_come_from_the_mask() -> None:
    reading, _ = read(
        {
            "clocks_event_reasons.supported": "0x0000000000000104",
            "clocks_event_reasons.active": "0x0000000000000100",
            "clocks_event_reasons.gpu_idle": "Active",
        }
    )
    assert reading.throttle_active == {("gpu_idle",): 1, ("sw_power_cap",): 0, ("display_clock_setting",): 1}


def test_a_gpu_that_is_reported_as_lost_is_lost() -> None:
    assert is_lost(captured("h100-lost", index=2))
    assert not is_lost(captured("h100-lost", index=1))
    assert is_lost({"uuid": "GPU-1", "power.draw": "[GPU is lost]", "pstate": "P0"})


@pytest.mark.parametrize("word", ["[Unknown Error]", "ERR!", "[GPU requires reset]"])
def test_a_gpu_without_an_essential_value_is_lost(word: str) -> None:
    row = {"uuid": "GPU-1", "power.draw": word, "temperature.gpu": word, "pstate": word, "memory.used": word}
    assert is_lost({**row, "persistence_mode": "Enabled", "fan.speed": "[N/A]"})
    assert not is_lost({**row, "temperature.gpu": "40"})


def test_a_gpu_that_supports_nothing_is_not_lost() -> None:
    assert not is_lost({"uuid": "GPU-1", "power.draw": "[N/A]", "temperature.gpu": "[N/A]"})


@pytest.mark.parametrize(
    "row", [{"index": "0"}, {"uuid": "[Unknown Error]", "index": "0"}, {"uuid": "GPU-1"}]
)
def test_a_row_without_identity_is_no_gpu(row: TableRow) -> None:
    assert build_gpu(row, None) is None


@pytest.mark.parametrize("tool", ["535", "550"])
def test_columns_are_requested_by_the_names_of_the_driver(tool: str) -> None:
    offered = parse_help_columns((CAPTURES / f"tool-{tool}" / "help-query-gpu.txt").read_text())
    chosen = choose_columns(offered)
    assert set(chosen) <= {name for names in offered for name in names}
    missing = {column for column in WANTED if column not in chosen}
    assert missing == {
        "gpu_recovery_action",
        "clocks_event_reasons.display_clock_setting",
        *(f"clocks_event_reasons_counters.{reason}" for reason in THROTTLE_REASONS),
    }


def test_a_driver_with_old_column_names_only() -> None:
    assert choose_columns([("uuid",), ("clocks_throttle_reasons.gpu_idle",), ("new.column",)]) == (
        "uuid",
        "clocks_throttle_reasons.gpu_idle",
    )
    both = [("clocks_throttle_reasons.gpu_idle",), ("clocks_event_reasons.gpu_idle",)]
    assert len(choose_columns(both)) == 1


def test_every_column_is_asked_for_once_and_by_its_first_name() -> None:
    offered = [("timestamp",), ("new.column", "column.new"), ("uuid", "gpu_uuid")]
    assert choose_columns(offered, every=True) == ("uuid", "timestamp", "new.column")
    assert choose_columns(offered) == ("uuid",)


CELLS = (
    st.sampled_from(["[N/A]", "[Unknown Error]", "GPU is lost", "12", "12 W", "0x1F", "P0", "Yes"])
    | st.text()
)


@given(st.dictionaries(st.sampled_from(WANTED), CELLS))
def test_any_row_is_mapped_without_an_exception(row: dict[str, str]) -> None:
    is_lost(row)
    build_gpu(row, None)
    _, errors = read(row)
    names = {field.name for field in fields(Reading)}
    assert all(field in names for field, _ in errors)
