"""What is wrong with a GPU now, as the alerts of the bundle judge it, without their waiting times."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gputally.devices.vendors import vendor_of
from gputally.model import Reading, SourceState

WARNING, CRITICAL = "warning", "critical"
XID_WINDOW_SECONDS = 3600
NEAR_LIMIT_CELSIUS = 5
CRITICAL_XIDS = {
    46: "GPU stopped processing",
    48: "uncorrectable memory error",
    62: "internal micro-controller halted",
    64: "a memory row could not be replaced",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timed out",
    110: "security fault",
    119: "GPU's own processor (GSP) timed out",
    120: "GPU's own processor (GSP) failed",
    136: "an NVLink could not be trained",
    140: "ECC error that could not be repaired",
    143: "GPU could not be initialised",
    149: "NVLink 5 link went down (NETIR)",
    150: "NVLink 5 firmware halted (MSE)",
    151: "key rotation failed",
    155: "NVLink was taken down by software",
    156: "a part of the chip was retired",
    158: "fatal timeout",
    173: "link to the CPU (C2C) failed",
    175: "memory error stopped the GPU's own processor (GSP)",
}
WARNING_XIDS = {
    54: "auxiliary power is not connected",
    92: "many memory errors, all corrected",
    94: "memory error, one program ended",
    157: "a part could not be retired",
}
_RESET_LATER = "schedule no new work on it, and reset it when its jobs have ended"
_COOL = "check fans, air flow and room temperature"
_FABRIC_COMPLETED = 3


class Fault(NamedTuple):
    """One thing that is wrong, and the remedy; the fix is empty where none is known."""

    severity: str
    name: str
    reason: str
    fix: str = ""


def faults_of(reading: Reading, sources: Iterable[SourceState], now_seconds: float) -> list[Fault]:
    """The worst first."""
    if not reading.up:
        return [_lost(reading, sources, now_seconds)]
    found = [*_xids(reading, now_seconds), *_memory(reading), *_state(reading), *_heat(reading)]
    return sorted(found, key=lambda fault: fault.severity != CRITICAL)


def _lost(reading: Reading, sources: Iterable[SourceState], now_seconds: float) -> Fault:
    vendor = vendor_of(reading.gpu.vendor)
    readers = {row.name for row in vendor.readers}
    failing = [one for one in sources if not one.up and one.name in {*readers, "sampling"}]
    xids = [xid for xid in _recent_xids(reading, now_seconds) if xid[1] in CRITICAL_XIDS]
    if xids:
        at, code = max(xids)
        return Fault(CRITICAL, "lost", f"lost after {_xid_text(code, at)}", vendor.reset_fix)
    if failing:
        return Fault(CRITICAL, "lost", f"not read: {failing[0].name}: {failing[0].reason}", failing[0].fix)
    what = "does not respond" if reading.late else "the driver cannot reach it"
    return Fault(CRITICAL, "lost", f"lost: {what}", vendor.reset_fix)


def _xids(reading: Reading, now_seconds: float) -> Iterator[Fault]:
    for at, code in sorted(_recent_xids(reading, now_seconds), reverse=True):
        if code in CRITICAL_XIDS:
            fix = f"drain the node, then {vendor_of(reading.gpu.vendor).reset_fix}"
            yield Fault(CRITICAL, "xid", _xid_text(code, at), fix)
        elif code in WARNING_XIDS:
            yield Fault(WARNING, "xid", _xid_text(code, at))


def _xid_text(code: int, at_seconds: float) -> str:
    meaning = CRITICAL_XIDS.get(code) or WARNING_XIDS[code]
    return f"XID {code} at {time.strftime('%H:%M:%S UTC', time.gmtime(at_seconds))}: {meaning}"


def _recent_xids(reading: Reading, now_seconds: float) -> Iterator[tuple[float, int]]:
    for (code,), at in (reading.xid_last_timestamp_seconds or {}).items():
        if code.isdecimal() and now_seconds - at < XID_WINDOW_SECONDS:
            yield at, int(code)


def _memory(reading: Reading) -> Iterator[Fault]:
    if reading.ras_errors is not None:
        errors = sum(count for labels, count in reading.ras_errors.items() if labels[-1] == "uncorrected")
        if errors:
            yield Fault(CRITICAL, "ras_uncorrected", f"{errors:.0f} uncorrectable RAS errors", _RESET_LATER)
    elif errors := (reading.ecc_errors or {}).get(("uncorrected", "volatile"), 0):
        yield Fault(CRITICAL, "ecc_uncorrected", f"{errors:.0f} uncorrectable memory errors", _RESET_LATER)
    if reading.remapped_rows_failure:
        yield Fault(
            CRITICAL,
            "row_remap_failure",
            "no spare memory row is left",
            "drain the node, and replace the card",
        )
    if reading.remapped_rows_pending:
        yield Fault(
            WARNING, "row_remap_pending", "a faulty memory row is replaced at the next reset", _RESET_LATER
        )
    if reading.retired_pages_pending:
        yield Fault(
            WARNING,
            "retired_pages_pending",
            "faulty memory pages stay in use until the next reset",
            _RESET_LATER,
        )


def _state(reading: Reading) -> Iterator[Fault]:
    if reading.up and reading.late:
        yield Fault(WARNING, "late", "does not respond: these are its last values")
    for (action,), active in (reading.recovery_action or {}).items():
        if active and action != "none":
            yield Fault(
                CRITICAL, "recovery", f"the driver requests {action}", "drain the node, then carry it out"
            )
    if reading.fabric_state in (1, 2) or (
        reading.fabric_state == _FABRIC_COMPLETED and reading.fabric_status
    ):
        yield Fault(CRITICAL, "fabric", "not registered in its NVLink fabric", "check Fabric Manager or IMEX")
    for (problem,), active in (reading.fabric_problem or {}).items():
        if active and problem != "none":
            yield Fault(
                WARNING,
                "fabric_degraded",
                f"NVLink fabric: {problem}",
                "check switches, links and Fabric Manager",
            )


def _heat(reading: Reading) -> Iterator[Fault]:
    throttled = {reason for (reason,), active in (reading.throttle_active or {}).items() if active}
    if "hw_thermal_slowdown" in throttled:
        yield Fault(WARNING, "thermal_slowdown", "slowed down by its thermal protection", _COOL)
    if "hw_power_brake_slowdown" in throttled:
        yield Fault(WARNING, "power_brake", "slowed down by the server's power brake", "read the BMC's log")
    margin = reading.temperature_margin_celsius
    if margin is None and None not in (reading.temperature_celsius, reading.temperature_slowdown_celsius):
        margin = (reading.temperature_slowdown_celsius or 0) - (reading.temperature_celsius or 0)
    if margin is not None and margin < NEAR_LIMIT_CELSIUS and "hw_thermal_slowdown" not in throttled:
        yield Fault(WARNING, "hot", f"{margin:.0f} °C below the temperature at which it slows down", _COOL)
