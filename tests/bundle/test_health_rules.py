"""Health rules, as far as promtool cannot check them: the lists of XID codes and the names they use."""

import re

import pytest

from alerts.filling import with_defaults
from alerts.groups import health
from alerts.settings import FIXED, SETTINGS
from gputally.config import READERS
from gputally.model import THROTTLE_REASONS

_APPLICATION_XIDS = {13, 31, 43, 45}
_DCGM_FAILS = {48, 64, 74, 79, 95, 119, 120, 140}


def _codes(setting: str) -> tuple[int, ...]:
    (value,) = (one.value for one in SETTINGS if one.name == setting)
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("setting", ["xid_critical", "xid_warning"])
def test_application_errors_raise_no_alert(setting: str) -> None:
    assert _APPLICATION_XIDS.isdisjoint(_codes(setting))


@pytest.mark.parametrize("setting", ["xid_critical", "xid_warning"])
def test_a_list_of_xid_codes_is_sorted_and_unique(setting: str) -> None:
    assert list(_codes(setting)) == sorted(set(_codes(setting)))


def test_an_xid_is_critical_or_a_warning_and_never_both() -> None:
    assert set(_codes("xid_critical")).isdisjoint(_codes("xid_warning"))


def test_xids_for_which_dcgm_fails_a_gpu_are_critical() -> None:
    assert set(_codes("xid_critical")) >= _DCGM_FAILS


def test_alerts_use_only_the_lists_of_xids() -> None:
    lists = {"|".join(map(str, _codes(name))) for name in ("xid_critical", "xid_warning")}
    used = {
        codes
        for alert in with_defaults(health.GROUP).alerts
        for codes in re.findall(r'xid=~?"([^"]*)"', alert.expr)
    }
    assert used == lists


def test_alerts_about_throttling_use_existing_reasons() -> None:
    used = {reason for alert in health.GROUP.alerts for reason in re.findall(r'reason="([^"]*)"', alert.expr)}
    assert used
    assert used <= set(THROTTLE_REASONS)


def test_every_reader_is_a_device_source() -> None:
    assert set(FIXED["device_sources"].split("|")) == set(READERS) - {"auto"}
