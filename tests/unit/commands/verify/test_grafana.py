"""Grafana, with and without a login."""

from typing import Any

from gputally.commands import FAILURE, NOT_CHECKED, OK, WARNING, Finding
from gputally.commands.servers import Login, RemoteServer
from gputally.commands.verify.grafana import grafana
from tests.support.fake_servers import site
from tests.support.texts import numbers

LOGIN = Login("admin", "x")
HEALTH = {"/api/health": {"database": "ok"}}
SOURCES = [
    {"name": "Loki", "type": "loki", "uid": "l", "url": "http://loki", "isDefault": True},
    {"name": "Other", "type": "prometheus", "uid": "o", "url": "http://other"},
    {"name": "Prometheus", "type": "prometheus", "uid": "p", "url": "http://prometheus", "isDefault": True},
]
TWO = [{"uid": "gputally-fleet"}, {"uid": "gputally-node"}]


def answer(uid: str, *samples: float) -> dict[str, Any]:
    result = [{"metric": {}, "value": [0, str(value)]} for value in samples]
    return {f"/api/datasources/proxy/uid/{uid}/api/v1/query": {"data": {"result": result}}}


def look(pages: dict[str, Any], login: Login | None = LOGIN, expected: int | None = 2) -> dict[str, Finding]:
    with site(HEALTH | pages) as served:
        return {one.subject: one for one in grafana(RemoteServer(served.url, login), expected)}


def test_dashboards_are_listed_by_tag_and_the_default_data_source_is_queried() -> None:
    with site(
        HEALTH | {"/api/search": TWO, "/api/datasources": SOURCES} | answer("p", 16), login=LOGIN.header
    ) as served:
        found = list(grafana(RemoteServer(served.url, LOGIN), 2))
    # Health is for everybody in the real one; here it takes the login, too.
    assert [(one.level, one.subject, numbers(one.text)) for one in found] == [
        (OK, "dashboards", [2]),
        (OK, "data source", [16]),
    ]
    assert ("/api/search", {"type": "dash-db", "tag": "gputally", "limit": "5000"}) in served.asked


def test_missing_dashboards() -> None:
    pages = {"/api/search": TWO, "/api/datasources": SOURCES} | answer("p", 1)
    assert numbers(look(pages, expected=3)["dashboards"].text) == [2, 3]
    none = look({"/api/search": [], "/api/datasources": SOURCES} | answer("p", 1), expected=None)
    assert (none["dashboards"].level, none["data source"].level) == (FAILURE, OK)


def test_unusable_data_sources() -> None:
    listed = {"/api/search": TWO}
    assert look(listed | {"/api/datasources": SOURCES[:1]})["data source"].level == FAILURE
    failing = look(listed | {"/api/datasources": SOURCES})["data source"]
    assert (failing.level, "http://prometheus" in failing.text) == (FAILURE, True)
    empty = look(listed | {"/api/datasources": SOURCES} | answer("p"))["data source"]
    assert empty.level == WARNING


def test_without_a_login_only_counts_are_available() -> None:
    refused = (401, "application/json", b'{"message": "Unauthorized"}')
    metrics = b"# TYPE x\ngrafana_stat_totals_dashboard 2\ngrafana_stat_totals_dashboard_versions 9\n"
    pages = {"/api/search": refused, "/metrics": metrics}
    found = look(pages, None)
    assert (found["dashboards"].level, found["dashboards"].text) == (OK, "2 in all")
    assert found["data source"].level == NOT_CHECKED
    assert look(pages, None, expected=3)["dashboards"].level == FAILURE
    # Of some number it cannot be said that it is enough, nor whose they are.
    assert look(pages, None, expected=None)["dashboards"].level == NOT_CHECKED
    assert look({"/api/search": refused}, None)["dashboards"].level == NOT_CHECKED


def test_a_grafana_without_counts_yet_is_pending() -> None:
    pages = {"/api/search": (401, "text/plain", b""), "/metrics": b"\ngrafana_stat_totals_dashboard 0\n"}
    found = look(pages, None)["dashboards"]
    assert (found.level, found.early) == (NOT_CHECKED, True)


def test_with_anonymous_access_dashboards_are_listed() -> None:
    found = look({"/api/search": TWO}, None)
    assert (found["dashboards"].text, found["data source"].level) == ("2 of gputally", NOT_CHECKED)


def test_a_rejected_login_is_not_repeated() -> None:
    found = look({"/api/search": (401, "text/plain", b"")})
    assert found.keys() == {"grafana"}
    assert (found["grafana"].level, found["grafana"].final) == (FAILURE, True)


def test_an_unreachable_grafana() -> None:
    (found,) = grafana(RemoteServer("http://127.0.0.1:1"), None)
    assert (found.level, found.subject) == (FAILURE, "grafana")
