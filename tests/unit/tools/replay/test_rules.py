"""Rule files: what must be recorded before what, and which alerts there are."""

from pathlib import Path

import pytest

from tools.replay.rule_files import (
    AlertRule,
    RuleGroup,
    list_alerts,
    parse_duration,
    read_groups,
    split_by_level,
)


def group(name: str, **rules: str) -> RuleGroup:
    return {"name": name, "rules": [{"record": record, "expr": expr} for record, expr in rules.items()]}


def names(levels: list[list[RuleGroup]]) -> list[list[tuple[str, str]]]:
    return [[(g["name"], rule["record"]) for g in groups for rule in g["rules"]] for groups in levels]


def test_a_rule_follows_the_rules_that_it_reads() -> None:
    groups = [
        group("late", top="sum(middle) + base", middle="rate(base[5m]) * other_base"),
        group("early", base="gputally_gpu_power_watts", aside="gputally_gpu_up"),
    ]
    assert names(split_by_level(groups)) == [
        [("early", "base"), ("early", "aside")],
        [("late", "middle")],
        [("late", "top")],
    ]


def test_a_name_recorded_by_two_rules_waits_for_both() -> None:
    groups = [
        {"name": "a", "rules": [{"record": "x", "expr": "up"}, {"record": "x", "expr": "y"}]},
        group("b", y="up", z="x"),
    ]
    assert names(split_by_level(groups)) == [[("b", "y")], [("a", "x"), ("a", "x")], [("b", "z")]]


def test_a_rule_may_read_others_by_a_regular_expression() -> None:
    groups = [group("a", total='sum({__name__=~"(pod|host)_cost"})', pod_cost="up", host_cost="up")]
    assert names(split_by_level(groups)) == [[("a", "pod_cost"), ("a", "host_cost")], [("a", "total")]]


def test_a_rule_may_read_what_it_records_itself() -> None:
    assert names(split_by_level([group("a", x="x offset 1m + 1")])) == [[("a", "x")]]


def test_rules_in_a_cycle_are_named() -> None:
    with pytest.raises(ValueError, match="read each other: x, y"):
        split_by_level([group("a", x="y", y="x", z="up")])


def test_alerts_are_not_recorded() -> None:
    assert split_by_level([{"name": "a", "rules": [{"alert": "Down", "expr": "up == 0"}]}]) == []


@pytest.mark.parametrize("indent", ["", "spec:\n"])
def test_alerts_are_read_from_rule_files_and_from_prometheus_rules(indent: str, tmp_path: Path) -> None:
    rule = "{alert: Down, expr: up == 0, for: 5m, keep_firing_for: 1h30m, labels: {severity: 1}}"
    content = f"groups: [{{name: a, rules: [{{record: x, expr: up}}, {rule}, {{alert: Now, expr: up}}]}}]"
    (tmp_path / "rules.yml").write_text(f"{indent}{'  ' if indent else ''}{content}")
    assert list(list_alerts(read_groups(tmp_path / "rules.yml"))) == [
        AlertRule("Down", "up == 0", 300, 5400, {"severity": "1"}),
        AlertRule("Now", "up"),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (0, 0),
        ("0s", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1w1d", 691200),
        ("1y", 31536000),
    ],
)
def test_durations_are_those_of_prometheus(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1.5h", "5 m", "5mm", "-5m", 5])
def test_an_invalid_duration_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="takes a duration"):
        parse_duration(text)
