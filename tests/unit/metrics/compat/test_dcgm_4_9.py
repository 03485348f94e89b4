"""dcgm-exporter's names since 4.9: which are new, which unit changed, and the same samples under both."""

import pytest
from hypothesis import given

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import dcgm
from gputally.metrics.compat.dcgm_4_9 import ROWS, families
from gputally.metrics.compat.dcgm_fields import FIELDS
from gputally.model import Snapshot
from tests.support.snapshots import check_sound, scene, simulated, snapshots, told
from tests.unit.metrics.compat.dcgm_lists import DEFAULT, listed

# What dcgm-exporter 4.9.0 renames of its default list. Names: dcgm_fields.h of DCGM 4.6.0, the test
# base_unit_fields_test.go of go-dcgm b7fa315, and the catalogue of fields of DCGM 4.7.0. Not here:
# NVLINK_BANDWIDTH_TOTAL, which is a whole number of MB/s.
RENAMED = {
    "DEV_SM_CLOCK": ("DEV_SM_CLOCK_HERTZ", 1_000_000),
    "DEV_MEM_CLOCK": ("DEV_MEMORY_CLOCK_HERTZ", 1_000_000),
    "DEV_TOTAL_ENERGY_CONSUMPTION": ("DEV_GPU_ENERGY_JOULES_TOTAL", 1 / 1000),
    "DEV_GPU_UTIL": ("DEV_GPU_UTIL_RATIO", 1 / 100),
    "DEV_MEM_COPY_UTIL": ("DEV_MEMORY_UTIL_RATIO", 1 / 100),
    "DEV_ENC_UTIL": ("DEV_ENC_UTIL_RATIO", 1 / 100),
    "DEV_DEC_UTIL": ("DEV_DEC_UTIL_RATIO", 1 / 100),
    "DEV_FB_FREE": ("DEV_FB_FREE_BYTES", 1 << 20),
    "DEV_FB_USED": ("DEV_FB_USED_BYTES", 1 << 20),
    "DEV_FB_RESERVED": ("DEV_FB_RESERVED_BYTES", 1 << 20),
    "DEV_GPU_TEMP": ("DEV_GPU_TEMP_CELSIUS", 1),
    "DEV_MEMORY_TEMP": ("DEV_MEMORY_TEMP_CELSIUS", 1),
    "DEV_POWER_USAGE": ("DEV_BOARD_POWER_WATTS", 1),
    "DEV_PCIE_REPLAY_COUNTER": ("DEV_PCIE_REPLAY_TOTAL", 1),
    "DEV_XID_ERRORS": ("DEV_XID_ERROR", 1),
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": ("DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1),
    "DEV_CORRECTABLE_REMAPPED_ROWS": ("DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1),
    "DEV_ROW_REMAP_FAILURE": ("DEV_ROW_REMAP_FAILED", 1),
    "PROF_GR_ENGINE_ACTIVE": ("PROF_GR_ENGINE_UTIL_RATIO", 1),
    "PROF_PIPE_TENSOR_ACTIVE": ("PROF_TENSOR_UTIL_RATIO", 1),
    "PROF_DRAM_ACTIVE": ("PROF_DRAM_UTIL_RATIO", 1),
}
# The same of what is not in the default list.
OPTIONAL = {
    "DEV_FB_TOTAL": ("DEV_FB_CAPACITY_BYTES", 1 << 20),
    "DEV_FB_USED_PERCENT": ("DEV_FB_USED_RATIO", 1),
    "DEV_VIDEO_CLOCK": ("DEV_VIDEO_CLOCK_HERTZ", 1_000_000),
    "DEV_POWER_VIOLATION": ("DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", 1e-9),
    "DEV_SYNC_BOOST_VIOLATION": ("DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", 1e-9),
    "DEV_ECC_DBE_VOL_TOTAL": ("DEV_ECC_DBE_VOL_TOTAL", 1),
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", 1),
    "DEV_NVLINK_COUNT_TX_BYTES": ("DEV_NVLINK_TX_BYTES_TOTAL", 1),
    "DEV_POWER_MGMT_LIMIT": ("DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", 1),
    "DEV_ENFORCED_POWER_LIMIT": ("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", 1),
    "DEV_SLOWDOWN_TEMP": ("DEV_GPU_TEMP_SLOWDOWN_CELSIUS", 1),
    "DEV_PSTATE": ("DEV_GPU_PSTATE", 1),
    "PROF_SM_ACTIVE": ("PROF_SM_UTIL_RATIO", 1),
    "PROF_SM_OCCUPANCY": ("PROF_SM_OCCUPANCY_RATIO", 1),
    "PROF_PIPE_FP64_ACTIVE": ("PROF_FP64_UTIL_RATIO", 1),
}
UNSEEN = {  # of cards that the simulator does not play as such
    "DEV_RETIRED_SBE": "DEV_PAGE_RETIRED_SBE_TOTAL",
    "DEV_RETIRED_DBE": "DEV_PAGE_RETIRED_DBE_TOTAL",
    "DEV_RETIRED_PENDING": "DEV_PAGE_RETIRED_PENDING",
    "DEV_FAN_SPEED": "DEV_FAN_SPEED_RATIO",
}
UNCHANGED = ("DEV_CLOCKS_EVENT_REASONS", "DEV_ROW_REMAP_PENDING", "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES")
LABELS = (
    "gpu UUID pci_bus_id device modelName GPU_I_PROFILE GPU_I_ID hostname DCGM_FI_SYSTEM_DRIVER_VERSION "
    "container namespace pod"
)


