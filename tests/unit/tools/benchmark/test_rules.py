"""The cost of the rules: how far back they read, what is judged, and what the page says."""

import dataclasses

import pytest

from alerts.model import RecordingRule
from tools.benchmark.reach import reach_of
from tools.benchmark.rules import EVALUATED, GroupCost, PastSeries, RulesCost, earlier_samples
from tools.benchmark.rules_report import judge_rules, rules_section
from tools.replay.clones import renamed
from tools.replay.tape import encode_sample

SCHEMA = {name: frozenset({"node"}) for name in ("gputally_a", "gputally_b", "node:gputally_c:sum")}
CHEAP = RulesCost(
    nodes=1000,
    minutes=11,
    series=500_000,
    samples=60_000_000,
    reach={"gputally_a": 300, "node:gputally_c:sum": 90_000},
    groups=[
        GroupCost("gputally-a", 60, 3, 2.0, recorded=80_000),
        GroupCost("gputally-b", 300, 2, 5.0, recorded=16_000),
    ],
    cpu_seconds_per_minute=4.0,
    resident_bytes=2**32,
    missed=0,
    failed=0,
)


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        ("gputally_a", 0),
        ("rate(gputally_a[5m])", 300),
        ("rate(gputally_a[5m] offset 1h)", 3900),
        ("max_over_time(sum by (node) (rate(gputally_a[5m]))[1d:5m])", 86_700),
        ('sum by (node) ({__name__=~"gputally_(a|b)"} offset 30m)', 1800),
    ],
)
def test_a_rule_reads_back_by_its_ranges_and_offsets_together(expression: str, seconds: float) -> None:
    assert reach_of([RecordingRule("node:gputally_x:sum", expression)], SCHEMA)["gputally_a"] == seconds


def test_the_furthest_of_several_rules_counts() -> None:
    rules = [
        RecordingRule("node:gputally_x:sum", f"increase(gputally_a[{span}])") for span in ("1h", "1d", "5m")
    ]
    assert reach_of(rules, SCHEMA) == {"gputally_a": 86_400}


def test_a_record_of_a_node_goes_back_as_far_as_it_is_read_and_each_clone_has_it_too() -> None:
    labels = {"__name__": "gpu:gputally_x:sum", "node": "one", "uuid": "GPU-1"}
    past = [PastSeries(labels, 2.0, interval=300, reach=3600, until=EVALUATED)]
    copies = {"one": [("two", renamed("two"))]}
    day_before = list(earlier_samples(past, EVALUATED - 86_400, EVALUATED - 82_800, copies))
    own, clone = earlier_samples(past, EVALUATED - 86_400, EVALUATED, copies)
    assert day_before == []
    assert len(own[1]) == len(clone[1]) == (3600 + 300) // 300 * len(encode_sample(2.0, EVALUATED * 1000))
    assert dict(own[0]) == labels
    assert dict(clone[0])["node"] == "two"
    assert dict(clone[0])["uuid"] != "GPU-1"


def test_a_group_costs_a_minute_by_its_own_interval() -> None:
    assert CHEAP.seconds_per_minute == 2.0 + 5.0 / 5
    assert CHEAP.recorded_per_gpu == 12


def test_each_target_is_missed_alone() -> None:
    assert [verdict.met for verdict in judge_rules(CHEAP)] == [True, True, True]
    slow = dataclasses.replace(CHEAP, groups=[GroupCost("gputally-a", 15, 1, 2.5, recorded=0)])
    assert [verdict.met for verdict in judge_rules(slow)] == [False, True, True]
    busy = dataclasses.replace(CHEAP, cpu_seconds_per_minute=10.0)
    assert [verdict.met for verdict in judge_rules(busy)] == [True, False, True]
    many = dataclasses.replace(CHEAP, groups=[GroupCost("gputally-a", 60, 1, 1.0, recorded=240_000)])
    assert [verdict.met for verdict in judge_rules(many)] == [True, True, False]


def test_a_smaller_fleet_is_judged_as_a_thousand_nodes_and_says_so() -> None:
    evaluation, cpu, recorded = judge_rules(dataclasses.replace(CHEAP, nodes=100))
    assert evaluation.measured == pytest.approx(30)
    assert cpu.measured == pytest.approx(40)
    assert recorded.measured == pytest.approx(120)
    assert "extrapolated from 100 nodes" in evaluation.target


def test_the_section_names_every_group_and_the_longest_windows() -> None:
    groups = [*CHEAP.groups, GroupCost("gputally-c", 300, 1, None, recorded=0)]
    section = rules_section(
        dataclasses.replace(CHEAP, groups=groups), "tools/bench --only rules", "2026-01-02", 0.5
    )
    assert "1d1h of `node:gputally_c:sum`" in section
    assert "| gputally-b | 5m | 2 | 5.00 | 1.00 | 2.00 |" in section
    assert "Not evaluated in this time: gputally-c." in section
