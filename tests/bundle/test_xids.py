"""The table of XID codes agrees with the lists that alerts use, and with the runbooks of these alerts."""

import re

import pytest

from alerts import runbooks
from alerts.settings import SETTINGS
from alerts.xids import XIDS, Cause

_ERRORS_OF_PROGRAMS = (13, 31, 43)


def _codes(setting: str) -> tuple[int, ...]:
    (value,) = (one.value for one in SETTINGS if one.name == setting)
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("setting", ["xid_critical", "xid_warning"])
def test_every_code_that_calls_somebody_has_a_meaning_and_an_action(setting: str) -> None:
    assert set(_codes(setting)) <= XIDS.keys()
    assert all(XIDS[code].meaning and XIDS[code].action for code in _codes(setting))


def test_nobody_is_called_out_of_bed_for_a_fault_of_a_program_or_a_mere_note() -> None:
    causes = {XIDS[code].cause for code in _codes("xid_critical")}
    assert causes.isdisjoint({Cause.PROGRAM, Cause.NOTE})


@pytest.mark.parametrize("code", _ERRORS_OF_PROGRAMS)
def test_errors_of_programs_send_one_to_the_program(code: int) -> None:
    assert XIDS[code].cause is Cause.PROGRAM


def test_what_is_critical_asks_for_a_reset_or_a_restart() -> None:
    assert [
        code
        for code in _codes("xid_critical")
        if not XIDS[code].action.startswith(("reset", "restart the machine"))
    ] == []


def test_each_code_is_there_once() -> None:
    assert all(code == xid.code for code, xid in XIDS.items())
    assert list(XIDS) == sorted(XIDS)


@pytest.mark.parametrize(
    ("alert", "setting"), [("GPUTallyXidCritical", "xid_critical"), ("GPUTallyXidWarning", "xid_warning")]
)
def test_the_runbook_has_a_line_for_every_code_of_its_list(alert: str, setting: str) -> None:
    page = (runbooks.FOLDER / f"{alert}.md").read_text()
    named: set[int] = set()
    for cell in re.findall(r"^\| ([0-9][0-9, to]*) \|", page, re.MULTILINE):
        for part in cell.split(","):
            first, _, last = part.strip().partition(" to ")
            named |= set(range(int(first), int(last or first) + 1))
    assert set(_codes(setting)) == named
