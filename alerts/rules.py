"""Rules as data in the format of Prometheus's rule files."""

from typing import Any

from alerts.filling import with_defaults
from alerts.groups import GROUPS
from alerts.model import Alert, Group, RecordingRule
from alerts.runbooks import runbook_url


def rule_groups(groups: tuple[Group, ...] = GROUPS, *, disabled_too: bool = False) -> list[dict[str, Any]]:
    """The groups with the default settings, without the groups and alerts that are off by default."""
    return [
        {
            "name": group.name,
            "interval": group.interval,
            "rules": [
                _rule(rule)
                for rule in with_defaults(group).rules
                if disabled_too or not isinstance(rule, Alert) or rule.enabled
            ],
        }
        for group in groups
        if disabled_too or group.enabled
    ]


def labels(alert: Alert) -> dict[str, str]:
    return {
        "severity": alert.severity.value,
        "action": alert.action.value,
        "audience": alert.audience.value,
    }


def annotations(alert: Alert) -> dict[str, str]:
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": runbook_url(alert.name),
    }


def _rule(rule: Alert | RecordingRule) -> dict[str, Any]:
    if isinstance(rule, RecordingRule):
        named = {"labels": dict(rule.labels)} if rule.labels else {}
        return {"record": rule.name, "expr": rule.expr, **named}
    timing = {"for": rule.for_}
    if rule.keep_firing_for:
        timing["keep_firing_for"] = rule.keep_firing_for
    return {
        "alert": rule.name,
        "expr": rule.expr,
        **timing,
        "labels": labels(rule),
        "annotations": annotations(rule),
    }
