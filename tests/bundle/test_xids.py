"""The table of XID codes matches the lists of the alerts and their runbooks."""

import re

import pytest

from alerts import runbooks
from alerts.settings import SETTINGS
from alerts.xids import XIDS, Cause

_PROGRAM_ERRORS = (13, 31, 43)


def _codes(setting: str) -> tuple[int, ...]:
    (value,) = (one.value for one in SETTINGS if one.name == setting)
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("setting", ["xid_critical", "xid_warning"])
def test_every_code_with_an_alert_has_a_meaning_and_an_action(setting: str) -> None:
    assert set(_codes(setting)) <= XIDS.keys()
    assert all(XIDS[code].meaning and XIDS[code].action for code in _codes(setting))


def test_no_program_error_and_no_note_is_critical() -> None:
    causes = {XIDS[code].cause for code in _codes("xid_critical")}
    assert causes.isdisjoint({Cause.PROGRAM, Cause.NOTE})


@pytest.mark.parametrize("code", _PROGRAM_ERRORS)
def test_program_errors_have_the_cause_program(code: int) -> None:
    assert XIDS[code].cause is Cause.PROGRAM


def test_a_critical_code_requires_a_reset_or_a_restart() -> None:
    assert [
        code
        for code in _codes("xid_critical")
        if not XIDS[code].action.startswith(("reset", "restart the machine"))
    ] == []


def test_each_code_is_listed_once_and_sorted() -> None:
    assert all(code == xid.code for code, xid in XIDS.items())
    assert list(XIDS) == sorted(XIDS)


@pytest.mark.parametrize(
    ("alert", "setting"), [("GPUTallyXidCritical", "xid_critical"), ("GPUTallyXidWarning", "xid_warning")]
)
def test_the_runbook_has_a_line_for_every_code_of_its_list(alert: str, setting: str) -> None:
    page = (runbooks.DIRECTORY / f"{alert}.md").read_text()
    named: set[int] = set()
    for cell in re.findall(r"^\| ([0-9][0-9, to]*) \|", page, re.MULTILINE):
        for part in cell.split(","):
            first, _, last = part.strip().partition(" to ")
            named |= set(range(int(first), int(last or first) + 1))
    assert set(_codes(setting)) == named