def test_the_number_of_changed_fields_is_that_of_the_release_notes() -> None:
    default = [field for field in FIELDS if field.old in listed(DEFAULT)]
    label_of_the_driver = 1
    assert sum(field.old != field.new for field in default) + label_of_the_driver == 23
    assert sum(bool(field.unit.to_old or field.unit.to_new) for field in default) == 11


def test_the_new_names_exist_and_no_deprecated_one() -> None:
    names = {row.name.removeprefix("DCGM_FI_") for row in ROWS}
    assert {new for new, _ in (RENAMED | OPTIONAL).values()} | {*UNSEEN.values(), *UNCHANGED} <= names
    changed = {old for old, (new, _) in (RENAMED | OPTIONAL).items() if old != new} | {*UNSEEN}
    assert not names & (changed | {"DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_CLOCK_THROTTLE_REASONS"})


def test_types_are_those_of_the_older_names() -> None:
    kinds = {row.name: row.kind for row in dcgm.ROWS}
    renamed = {row.name: row.kind for row in ROWS}
    for old, (new, _) in (RENAMED | OPTIONAL).items():
        assert renamed[f"DCGM_FI_{new}"] is kinds[f"DCGM_FI_{old}"]


def test_labels_are_in_the_order_of_the_exporter() -> None:
    found = {" ".join(family.metric.labels) for family in families(scene(simulated()))}
    assert found == {LABELS, f"{LABELS} err_code err_msg"}


def test_nvlink_throughput_is_a_gauge_in_bytes_per_second() -> None:
    """Field 1648. dcgm-exporter declared the rate a counter up to 4.8.2, and a gauge since."""
    name = "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND"
    (row,) = (row for row in ROWS if row.name == name)
    assert row.kind is Kind.GAUGE
    rates = told(families(scene(simulated())))[name]
    assert {int(labels[0]): rate for labels, rate in rates.items()} == {
        reading.gpu.index: reading.nvlink_bytes_per_second for reading in simulated().readings if reading.up
    }
    assert max(rates.values()) > 0


@pytest.mark.parametrize("old", RENAMED | OPTIONAL)
def test_samples_are_those_of_the_older_name_in_base_units(old: str) -> None:
    new, factor = (RENAMED | OPTIONAL)[old]
    before = told(dcgm.families(scene(simulated())))[f"DCGM_FI_{old}"]
    after = told(families(scene(simulated())))[f"DCGM_FI_{new}"]
    assert after == pytest.approx({labels: value * factor for labels, value in before.items()})


@given(snapshots())
def test_no_series_occurs_twice(taken: Snapshot) -> None:
    check_sound(families(scene(taken)))
