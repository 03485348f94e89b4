"""The large fleet of tools/bench: who is in it, what is recorded of it, and what is said of it."""

import pytest

from tools.benchmark.fleet import (
    Answer,
    FleetCost,
    as_records,
    names_of,
    nodes_of,
    past_of,
    read_over_time,
)
from tools.benchmark.queries import ApiRequest


def names(count: int) -> list[str]:
    return [name for node in nodes_of(count) for name in (node.name, *node.clones)]


@pytest.mark.parametrize("count", [1, 3, 4, 10, 1000])
def test_a_fleet_has_as_many_nodes_as_asked_for(count: int) -> None:
    assert len(set(names(count))) == len(names(count)) == count


def test_the_models_have_equal_shares_of_the_fleet() -> None:
    assert [len(node.clones) for node in nodes_of(1000)] == [249] * 4
    assert len({name.partition("-")[0] for name in names(1000)}) == 4


def test_an_alert_is_recorded_as_one_that_fires() -> None:
    rules = [
        {"record": "a:b", "expr": "b"},
        {"alert": "Bad", "expr": "a > 1", "for": "5m", "labels": {"severity": "info"}, "annotations": {}},
    ]
    group = as_records({"name": "g", "interval": "1m", "rules": rules})
    assert group["rules"] == [
        rules[0],
        {
            "record": "ALERTS",
            "expr": "(a > 1) * 0 + 1",
            "labels": {"alertname": "Bad", "severity": "info", "alertstate": "firing"},
        },
        {
            "record": "ALERTS_FOR_STATE",
            "expr": "(a > 1) * 0 + time()",
            "labels": {"alertname": "Bad", "severity": "info"},
        },
    ]


def test_names_are_those_of_the_exporter_and_of_the_records() -> None:
    rules = [{"record": "a:b", "expr": "b"}, {"alert": "Bad", "expr": "a"}]
    known = names_of([{"name": "g", "rules": rules}])
    assert {"a:b", "gputally_gpu_up"} <= known
    assert "Bad" not in known


def test_only_series_queried_over_time_need_a_history() -> None:
    asked = [
        ApiRequest("graph", "query_range", {"query": "sum(a)"}),
        ApiRequest("sum", "query", {"query": "sum_over_time(b[6h])"}),
        ApiRequest("now", "query", {"query": "c"}),
        ApiRequest("variable", "label/x/values", {"match[]": "d"}),
    ]
    assert read_over_time(asked, {"a", "b", "c", "d"}) == {"a", "b"}


def test_the_history_of_a_series_keeps_its_name() -> None:
    (rule,) = past_of({"a:b"}, 1000.0)
    assert rule == {"record": "a:b", "expr": "a:b @ 1000 * (time() % 97 / 97)"}


def test_a_round_is_all_groups_and_the_slowest_query_is_named() -> None:
    answers = [Answer(place, seconds, 1, 1) for place, seconds in (("a", 0.1), ("b", 0.9), ("c", 0.2))]
    cost = FleetCost(1000, 1, answers)
    assert (cost.slowest.place, cost.middle_seconds) == ("b", 0.2)
