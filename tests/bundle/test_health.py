"""What promtool cannot say about the rules on health: the lists of XID codes, and the names they rely on."""

import re

import pytest

from alerts.filling import with_defaults
from alerts.groups import health
from alerts.settings import FIXED, SETTINGS
from gputally.config import READERS
from gputally.model import THROTTLE_REASONS

_ERRORS_OF_PROGRAMS = {13, 31, 43, 45}
_DCGM_FAILS = {48, 64, 74, 79, 95, 119, 120, 140}


def _codes(setting: str) -> tuple[int, ...]:
    (value,) = (one.value for one in SETTINGS if one.name == setting)
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("setting", ["xid_critical", "xid_warning"])
def test_nobody_is_called_for_errors_of_programs(setting: str) -> None:
    assert _ERRORS_OF_PROGRAMS.isdisjoint(_codes(setting))


@pytest.mark.parametrize("setting", ["xid_critical", "xid_warning"])
def test_a_list_of_xid_codes_is_sorted_and_has_each_once(setting: str) -> None:
    assert list(_codes(setting)) == sorted(set(_codes(setting)))


def test_an_xid_is_critical_or_a_warning_and_never_both() -> None:
    assert set(_codes("xid_critical")).isdisjoint(_codes("xid_warning"))


def test_what_dcgm_fails_a_gpu_for_is_critical() -> None:
    assert set(_codes("xid_critical")) >= _DCGM_FAILS


def test_no_alert_names_an_xid_beside_the_lists() -> None:
    lists = {"|".join(map(str, _codes(name))) for name in ("xid_critical", "xid_warning")}
    used = {
        codes
        for alert in with_defaults(health.GROUP).alerts
        for codes in re.findall(r'xid=~?"([^"]*)"', alert.expr)
    }
    assert used == lists


def test_alerts_about_throttling_name_reasons_that_there_are() -> None:
    used = {reason for alert in health.GROUP.alerts for reason in re.findall(r'reason="([^"]*)"', alert.expr)}
    assert used
    assert used <= set(THROTTLE_REASONS)


def test_every_reader_counts_as_a_source_that_reads_gpus() -> None:
    assert set(FIXED["device_sources"].split("|")) == set(READERS) - {"auto"}
