"""Relabeling, as far as the chart uses it, does what Prometheus's documentation says."""

from typing import Any

import pytest

from tests.bundle.relabeling import of_sample, of_target, relabeled

TARGET = {"__meta_pod": "a", "__meta_phase": "Running", "pod": "exporter", "job": "x"}


@pytest.mark.parametrize(
    ("rule", "labels"),
    [
        ({"sourceLabels": ["__meta_pod"], "targetLabel": "node"}, {"node": "a"}),
        ({"targetLabel": "cluster", "replacement": "north"}, {"cluster": "north"}),
        (
            {"sourceLabels": ["__meta_pod", "job"], "separator": "/", "targetLabel": "instance"},
            {"instance": "a/x"},
        ),
        ({"sourceLabels": ["job"], "regex": "y(.*)", "targetLabel": "job"}, {}),
        ({"sourceLabels": ["__meta_phase"], "regex": "Run.*", "action": "keep"}, {}),
        ({"sourceLabels": ["__meta_phase"], "regex": "Run", "action": "drop"}, {}),
    ],
)
def test_a_rule_changes_what_it_says(rule: dict[str, Any], labels: dict[str, str]) -> None:
    assert relabeled(TARGET, [rule]) == TARGET | labels


@pytest.mark.parametrize(("action", "regex"), [("keep", "Run"), ("drop", "Failed|Running")])
def test_a_target_can_be_dropped(action: str, regex: str) -> None:
    assert of_target(TARGET, [{"sourceLabels": ["__meta_phase"], "regex": regex, "action": action}]) is None


def test_only_labels_that_stay_reach_the_series() -> None:
    rules = [{"regex": "po", "action": "labeldrop"}, {"targetLabel": "job", "replacement": ""}]
    assert of_target(TARGET, rules) == {"pod": "exporter"}
    assert of_target(TARGET, [{"regex": "pod", "action": "labeldrop"}]) == {"job": "x"}


def test_who_wins_where_target_and_sample_have_one_label() -> None:
    sample = {"pod": "trainer", "gpu": "0"}
    assert of_sample({"pod": "me"}, sample, honor_labels=True) == {"pod": "trainer", "gpu": "0"}
    assert of_sample({"pod": "me"}, sample, honor_labels=False) == {
        "pod": "me",
        "exported_pod": "trainer",
        "gpu": "0",
    }
