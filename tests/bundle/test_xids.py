"""The table of XID codes matches the lists of the alerts."""

import pytest

from alerts.settings import SETTINGS
from alerts.xids import XIDS, Cause, Resolution

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


# The immediate actions of NVIDIA's catalogue that take the GPU out of use, and those that do not.
_RESETS = {Resolution.RESET_GPU, Resolution.RESTART_BM, Resolution.RESTART_VM}
_HARMLESS = {Resolution.IGNORE, Resolution.RESTART_APP, Resolution.RECOVERY_ACTION}


def test_severities_agree_with_the_resolutions_of_nvidia() -> None:
    assert {code for code, xid in XIDS.items() if xid.resolution in _RESETS} <= set(_codes("xid_critical"))
    assert _HARMLESS.isdisjoint(XIDS[code].resolution for code in _codes("xid_critical"))
    decided_by_the_driver = {
        code for code, xid in XIDS.items() if xid.resolution is Resolution.RECOVERY_ACTION
    }
    assert decided_by_the_driver == {144, 145, 146, 154}
    assert decided_by_the_driver.isdisjoint(_codes("xid_warning"))


@pytest.mark.parametrize("code", [149, 150, 155, 173])
def test_links_that_are_lost_for_good_are_critical(code: int) -> None:
    assert code in _codes("xid_critical")


@pytest.mark.parametrize("code", [147, 148])
def test_links_that_go_on_raise_no_alert(code: int) -> None:
    assert code not in (*_codes("xid_critical"), *_codes("xid_warning"))


def test_every_newer_code_of_the_driver_is_in_the_table() -> None:
    """ROBUST_CHANNEL_LAST_ERROR in nverror.h of driver 595 is 176."""
    assert set(range(139, 177)) <= XIDS.keys()


def test_a_critical_code_requires_a_reset_or_a_restart() -> None:
    assert [
        code for code in _codes("xid_critical") if not XIDS[code].action.startswith(("reset", "restart the "))
    ] == []


def test_each_code_is_listed_once_and_sorted() -> None:
    assert all(code == xid.code for code, xid in XIDS.items())
    assert list(XIDS) == sorted(XIDS)
