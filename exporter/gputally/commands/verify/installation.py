"""All checks of an installation, in the order in which its parts depend on each other."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gputally.commands.verify import FAILURE, NOT_CHECKED, OK, Finding, passed, rules, series
from gputally.commands.verify.asking import LoginNeeded, NotAnswered, NotThere, Server
from gputally.commands.verify.grafana import grafana
from gputally.commands.verify.prometheus import Prometheus

_OF_PROMETHEUS = ("targets", "sources", "gpus", "pods", "labels", "rules", "records")
_OF_EXPORTERS = ("sources", "gpus", "pods", "labels")


@dataclass(frozen=True, slots=True)
class Installation:
    """Where its parts answer, as far as that is known, and how much of everything there should be."""

    exporters: tuple[Server, ...] = ()
    prometheus: Prometheus | None = None
    alertmanager: Server | None = None
    grafana: Server | None = None
    rule_groups: int | None = None
    dashboards: int | None = None


def verify(installation: Installation) -> list[Finding]:
    """A line or more about each part; never raises."""
    found = list(_prometheus(installation))
    scraped = any(finding.subject == "targets" and finding.level == OK for finding in found)
    return [
        *_exporters(installation.exporters, scraped=scraped),
        *found,
        *_grafana(installation.grafana, installation.dashboards),
    ]


def _exporters(servers: tuple[Server, ...], *, scraped: bool) -> Iterator[Finding]:
    if not servers:
        yield from _unchecked(["exporter"], "no address of an exporter")
    for server in servers:
        yield _exporter(server, scraped=scraped)


def _exporter(server: Server, *, scraped: bool) -> Finding:
    try:
        said = server.get("/metrics")
    except LoginNeeded as error:
        return Finding(NOT_CHECKED, "exporter", f"{server.url}: {error}, and none is given")
    except NotAnswered as error:
        if scraped:
            told = f"{server.url} cannot be reached from here ({error}), but by Prometheus: a NetworkPolicy?"
            return Finding(NOT_CHECKED, "exporter", told)
        return Finding(
            FAILURE,
            "exporter",
            f"{server.url} does not answer: {error}",
            "kubectl get daemonsets,pods -l app.kubernetes.io/component=exporter -A",
        )
    if b"\ngputally_exporter_info{" not in said:
        return Finding(
            FAILURE, "exporter", f"{server.url} answers, but is no exporter of gputally", final=True
        )
    return Finding(OK, "exporter", f"{server.url} answers")


def _prometheus(installation: Installation) -> Iterator[Finding]:
    prometheus = installation.prometheus
    if prometheus is None:
        yield from _unchecked(_OF_PROMETHEUS, "no address of Prometheus")
        yield rules.alertmanager(None, installation.alertmanager)
        return
    try:
        up = prometheus.rows(f"up{{{prometheus.ours}}}")
    except LoginNeeded as error:
        yield from _unchecked(["prometheus", *_OF_PROMETHEUS, "alertmanager"], str(error))
        return
    except NotAnswered as error:
        yield Finding(
            FAILURE,
            "prometheus",
            f"{prometheus.server.url} does not answer: {error}",
            "kubectl get pods -l app.kubernetes.io/component=prometheus -A, and its log; or another address",
        )
        yield from _unchecked((*_OF_PROMETHEUS, "alertmanager"), "Prometheus does not answer")
        return
    yield from _asked("targets", lambda: [series.targets(prometheus, up)])
    seen = False
    if any(row.value for row in up):
        yield from _asked("sources", lambda: series.sources(prometheus))
        gpus = _asked("gpus", lambda: series.gpus(prometheus))
        yield from gpus
        seen = passed(gpus)
        yield from _asked("pods", lambda: [series.pods(prometheus)])
        yield from _asked("labels", lambda: [series.labels(prometheus)])
    else:
        yield from _unchecked(_OF_EXPORTERS, "no exporter is scraped")
    yield from _asked("rules", lambda: _rules(prometheus, installation.rule_groups, seen=seen))
    yield from _asked("alertmanager", lambda: [rules.alertmanager(prometheus, installation.alertmanager)])


def _rules(prometheus: Prometheus, expected: int | None, *, seen: bool) -> Iterator[Finding]:
    groups = prometheus.rule_groups()
    yield rules.rules(groups, expected)
    if seen and groups:
        yield from _asked("records", lambda: [rules.records(prometheus, groups)])
    else:
        yield from _unchecked(["records"], "no GPU is seen" if groups else "no rules are loaded")


def _grafana(server: Server | None, expected: int | None) -> Iterable[Finding]:
    if server is None:
        return _unchecked(["dashboards", "data source"], "no address of Grafana")
    return _asked("grafana", lambda: grafana(server, expected))


def _unchecked(subjects: Iterable[str], why: str) -> Iterator[Finding]:
    return (Finding(NOT_CHECKED, subject, why) for subject in subjects)


def _asked(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; a server that has stopped to answer is found, too."""
    try:
        return list(check())
    except NotThere as error:
        return [Finding(NOT_CHECKED, subject, f"this kind of server does not tell: {error}")]
    except NotAnswered as error:
        return [Finding(FAILURE, subject, f"could not be asked: {error}")]
