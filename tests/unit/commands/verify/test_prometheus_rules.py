"""Rules, recorded series and the Alertmanager of a Prometheus."""

from typing import Any

from gputally.commands import FAILURE, NOT_CHECKED, OK, WARNING
from gputally.commands.servers import RequestFailed
from gputally.commands.verify.prometheus import alertmanager, records, rules
from tests.support.fake_servers import Told, prometheus
from tests.support.texts import missing, numbers


def group(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "rules": list(rules)}


def rule(name: str, health: str = "ok", **more: str) -> dict[str, Any]:
    return {"name": name, "health": health, "type": "recording", **more}


GOOD = [group("gputally-a", rule("a:gputally_x:y")), group("gputally-b", rule("b:gputally_x:y"))]


def test_all_groups_are_loaded_and_none_fails() -> None:
    found = rules(GOOD, 2)
    assert (found.level, numbers(found.text)) == (OK, [2, 2])
    assert rules(GOOD, None).level == OK


def test_a_group_of_two_releases_counts_once() -> None:
    assert rules([GOOD[0], GOOD[0]], 2).level == FAILURE


def test_missing_groups() -> None:
    assert numbers(rules(GOOD[:1], 2).text) == [1, 2]
    assert (rules([], None).level, rules([], 2).level) == (FAILURE, FAILURE)


def test_missing_groups_are_ok_if_none_are_expected() -> None:
    assert rules([], 0).level == NOT_CHECKED
    assert rules(GOOD, 0).level == OK


def test_failing_rules_are_named_with_the_error() -> None:
    wrong = group("gputally-c", rule("z", "err", lastError="no"), rule("c", "err", lastError="many-to-many"))
    found = rules([wrong], 1)
    assert (found.level, numbers(found.text)) == (FAILURE, [2])
    assert missing(found.text, "c, z", "c: many-to-many") == []


def test_rules_that_were_never_evaluated_are_pending() -> None:
    found = rules([group("gputally-a", rule("a"), rule("b", "unknown"))], 1)
    assert (found.level, numbers(found.text)) == (WARNING, [1, 2])


def test_recorded_series() -> None:
    assert numbers(records(prometheus({"gputally_": [({}, 1)]}), GOOD).text) == [1, 2]
    assert records(prometheus(), GOOD).level == FAILURE
    alerts = [group("gputally-a", rule("A", type="alerting"))]
    assert records(prometheus(), alerts).level == NOT_CHECKED


STATUS = Told("http://am", answers={"/api/v2/status": {"versionInfo": {"version": "0.34"}}})


def test_an_alertmanager_that_prometheus_knows() -> None:
    known = prometheus(alertmanagers={"activeAlertmanagers": [{"url": "http://am/api/v2/alerts"}]})
    assert alertmanager(known, None).level == OK
    assert alertmanager(known, STATUS).text.endswith("http://am/api/v2/alerts, version 0.34")


def test_an_unknown_alertmanager_fails_only_if_one_is_expected() -> None:
    unknown = prometheus(alertmanagers={"activeAlertmanagers": []})
    assert alertmanager(unknown, None).level == WARNING
    assert alertmanager(unknown, STATUS).level == FAILURE


def test_an_alertmanager_that_does_not_respond() -> None:
    down = Told("http://am", answers={"/api/v2/status": RequestFailed("connection refused")})
    found = alertmanager(prometheus(), down)
    assert found.level == FAILURE
    assert found.text.startswith("http://am ")
    assert found.text.endswith("connection refused")


def test_without_prometheus_the_rules_are_not_checked() -> None:
    assert alertmanager(None, STATUS).level == NOT_CHECKED
