"""Exporter: failing sources, unsaved ledgers and restarts."""

from pathlib import Path

from dashboards.exporter import DASHBOARD
from tests.bundle.panel_cases import HOURS, always, assert_results, query


def _node(metric: str, node: str, **more: str) -> str:
    extra = "".join(f', {name}="{value}"' for name, value in more.items())
    return f'{metric}{{cluster="c", job="gputally", instance="{node}:9400", node="{node}"{extra}}}'


def _source(node: str, source: str, up: int) -> dict[str, str]:
    return {_node("gputally_source_up", node, source=source): always(up)}


def test_a_failing_source_is_counted_and_shown_with_its_duration(tmp_path: Path) -> None:
    succeeded = HOURS * 3600 - 300
    last_success = "gputally_source_last_success_timestamp_seconds"
    series = {
        **_source("a", "nvml", 1),
        **_source("b", "nvml", 0),
        **_source("b", "cgroup", 1),
        **{_node(last_success, node, source="nvml"): always(succeeded) for node in "ab"},
    }
    assert_results(
        tmp_path,
        series,
        {
            query(DASHBOARD, "Sources down"): {"{}": 1},
            query(DASHBOARD, "Sources", "B"): {
                '{source="nvml"}': 1,
                '{source="cgroup"}': 0,
            },
            query(DASHBOARD, "Failing sources"): {'{cluster="c", node="b", source="nvml"}': 300},
        },
    )


def test_unsaved_ledgers_and_missing_state_files_are_counted_apart(tmp_path: Path) -> None:
    series = {
        **{_node("gputally_exporter_info", node, version="1"): always(1) for node in "abc"},
        **_source("a", "state_file", 1),
        **_source("b", "state_file", 0),
    }
    assert_results(
        tmp_path,
        series,
        {query(DASHBOARD, "Unsaved ledgers"): {"{}": 1}, query(DASHBOARD, "No state file"): {"{}": 1}},
    )


def test_each_restart_of_an_exporter_counts(tmp_path: Path) -> None:
    series = {
        _node("process_start_time_seconds", "a"): always(100),
        _node("process_start_time_seconds", "b"): "100x90 200x15 300x15",
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Restarts"): {"{}": 2}})
