"""Checks in Grafana: dashboards and data source. Without a login, only the number of dashboards."""

import re
from collections.abc import Iterator

from gputally.commands import FAILURE, NOT_CHECKED, OK, WARNING, Finding
from gputally.commands.servers import LoginRequired, RemoteServer, RequestFailed

_DASHBOARDS = (
    "dashboards.configMaps.enabled=true, with the labels that Grafana's sidecar selects; rejected dashboards "
    "are in its log and in Grafana's"
)
_SOURCE = "add a data source of type Prometheus, as the default one or selected on the dashboard"
_COUNTED = re.compile(r"^grafana_stat_totals_dashboard (\S+)$", re.MULTILINE)


def grafana(server: RemoteServer, expected: int | None) -> Iterator[Finding]:
    try:
        server.get_json("/api/health")
    except RequestFailed as error:
        yield Finding(
            FAILURE,
            "grafana",
            f"{server.url} is unavailable: {error}",
            "kubectl get pods -l app.kubernetes.io/component=grafana -A, and its log",
        )
        return
    try:
        yield _listed(server, expected)
        yield _data_source(server)
    except LoginRequired as error:
        # Repeated attempts with a wrong password lock out the user.
        yield Finding(
            FAILURE,
            "grafana",
            f"{error}; the given login is not accepted",
            "check whether the password was changed in Grafana: the Secret must have the same one",
            final=True,
        )


def _listed(server: RemoteServer, expected: int | None) -> Finding:
    try:
        found = server.get_json("/api/search", type="dash-db", tag="gputally", limit="5000")
    except LoginRequired:
        if server.login:
            raise
        return _counted(server, expected)
    return _dashboards(len(found), expected, "of gputally")


def _data_source(server: RemoteServer) -> Finding:
    if not server.login:
        return Finding(NOT_CHECKED, "data source", "no login for Grafana")
    sources = [one for one in server.get_json("/api/datasources") if one["type"] == "prometheus"]
    if not sources:
        return Finding(FAILURE, "data source", "Grafana has none of type Prometheus", _SOURCE)
    source = next((one for one in sources if one.get("isDefault")), sources[0])
    path = f"/api/datasources/proxy/uid/{source['uid']}/api/v1/query"
    try:
        seen = server.get_json(path, query="count(gputally_gpu_info)")["data"]["result"]
    except (RequestFailed, KeyError, TypeError) as error:
        return Finding(
            FAILURE, "data source", f"{source['name']} ({source['url']}) is unavailable: {error}", _SOURCE
        )
    if not seen:
        return Finding(WARNING, "data source", f"{source['name']} ({source['url']}) has no GPU", _SOURCE)
    return Finding(OK, "data source", f"{source['name']} shows {float(seen[0]['value'][1]):.0f} GPUs")


def _counted(server: RemoteServer, expected: int | None) -> Finding:
    """From the metric that needs no login: the number of all dashboards at Grafana's last count."""
    try:
        counted = _COUNTED.search(server.get("/metrics").decode(errors="replace"))
    except RequestFailed:
        counted = None
    if counted is None or expected is None:
        return Finding(NOT_CHECKED, "dashboards", "no login for Grafana")
    if float(counted[1]) == 0:
        # The count at its start; older versions count again only after half an hour.
        return Finding(
            NOT_CHECKED, "dashboards", "no login, and Grafana has not counted them yet", early=True
        )
    return _dashboards(round(float(counted[1])), expected, "in all")


def _dashboards(found: int, expected: int | None, which: str) -> Finding:
    if not found or (expected is not None and found < expected):
        of = f"{found} of {expected}" if expected is not None else "no"
        return Finding(FAILURE, "dashboards", f"{of} dashboards are in Grafana", _DASHBOARDS)
    return Finding(OK, "dashboards", f"{found} {which}")
