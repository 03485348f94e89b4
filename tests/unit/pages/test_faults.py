"""What the live page reports as a fault, compared with the alerts."""

from typing import Any

import pytest

from alerts import xids
from alerts.model import Severity
from alerts.settings import SETTINGS
from gputally.model import Gpu, Reading, SourceState
from gputally.pages.faults import (
    CRITICAL,
    CRITICAL_XIDS,
    NEAR_LIMIT_CELSIUS,
    WARNING,
    WARNING_XIDS,
    XID_WINDOW_SECONDS,
    faults_of,
)

NOW = 1_800_000_000.0
UP = SourceState(name="nvml", up=True)


def reading(vendor: str = "nvidia", **values: Any) -> Reading:
    return Reading(gpu=Gpu("GPU-0", 0, vendor, "H100"), **values)


def names(found: Reading, *sources: SourceState) -> list[tuple[str, str]]:
    return [(fault.severity, fault.name) for fault in faults_of(found, sources or (UP,), NOW)]


def xid(code: int, ago: float = 60) -> dict[str, Any]:
    return {"xid_errors": {(str(code),): 1}, "xid_last_timestamp_seconds": {(str(code),): NOW - ago}}


def test_xids_have_the_severity_meaning_and_time_window_of_the_alerts() -> None:
    for severity, ours in ((Severity.CRITICAL, CRITICAL_XIDS), (Severity.WARNING, WARNING_XIDS)):
        assert ours == {code: xids.XIDS[code].meaning for code in xids.codes(severity)}
    defaults = {setting.name: setting.value for setting in SETTINGS}
    assert defaults["xid_window_seconds"] == XID_WINDOW_SECONDS
    assert defaults["temperature_margin_celsius"] == NEAR_LIMIT_CELSIUS


def test_a_healthy_gpu_has_none() -> None:
    healthy = reading(
        gpu_utilization_ratio=1.0,
        temperature_celsius=60.0,
        temperature_slowdown_celsius=87.0,
        ecc_errors={("corrected", "volatile"): 3, ("uncorrected", "volatile"): 0},
        remapped_rows_pending=False,
        throttle_active={("sw_power_cap",): 1},
        recovery_action={("none",): 1, ("gpu_reset",): 0},
        fabric_state=3,
        fabric_status=0,
        fabric_problem={("degraded_bandwidth",): 0},
    )
    assert names(healthy) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (xid(79), (CRITICAL, "xid")),
        (xid(94), (WARNING, "xid")),
        ({"ecc_errors": {("uncorrected", "volatile"): 2}}, (CRITICAL, "ecc_uncorrected")),
        ({"ras_errors": {("umc", "uncorrected"): 1}}, (CRITICAL, "ras_uncorrected")),
        ({"remapped_rows_failure": True}, (CRITICAL, "row_remap_failure")),
        ({"remapped_rows_pending": True}, (WARNING, "row_remap_pending")),
        ({"retired_pages_pending": True}, (WARNING, "retired_pages_pending")),
        ({"recovery_action": {("gpu_reset",): 1}}, (CRITICAL, "recovery")),
        ({"throttle_active": {("hw_thermal_slowdown",): 1}}, (WARNING, "thermal_slowdown")),
        ({"throttle_active": {("hw_power_brake_slowdown",): 1}}, (WARNING, "power_brake")),
        ({"temperature_margin_celsius": 2.0}, (WARNING, "hot")),
        ({"temperature_celsius": 84.0, "temperature_slowdown_celsius": 87.0}, (WARNING, "hot")),
        ({"fabric_state": 1}, (CRITICAL, "fabric")),
        ({"fabric_state": 3, "fabric_status": 5}, (CRITICAL, "fabric")),
        ({"fabric_problem": {("route_unhealthy",): 1}}, (WARNING, "fabric_degraded")),
        ({"late": True}, (WARNING, "late")),
    ],
)
def test_a_fault(values: dict[str, Any], expected: tuple[str, str]) -> None:
    assert names(reading(**values)) == [expected]


def test_errors_of_programs_and_old_ones_are_no_faults() -> None:
    assert names(reading(**xid(13))) == []
    assert names(reading(**xid(79, ago=XID_WINDOW_SECONDS + 1))) == []


def test_the_worst_comes_first() -> None:
    both = reading(remapped_rows_pending=True, remapped_rows_failure=True)
    assert names(both) == [(CRITICAL, "row_remap_failure"), (WARNING, "row_remap_pending")]


def test_a_lost_gpu_names_the_xid_that_it_was_lost_with() -> None:
    (fault,) = faults_of(reading(**xid(79)).lost(), (UP,), NOW)
    assert fault.name == "lost"
    assert "XID 79" in fault.reason
    assert "nvidia-smi" in fault.fix


def test_gpus_that_cannot_be_read_have_the_reason_and_fix_of_their_source() -> None:
    down = SourceState(name="nvml", up=False, reason="driver not loaded", fix="modprobe nvidia")
    other = SourceState(name="pod_logs", up=False, reason="no such directory")
    (fault,) = faults_of(reading().lost(), (other, down), NOW)
    assert (fault.severity, "driver not loaded" in fault.reason, fault.fix) == (
        CRITICAL,
        True,
        "modprobe nvidia",
    )


def test_a_lost_gpu_of_an_unknown_vendor_has_a_reason() -> None:
    assert names(reading(vendor="acme").lost()) == [(CRITICAL, "lost")]
