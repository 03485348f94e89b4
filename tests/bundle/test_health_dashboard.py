"""Health: which GPUs count as faulty, and the texts for XID codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from alerts.groups import GROUPS
from alerts.settings import SETTINGS
from alerts.xids import XIDS
from dashboards import palette
from dashboards.build import text_of
from dashboards.health import DASHBOARD
from tests.bundle.panel_cases import HOURS, always, assert_results, query

_NOW = HOURS * 3600
_MINUTES = 60


def _gpu(metric: str, gpu: int = 0, **more: str) -> str:
    labels = {"cluster": "c", "node": "n", "gpu": str(gpu), "uuid": f"GPU-{gpu}", **more}
    written = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"gputally_gpu_{metric}{{{written}}}"


def _hang(gpu: int) -> str:
    return _gpu("hang", gpu).replace("gputally_gpu_hang", "gpu:gputally_suspected_hang:ratio")


def _mappings(column: str, title: str = "XID errors") -> list[dict[str, Any]]:
    panels = json.loads(text_of(DASHBOARD))["panels"]
    (panel,) = (panel for panel in panels if panel["title"] == title)
    found: list[list[dict[str, Any]]] = [
        prop["value"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == column
        for prop in override["properties"]
        if prop["id"] == "mappings"
    ]
    (mappings,) = found
    return mappings


def _codes(name: str) -> set[str]:
    (value,) = (setting.value for setting in SETTINGS if setting.name == name)
    assert isinstance(value, tuple)
    return {str(code) for code in value}


@pytest.mark.parametrize("column", ["meaning", "cause", "action"])
def test_the_table_has_texts_for_every_known_code_and_for_all_others(column: str) -> None:
    known, others = _mappings(column)
    assert {code: words["text"] for code, words in known["options"].items()} == {
        str(code): getattr(xid, column) for code, xid in XIDS.items()
    }
    assert others["type"] == "regex"


def test_the_colour_of_a_code_is_that_of_its_severity() -> None:
    known = _mappings("meaning")[0]["options"]
    colored = {
        color: {code for code in known if known[code]["color"] == color}
        for color in palette.BY_SEVERITY.values()
    }
    assert colored[palette.CRITICAL] == _codes("xid_critical")
    assert colored[palette.WARNING] == _codes("xid_warning")


def test_every_alert_has_a_text() -> None:
    (names,) = _mappings("alertname", "Current problems")
    assert names["options"].keys() == {alert.name for group in GROUPS for alert in group.alerts}


def test_the_code_of_an_xid_is_in_each_column(tmp_path: Path) -> None:
    series = {_gpu("xid_last_timestamp_seconds", xid="79"): always(_NOW - 600)}
    labels = 'action="79", cause="79", cluster="c", gpu="0", meaning="79", node="n", uuid="GPU-0", xid="79"'
    assert_results(tmp_path, series, {query(DASHBOARD, "XID errors"): {f"{{{labels}}}": (_NOW - 600) * 1000}})


def test_an_xid_of_an_application_is_not_critical(tmp_path: Path) -> None:
    series = {
        _gpu("xid_last_timestamp_seconds", 0, xid="31"): always(_NOW - 600),
        _gpu("xid_last_timestamp_seconds", 1, xid="79"): always(_NOW - 600),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Critical XIDs"): {"{}": 1}})


@pytest.mark.parametrize(("minutes", "counted"), [(59, 1), (61, 0)])
def test_a_critical_xid_before_the_time_range_does_not_count(
    minutes: int, counted: int, tmp_path: Path
) -> None:
    series = {_gpu("xid_last_timestamp_seconds", xid="79"): always(_NOW - minutes * 60)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Critical XIDs"): {"{}": counted}})


@pytest.mark.parametrize(
    ("age", "letter"), [(0, "A"), (3599, "A"), (3600, "B"), (86399, "B"), (86400, "C"), (604800, "D")]
)
def test_every_age_of_an_error_is_in_one_bar(age: int, letter: str, tmp_path: Path) -> None:
    series = {_gpu("xid_last_timestamp_seconds", xid="48"): always(_NOW - age)}
    title = "GPUs by age of last XID"
    assert_results(
        tmp_path,
        series,
        {query(DASHBOARD, title, one): {"{}": float(one == letter)} for one in "ABCD"},
    )


def test_suspected_hangs_are_those_of_the_alert(tmp_path: Path) -> None:
    assert_results(tmp_path, {_hang(0): always(2)}, {query(DASHBOARD, "Suspected hangs"): {"{}": 1}})


def test_a_suspected_hang_is_shown_with_its_owner(tmp_path: Path) -> None:
    series = {
        **{_hang(gpu): always(2) for gpu in (0, 1)},
        _gpu("info", 0): always(1),
        'gputally_pod_active{cluster="c", node="n", gpu="0", uuid="GPU-0", namespace="ml", pod="p"}': always(
            1
        ),
    }
    where = 'cluster="c", gpu="{0}"{1}, node="n"{2}, uuid="GPU-{0}"'
    assert_results(
        tmp_path,
        series,
        {
            query(DASHBOARD, "Hang suspects"): {
                "{" + where.format(0, ', namespace="ml"', ', pod="p"') + "}": 2,
                "{" + where.format(1, "", "") + "}": 2,
            }
        },
    )


def test_a_gpu_with_several_reasons_for_a_reset_is_counted_once(tmp_path: Path) -> None:
    series = {
        _gpu("recovery_action", action="gpu_reset"): always(1),
        _gpu("remapped_rows_pending"): always(1),
        _gpu("remapped_rows_pending", 1): always(0),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Pending resets"): {"{}": 1}})


def test_an_amd_gpu_with_an_uncorrected_error_counts_once_whatever_the_block(tmp_path: Path) -> None:
    series = {
        _gpu("ras_errors_total", block="umc", type="uncorrected"): always(1),
        _gpu("ras_errors_total", block="gfx", type="uncorrected"): always(2),
        _gpu("ecc_errors_total", type="uncorrected", lifetime="volatile"): always(3),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Uncorrected errors"): {"{}": 1}})


@pytest.mark.parametrize("minutes", [4, 60])
def test_no_gpu_is_throttled_for_longer_than_it_is_recorded(minutes: int, tmp_path: Path) -> None:
    recorded = f"_x{HOURS * 60 + 1 - minutes} {{}}x{minutes - 1}"
    series = {
        _gpu("throttle_active", 0, reason="hw_thermal_slowdown"): recorded.format(1),
        _gpu("throttle_active", 1, reason="hw_thermal_slowdown"): recorded.format(0),
        'node:gputally_gpus:count{cluster="c", node="n"}': recorded.format(2),
    }
    labels = 'cluster="c", gpu="0", node="n", reason="hw_thermal_slowdown", uuid="GPU-0"'
    assert_results(tmp_path, series, {query(DASHBOARD, "Longest throttled"): {f"{{{labels}}}": minutes * 60}})


def test_only_links_that_were_up_before_count_as_down(tmp_path: Path) -> None:
    links = 'gpu:gputally_gpu_nvlink_up:sum{cluster="c", node="n", gpu="0", uuid="GPU-0", model="H100"}'
    series = {links: f"18x{_MINUTES} 16x{_MINUTES}", links.replace("sum", "highest"): always(18)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Links down"): {"{}": 2}})
