"""Checks that a Prometheus or Alertmanager of the operator selects the objects of the release."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gputally.commands import FAILURE, NOT_CHECKED, OK, WARNING, Finding, some
from tools.verification.kubectl import Kubectl, Object
from tools.verification.release import PART_OF, Release, labels_of, name_of
from tools.verification.selecting import selects, unmet

GROUP = "monitoring.coreos.com"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of object, the chart value that creates it, and the kind and selector that select it."""

    resource: str
    value: str
    taker: str
    selector: str

    @property
    def namespaces(self) -> str:
        return self.selector.removesuffix("Selector") + "NamespaceSelector"


_SCRAPES = (
    _Kind("scrapeconfigs", "scrapeConfig", "prometheuses", "scrapeConfigSelector"),
    _Kind("servicemonitors", "serviceMonitor", "prometheuses", "serviceMonitorSelector"),
    _Kind("podmonitors", "podMonitor", "prometheuses", "podMonitorSelector"),
)
_RULES = _Kind("prometheusrules", "prometheusRule", "prometheuses", "ruleSelector")
_ROUTES = _Kind("alertmanagerconfigs", "alertmanagerConfig", "alertmanagers", "alertmanagerConfigSelector")


@dataclass(frozen=True, slots=True)
class Operated:
    """The findings; `prometheus` is one that scrapes the release's exporters."""

    findings: list[Finding]
    prometheus: Object | None = None
    rule_groups: int | None = None


def check(kubectl: Kubectl, release: Release) -> Operated:
    """For a release without a Prometheus of its own. Raises Failed."""
    known = kubectl.kinds(GROUP)
    if not known:
        told = "this cluster has no Prometheus operator, and the release no Prometheus of its own"
        return Operated([Finding(FAILURE, "scraping", told, "helm upgrade ... --set stack.enabled=true")])
    takers = {
        taker: kubectl.get(f"{taker}.{GROUP}", "--all-namespaces") if f"{taker}.{GROUP}" in known else []
        for taker in ("prometheuses", "alertmanagers")
    }
    spaces = {name_of(one): labels_of(one) for one in kubectl.get("namespaces")}
    found = {
        kind: [
            made
            for made in kubectl.get(f"{kind.resource}.{GROUP}", "--all-namespaces", f"--selector={PART_OF}")
            if release.has(made)
        ]
        for kind in (*_SCRAPES, _RULES, _ROUTES)
        if f"{kind.resource}.{GROUP}" in known
    }
    findings = list(_missing(known, found, takers["prometheuses"]))
    scraping: Object | None = None
    for kind, objects in found.items():
        for made in objects:
            taken_by = [one for one in takers[kind.taker] if _takes(one, kind, made, spaces)]
            findings.append(_finding(kind, made, taken_by, takers[kind.taker], spaces))
            if kind in _SCRAPES and taken_by:
                scraping = taken_by[0]
    findings += _overruling(scraping)
    groups = [group for made in found.get(_RULES, ()) for group in made["spec"].get("groups") or ()]
    return Operated(findings, scraping, len(groups))


def _missing(
    known: set[str], found: Mapping[_Kind, Sequence[Object]], prometheuses: Sequence[Object]
) -> Iterator[Finding]:
    if not any(found.get(kind) for kind in _SCRAPES):
        newest = f"scrapeconfigs.{GROUP}" in known
        value = "scrapeConfig" if newest else "serviceMonitor"
        labels = _asked_labels(prometheuses, f"{value}Selector")
        yield Finding(
            FAILURE,
            "scraping",
            "the release has no object by which a Prometheus finds the exporters",
            f"helm upgrade ... --set {value}.enabled=true{_sets(value, labels)}",
        )
    if not found.get(_RULES):
        labels = _asked_labels(prometheuses, _RULES.selector)
        yield Finding(
            NOT_CHECKED,
            "rules object",
            "the release has no PrometheusRule: prometheusRule.enabled=true" + _sets(_RULES.value, labels),
        )


def _finding(
    kind: _Kind,
    made: Object,
    taken_by: Sequence[Object],
    takers: Sequence[Object],
    spaces: Mapping[str, Mapping[str, str]],
) -> Finding:
    subject = kind.value
    place = f"{made['metadata']['namespace']}/{name_of(made)}"
    if taken_by:
        who = some(f"{one['metadata']['namespace']}/{name_of(one)}" for one in taken_by)
        return Finding(OK, subject, f"{place} is selected by {who}")
    if not takers:
        return Finding(WARNING, subject, f"{place} exists, but no {kind.taker} selects it")
    taker = takers[0]
    who = f"{taker['kind']} {taker['metadata']['namespace']}/{name_of(taker)}"
    selector = taker["spec"].get(kind.selector)
    if selector is None:
        return Finding(
            FAILURE, subject, f"{who} selects no object of this kind", f"set its {kind.selector}: {{}}"
        )
    lacking = unmet(selector, labels_of(made))
    if not lacking:
        space = made["metadata"]["namespace"]
        asked = taker["spec"].get(kind.namespaces)
        words = "its own" if asked is None else "those with " + some(unmet(asked, spaces.get(space, {})))
        return Finding(
            FAILURE,
            subject,
            f"{who} does not select namespace {space}, only {words}",
            f"install into one of them, or set its {kind.namespaces}",
        )
    labels = dict(one.split("=", 1) for one in lacking if "=" in one)
    return Finding(
        FAILURE,
        subject,
        f"{who} does not select {place}: it lacks {some(lacking)}",
        f"helm upgrade ... --reuse-values{_sets(kind.value, labels)}",
    )


def _overruling(prometheus: Object | None) -> Iterator[Finding]:
    """Settings of a Prometheus that replace labels of the exporter."""
    spec = prometheus["spec"] if prometheus else {}
    for setting in ("overrideHonorLabels", "enforcedNamespaceLabel"):
        if spec.get(setting):
            yield Finding(
                WARNING,
                "labels",
                f"{setting} is set in the Prometheus that scrapes: namespaces may be the exporter's own",
                "a Prometheus without it, or excludedFromEnforcement for the objects of this release",
            )


def _takes(taker: Object, kind: _Kind, made: Object, spaces: Mapping[str, Mapping[str, str]]) -> bool:
    space = made["metadata"]["namespace"]
    asked = taker["spec"].get(kind.namespaces)
    there = (
        space == taker["metadata"]["namespace"] if asked is None else selects(asked, spaces.get(space, {}))
    )
    return there and selects(taker["spec"].get(kind.selector), labels_of(made))


def _asked_labels(takers: Sequence[Object], selector: str) -> dict[str, str]:
    for taker in takers:
        labels = (taker["spec"].get(selector) or {}).get("matchLabels")
        if labels:
            return dict(labels)
    return {}


def _sets(value: str, labels: Mapping[str, str]) -> str:
    escaped = ((key.replace(".", "\\."), text) for key, text in sorted(labels.items()))
    return "".join(f" --set-string '{value}.additionalLabels.{key}={text}'" for key, text in escaped)
