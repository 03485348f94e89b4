"""All checks together: what depends on what, and what is not looked at."""

from gputally.commands import FAILURE, NOT_CHECKED, OK, Finding
from gputally.commands.servers import (
    LoginRequired,
    NotFound,
    PrometheusApi,
    RemoteServer,
    RequestFailed,
)
from gputally.commands.verify.installation import Installation, verify
from tests.support.fake_servers import Told, prometheus, site

METRICS = b'# TYPE x gauge\ngputally_exporter_info{version="1"} 1\n'
NOBODY = RemoteServer("http://127.0.0.1:1")


def refusing(error: Exception) -> PrometheusApi:
    return PrometheusApi(Told("http://prometheus", answers={"/api/v1/query": error}), "gputally")


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.subject: finding.level for finding in findings}


def test_parts_that_are_not_given_are_not_checked() -> None:
    found = verify(Installation())
    assert {one.level for one in found} == {NOT_CHECKED}
    assert [one.subject for one in found] == [
        *("exporter", "targets", "sources", "gpus", "pods", "labels"),
        *("rules", "records", "alertmanager", "dashboards", "data source"),
    ]


def test_an_exporter_is_recognised_by_its_metrics() -> None:
    with site({"/metrics": METRICS}) as served:
        assert levels(verify(Installation(exporters=(RemoteServer(served.url),))))["exporter"] == OK
    with site({"/metrics": b"node_load1 1\n"}) as served:
        (found, *_) = verify(Installation(exporters=(RemoteServer(served.url),)))
        assert (found.level, found.final) == (FAILURE, True)


def test_an_exporter_that_requires_a_login_is_not_checked() -> None:
    with site({"/metrics": METRICS}, login="Basic x") as served:
        (found, *_) = verify(Installation(exporters=(RemoteServer(served.url),)))
    assert (found.level, "login required" in found.text) == (NOT_CHECKED, True)


def test_an_exporter_that_only_prometheus_can_reach_is_not_checked() -> None:
    up = prometheus({"gputally_": [], "up{": [({"node": "a"}, 1)]}, rules={"groups": []})
    (found, *_) = verify(Installation(exporters=(NOBODY,), prometheus=up))
    assert (found.level, "NetworkPolicy" in found.text) == (NOT_CHECKED, True)
    (found, *_) = verify(Installation(exporters=(NOBODY,)))
    assert found.level == FAILURE


def test_a_prometheus_that_does_not_respond_fails_and_the_rest_is_not_checked() -> None:
    found = levels(verify(Installation(prometheus=refusing(RequestFailed("gone")))))
    assert found.pop("prometheus") == FAILURE
    assert set(found.values()) == {NOT_CHECKED}


def test_a_prometheus_that_requires_a_login_is_not_checked() -> None:
    found = levels(verify(Installation(prometheus=refusing(LoginRequired("HTTP 401")))))
    assert set(found.values()) == {NOT_CHECKED}
    assert "prometheus" in found


def test_without_a_scraped_exporter_only_the_targets_and_rules_fail() -> None:
    empty = prometheus({}, rules={"groups": []}, alertmanagers={"activeAlertmanagers": []})
    found = levels(verify(Installation(prometheus=empty)))
    assert {subject for subject, level in found.items() if level == FAILURE} == {"targets", "rules"}
    assert found["gpus"] == found["records"] == NOT_CHECKED


def test_servers_with_a_part_of_the_prometheus_api_do_not_fail() -> None:
    thanos = prometheus(
        {"gputally_": [], "up{": [({"node": "a"}, 1)]},
        rules=RequestFailed("no answer in 10 s"),
        alertmanagers=NotFound("HTTP 404: not found"),
    )
    found = levels(verify(Installation(prometheus=thanos)))
    assert found["alertmanager"] == NOT_CHECKED
    assert found["rules"] == FAILURE
