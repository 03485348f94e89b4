"""Checks of what Prometheus makes of the series: rules, recorded series, and who hears of alerts."""

from typing import Any

from gputally.commands.verify import FAILURE, NOT_CHECKED, OK, WARNING, Finding, some
from gputally.commands.verify.asking import NotAnswered, Server
from gputally.commands.verify.prometheus import Prometheus

_SELECTED = (
    "prometheusRule.enabled=true, with the additionalLabels that your Prometheus selects rules by; a group "
    "that Prometheus refuses is in its log"
)


def rules(groups: list[dict[str, Any]], expected: int | None) -> Finding:
    names = {group["name"] for group in groups}
    if not names and expected == 0:
        return Finding(NOT_CHECKED, "rules", "there are none, as is expected")
    if not names or (expected is not None and len(names) < expected):
        of = f"{len(names)} of {expected}" if expected is not None else "no"
        return Finding(FAILURE, "rules", f"{of} groups of gputally are loaded", _SELECTED)
    every = [rule for group in groups for rule in group["rules"]]
    failing = {rule["name"]: rule.get("lastError", "") for rule in every if rule["health"] == "err"}
    if failing:
        name, error = min(failing.items())
        return Finding(
            FAILURE,
            "rules",
            f"{len(failing)} rules fail: {some(failing)}. {name}: {error}",
            "many-to-many and duplicate series: are exporters scraped twice?",
        )
    if waiting := [rule for rule in every if rule["health"] == "unknown"]:
        return Finding(
            WARNING,
            "rules",
            f"{len(waiting)} of {len(every)} rules have not been evaluated yet",
            "look again in a minute (--wait)",
        )
    return Finding(OK, "rules", f"{len(names)} groups with {len(every)} rules, none failing")


def records(prometheus: Prometheus, groups: list[dict[str, Any]]) -> Finding:
    """To be asked where GPUs are seen: some recorded series then have values."""
    recorded = {rule["name"] for group in groups for rule in group["rules"] if rule["type"] == "recording"}
    if not recorded:
        return Finding(NOT_CHECKED, "records", "no recording rule of gputally is loaded")
    filled = prometheus.count(f"count by (__name__) ({{{prometheus.recorded}}})")
    if not filled:
        return Finding(
            FAILURE,
            "records",
            f"none of {len(recorded)} recorded names has a series: dashboards stay empty",
            "a fresh installation needs two scrapes and an evaluation (--wait); else rules and scrape differ "
            f"in their job: {prometheus.job}?",
        )
    return Finding(OK, "records", f"{filled} of {len(recorded)} recorded names have series")


def alertmanager(prometheus: Prometheus | None, server: Server | None) -> Finding:
    """Prometheus must know of one, and if it is known where it is, it must answer."""
    answered = ""
    if server is not None:
        try:
            status = server.get_json("/api/v2/status")
            answered = f", version {status['versionInfo']['version']}"
        except (NotAnswered, KeyError, TypeError) as error:
            return Finding(
                FAILURE,
                "alertmanager",
                f"{server.url} does not answer: {error}",
                "kubectl get pods -l app.kubernetes.io/component=alertmanager -A, and its log",
            )
    if prometheus is None:
        return Finding(
            NOT_CHECKED, "alertmanager", f"whether Prometheus knows it: no address of Prometheus{answered}"
        )
    known = prometheus.alertmanagers()
    if known:
        return Finding(OK, "alertmanager", f"Prometheus sends alerts to {some(known)}{answered}")
    return Finding(
        FAILURE if server else WARNING,
        "alertmanager",
        "Prometheus knows no Alertmanager: alerts reach nobody",
        "stack.alertmanager.enabled=true, or `alerting` of your Prometheus",
    )
