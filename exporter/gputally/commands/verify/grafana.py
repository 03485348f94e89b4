"""Checks of Grafana: dashboards and data source; with a login what it lists, without one what it counts."""

import re
from collections.abc import Iterator

from gputally.commands.verify import FAILURE, NOT_CHECKED, OK, WARNING, Finding
from gputally.commands.verify.asking import LoginNeeded, NotAnswered, Server

_DASHBOARDS = (
    "dashboards.configMaps.enabled=true, with the labels that Grafana's sidecar looks for; its log and "
    "Grafana's say what was refused"
)
_SOURCE = "a data source of type Prometheus, as the default one or chosen on the dashboard"
_COUNTED = re.compile(r"^grafana_stat_totals_dashboard (\S+)$", re.MULTILINE)


def grafana(server: Server, expected: int | None) -> Iterator[Finding]:
    try:
        server.get_json("/api/health")
    except NotAnswered as error:
        yield Finding(
            FAILURE,
            "grafana",
            f"{server.url} does not answer: {error}",
            "kubectl get pods -l app.kubernetes.io/component=grafana -A, and its log",
        )
        return
    try:
        yield _listed(server, expected)
        yield _data_source(server)
    except LoginNeeded as error:
        # Who asks again and again with a wrong password is locked out, and everybody with that name.
        yield Finding(
            FAILURE,
            "grafana",
            f"{error}, and the one that is given is not accepted",
            "has the password been changed in Grafana? The Secret has to have the same",
            final=True,
        )


def _listed(server: Server, expected: int | None) -> Finding:
    try:
        found = server.get_json("/api/search", type="dash-db", tag="gputally", limit="5000")
    except LoginNeeded:
        if server.login:
            raise
        return _counted(server, expected)
    return _dashboards(len(found), expected, "of gputally")


def _data_source(server: Server) -> Finding:
    if not server.login:
        return Finding(NOT_CHECKED, "data source", "no login for Grafana")
    sources = [one for one in server.get_json("/api/datasources") if one["type"] == "prometheus"]
    if not sources:
        return Finding(FAILURE, "data source", "Grafana has none of type Prometheus", _SOURCE)
    source = next((one for one in sources if one.get("isDefault")), sources[0])
    path = f"/api/datasources/proxy/uid/{source['uid']}/api/v1/query"
    try:
        seen = server.get_json(path, query="count(gputally_gpu_info)")["data"]["result"]
    except (NotAnswered, KeyError, TypeError) as error:
        return Finding(
            FAILURE, "data source", f"{source['name']} ({source['url']}) does not answer: {error}", _SOURCE
        )
    if not seen:
        return Finding(
            WARNING, "data source", f"{source['name']} ({source['url']}) answers, but has no GPU", _SOURCE
        )
    return Finding(OK, "data source", f"{source['name']} shows {float(seen[0]['value'][1]):.0f} GPUs")


def _counted(server: Server, expected: int | None) -> Finding:
    """What Grafana tells strangers: how many there were when it last counted, and not whose."""
    try:
        counted = _COUNTED.search(server.get("/metrics").decode(errors="replace"))
    except NotAnswered:
        counted = None
    if counted is None or expected is None:
        return Finding(NOT_CHECKED, "dashboards", "no login for Grafana")
    if float(counted[1]) == 0:
        # The count of its start; older Grafanas count again only after half an hour.
        return Finding(
            NOT_CHECKED, "dashboards", "no login, and Grafana has not counted them yet", early=True
        )
    return _dashboards(round(float(counted[1])), expected, "in all")


def _dashboards(found: int, expected: int | None, which: str) -> Finding:
    if not found or (expected is not None and found < expected):
        of = f"{found} of {expected}" if expected is not None else "no"
        return Finding(FAILURE, "dashboards", f"{of} dashboards are in Grafana", _DASHBOARDS)
    return Finding(OK, "dashboards", f"{found} {which}")
