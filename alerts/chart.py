"""The chart's templates: the same rules and routes, with references to Helm values instead of defaults."""

import json
import re
from dataclasses import replace

from alerts import messages, routing
from alerts.filling import fill_alert, fill_record
from alerts.groups import ALERTS, GROUPS
from alerts.model import Alert, Group, RecordingRule, Setting
from alerts.rules import labels
from alerts.runbooks import BASE_URL, runbook_url
from alerts.settings import FIXED, SETTINGS, TABLES
from alerts.templating import camel, render

CHART = "helm/gputally"
_PROMETHEUS_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_NAMESPACE = "each namespace"
"""A placeholder for each namespace of the Helm values."""
_RECEIVERS = {"slack": "$default", "pagerduty": "$critical"}
"""Receiver of the plain file -> Helm variable."""


def files() -> dict[str, str]:
    """Path in the repository -> text."""
    return {
        f"{CHART}/templates/_rules.tpl": render("chart_rules.tpl.j2", groups=[_group(g) for g in GROUPS]),
        f"{CHART}/files/rules.yaml": render(
            "chart_rules.yaml.j2",
            runbook_url=BASE_URL,
            settings=SETTINGS,
            tables=TABLES,
            groups=GROUPS,
            alerts=ALERTS,
        ),
        f"{CHART}/templates/_routing.tpl": render(
            "chart_routing.tpl.j2",
            ours=routing.OURS,
            routes=[_route(r) for r in routing.routes({_NAMESPACE: "$receiver"})],
            inhibitions=routing.INHIBITIONS,
            title=messages.TITLE,
            severity=messages.SEVERITY,
            priority=messages.PRIORITY,
            text=messages.text(),
            text_with_link=messages.text("` }}{{ . }}{{ `"),
        ),
    }


def _group(group: Group) -> dict[str, object]:
    return {
        "name": group.name,
        "interval": group.interval,
        "enabled": group.enabled,
        "alerts": group.alerts,
        "records": group.records,
        "rules": [_rule(rule) for rule in group.rules],
    }


def _rule(rule: Alert | RecordingRule) -> dict[str, object]:
    values = {setting.name: _reference(setting) for setting in SETTINGS} | FIXED
    if isinstance(rule, RecordingRule):
        filled = fill_record(rule, {**values, "key": "{{ $key }}", "value": "{{ $value }}"})
        return {"record": rule.name, "expr": filled.expr, "labels": filled.labels, "each": rule.each}
    # Prometheus's templates have to be escaped before Helm's references are filled in.
    escaped = replace(rule, summary=_escape(rule.summary), description=_escape(rule.description))
    alert = fill_alert(escaped, values)
    return {
        "alert": rule.name,
        "expr": alert.expr,
        "summary": alert.summary,
        "description": alert.description,
        "labels": {name: text for name, text in labels(rule).items() if name != "severity"},
        "runbook_url": runbook_url(rule.name, "{{ $rules.runbookUrl }}"),
    }


def _reference(setting: Setting) -> str:
    value = f"$settings.{camel(setting.name)}"
    return f'{{{{ join "|" {value} }}}}' if isinstance(setting.value, tuple) else f"{{{{ {value} }}}}"


def _route(route: routing.Route) -> dict[str, object]:
    return {
        "each_namespace": any(matcher.value == _NAMESPACE for matcher in route.matchers),
        "matchers": f"[{', '.join(map(_matcher, route.matchers))}]",
        "resources": f"[{', '.join(map(_matcher_resource, route.matchers))}]",
        "receiver": _RECEIVERS.get(route.receiver, route.receiver),
        "group_by": route.group_by,
        "group_wait": _time(route, "groupWait", route.group_wait),
        "group_interval": _time(route, "groupInterval", route.group_interval),
        "repeat_interval": _time(route, "repeatInterval", route.repeat_interval),
        "muted_in_maintenance": route.muted_in_maintenance,
    }


def _time(route: routing.Route, key: str, default: str) -> str:
    """A reference to the interval of this severity, or of the teams, in the Helm values."""
    (key_of_route, *_) = (matcher.value for matcher in route.matchers)
    return f'{{{{ dig "{key_of_route}" "{key}" "{default}" $times }}}}'


def _matcher(matcher: routing.Matcher) -> str:
    if matcher.value == _NAMESPACE:
        # A regular expression, quoted for Alertmanager inside a string quoted for YAML.
        return f'{{{{ printf "{matcher.label}{matcher.operator}%q" $namespace | toJson }}}}'
    return json.dumps(str(matcher))


def _matcher_resource(matcher: routing.Matcher) -> str:
    return json.dumps(matcher.as_resource()).replace(json.dumps(_NAMESPACE), "{{ toJson $namespace }}")


def _escape(text: str) -> str:
    """The text with Prometheus's templates as Helm strings, which Helm prints unchanged."""
    return _PROMETHEUS_TEMPLATE.sub(lambda found: f"{{{{`{found[0]}`}}}}", text)
