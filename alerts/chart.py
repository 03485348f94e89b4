"""The chart's templates: the same rules, with Helm values in place of the defaults."""

import re
from dataclasses import replace

from alerts.filling import fill_alert, fill_record
from alerts.groups import ALERTS, GROUPS
from alerts.model import Alert, Group, Record, Setting
from alerts.rules import labels
from alerts.runbooks import BASE_URL, runbook_url
from alerts.settings import SETTINGS, TABLES
from alerts.templating import camel, render

CHART = "helm/gputally"
_PROMETHEUS_TEMPLATE = re.compile(r"\{\{.*?\}\}")


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
    }


def _group(group: Group) -> dict[str, object]:
    return {
        "name": group.name,
        "interval": group.interval,
        "alerts": group.alerts,
        "records": group.records,
        "rules": [_rule(rule) for rule in group.rules],
    }


def _rule(rule: Alert | Record) -> dict[str, object]:
    values = {setting.name: _reference(setting) for setting in SETTINGS}
    if isinstance(rule, Record):
        filled = fill_record(rule, {**values, "key": "{{ $key }}", "value": "{{ $value }}"})
        return {"record": rule.name, "expr": filled.expr, "labels": filled.labels, "each": rule.each}
    # Prometheus's own templates are kept from Helm before Helm's are put in.
    kept = replace(rule, summary=_from_helm(rule.summary), description=_from_helm(rule.description))
    alert = fill_alert(kept, values)
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


def _from_helm(text: str) -> str:
    """What Prometheus is to fill in, as Helm prints it untouched."""
    return _PROMETHEUS_TEMPLATE.sub(lambda found: f"{{{{`{found[0]}`}}}}", text)
