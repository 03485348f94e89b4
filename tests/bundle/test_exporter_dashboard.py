"""The dashboard of the exporters: who does not answer, and whose books are not kept."""

from pathlib import Path

from dashboards.exporter import DASHBOARD
from tests.bundle.panel_cases import HOURS, always, assert_answers, query


def _node(metric: str, node: str, **more: str) -> str:
    extra = "".join(f', {name}="{value}"' for name, value in more.items())
    return f'{metric}{{cluster="c", job="gputally", instance="{node}:9400", node="{node}"{extra}}}'


def _source(node: str, source: str, up: int) -> dict[str, str]:
    return {_node("gputally_source_up", node, source=source): always(up)}


def test_a_source_that_fails_is_counted_and_named_with_how_long_it_was_silent(tmp_path: Path) -> None:
    answered = HOURS * 3600 - 300
    last_success = "gputally_source_last_success_timestamp_seconds"
    said = {
        **_source("a", "nvml", 1),
        **_source("b", "nvml", 0),
        **_source("b", "cgroup", 1),
        **{_node(last_success, node, source="nvml"): always(answered) for node in "ab"},
    }
    assert_answers(
        tmp_path,
        said,
        {
            query(DASHBOARD, "Sources down"): {"{}": 1},
            query(DASHBOARD, "Sources", "B"): {
                '{source="nvml"}': 1,
                '{source="cgroup"}': 0,
            },
            query(DASHBOARD, "Sources that fail now"): {'{cluster="c", node="b", source="nvml"}': 300},
        },
    )


def test_books_that_cannot_be_saved_are_another_thing_than_none(tmp_path: Path) -> None:
    said = {
        **{_node("gputally_exporter_info", node, version="1"): always(1) for node in "abc"},
        **_source("a", "state_file", 1),
        **_source("b", "state_file", 0),
    }
    assert_answers(
        tmp_path,
        said,
        {query(DASHBOARD, "Unsaved books"): {"{}": 1}, query(DASHBOARD, "Without a state file"): {"{}": 1}},
    )


def test_each_restart_of_an_exporter_counts(tmp_path: Path) -> None:
    said = {
        _node("process_start_time_seconds", "a"): always(100),
        _node("process_start_time_seconds", "b"): "100x90 200x15 300x15",
    }
    assert_answers(tmp_path, said, {query(DASHBOARD, "Restarts"): {"{}": 2}})
