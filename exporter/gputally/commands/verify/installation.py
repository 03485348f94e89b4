"""All checks of an installation, in the order of the dependencies of its parts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gputally.commands import FAILURE, NOT_CHECKED, OK, Finding, passed
from gputally.commands.servers import (
    LoginRequired,
    NotFound,
    PrometheusApi,
    RemoteServer,
    RequestFailed,
)
from gputally.commands.verify import prometheus as checks
from gputally.commands.verify.grafana import grafana

_OF_PROMETHEUS = ("targets", "sources", "gpus", "pods", "labels", "rules", "records")
_OF_EXPORTERS = ("sources", "gpus", "pods", "labels")


@dataclass(frozen=True, slots=True)
class Installation:
    """The addresses of its parts, as far as they are given, and the expected numbers."""

    exporters: tuple[RemoteServer, ...] = ()
    prometheus: PrometheusApi | None = None
    alertmanager: RemoteServer | None = None
    grafana: RemoteServer | None = None
    rule_groups: int | None = None
    dashboards: int | None = None


def verify(installation: Installation) -> list[Finding]:
    """One finding or more for each part; never raises."""
    found = list(_prometheus(installation))
    scraped = any(finding.subject == "targets" and finding.level == OK for finding in found)
    return [
        *_exporters(installation.exporters, scraped=scraped),
        *found,
        *_grafana(installation.grafana, installation.dashboards),
    ]


def _exporters(servers: tuple[RemoteServer, ...], *, scraped: bool) -> Iterator[Finding]:
    if not servers:
        yield from _unchecked(["exporter"], "no address of an exporter")
    for server in servers:
        yield _exporter(server, scraped=scraped)


def _exporter(server: RemoteServer, *, scraped: bool) -> Finding:
    try:
        body = server.get("/metrics")
    except LoginRequired as error:
        return Finding(NOT_CHECKED, "exporter", f"{server.url}: {error}, and no login is given")
    except RequestFailed as error:
        if scraped:
            text = f"{server.url} is not reachable from here ({error}); Prometheus scrapes it: NetworkPolicy?"
            return Finding(NOT_CHECKED, "exporter", text)
        return Finding(
            FAILURE,
            "exporter",
            f"{server.url} is unavailable: {error}",
            "kubectl get daemonsets,pods -l app.kubernetes.io/component=exporter -A",
        )
    if b"\ngputally_exporter_info{" not in body:
        return Finding(
            FAILURE, "exporter", f"{server.url} responds, but is not an exporter of gputally", final=True
        )
    return Finding(OK, "exporter", f"{server.url} responds")


def _prometheus(installation: Installation) -> Iterator[Finding]:
    prometheus = installation.prometheus
    if prometheus is None:
        yield from _unchecked(_OF_PROMETHEUS, "no address of Prometheus")
        yield checks.alertmanager(None, installation.alertmanager)
        return
    try:
        up = prometheus.rows(f"up{{{prometheus.ours}}}")
    except LoginRequired as error:
        yield from _unchecked(["prometheus", *_OF_PROMETHEUS, "alertmanager"], str(error))
        return
    except RequestFailed as error:
        yield Finding(
            FAILURE,
            "prometheus",
            f"{prometheus.server.url} is unavailable: {error}",
            "kubectl get pods -l app.kubernetes.io/component=prometheus -A, and its log; or another address",
        )
        yield from _unchecked((*_OF_PROMETHEUS, "alertmanager"), "Prometheus is unavailable")
        return
    yield from _run("targets", lambda: [checks.targets(prometheus, up)])
    seen = False
    if any(row.value for row in up):
        yield from _run("sources", lambda: checks.sources(prometheus))
        gpus = _run("gpus", lambda: checks.gpus(prometheus))
        yield from gpus
        seen = passed(gpus)
        yield from _run("pods", lambda: [checks.pods(prometheus)])
        yield from _run("labels", lambda: [checks.labels(prometheus)])
    else:
        yield from _unchecked(_OF_EXPORTERS, "no exporter is scraped")
    yield from _run("rules", lambda: _rules(prometheus, installation.rule_groups, seen=seen))
    yield from _run("alertmanager", lambda: [checks.alertmanager(prometheus, installation.alertmanager)])


def _rules(prometheus: PrometheusApi, expected: int | None, *, seen: bool) -> Iterator[Finding]:
    groups = prometheus.rule_groups()
    yield checks.rules(groups, expected)
    if seen and groups:
        yield from _run("records", lambda: [checks.records(prometheus, groups)])
    else:
        yield from _unchecked(["records"], "no GPU is found" if groups else "no rules are loaded")


def _grafana(server: RemoteServer | None, expected: int | None) -> Iterable[Finding]:
    if server is None:
        return _unchecked(["dashboards", "data source"], "no address of Grafana")
    return _run("grafana", lambda: grafana(server, expected))


def _unchecked(subjects: Iterable[str], why: str) -> Iterator[Finding]:
    return (Finding(NOT_CHECKED, subject, why) for subject in subjects)


def _run(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check; a server that becomes unavailable is a finding, too."""
    try:
        return list(check())
    except NotFound as error:
        return [Finding(NOT_CHECKED, subject, f"not supported by this server: {error}")]
    except RequestFailed as error:
        return [Finding(FAILURE, subject, f"the check failed: {error}")]
