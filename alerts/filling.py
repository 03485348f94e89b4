"""Puts values in place of `[[ name ]]` in rules: defaults, or, for the chart, references to its values."""

from collections.abc import Mapping
from dataclasses import replace

from alerts.model import Alert, Group, Record, Setting, Table, Value
from alerts.settings import SETTINGS, TABLES
from alerts.templating import fill


def written(value: Value) -> str:
    """A value as PromQL has it."""
    if isinstance(value, tuple):
        return "|".join(str(code) for code in value)
    return str(value)


def defaults(settings: tuple[Setting, ...] = SETTINGS) -> dict[str, str]:
    return {setting.name: written(setting.value) for setting in settings}


def fill_alert(alert: Alert, values: Mapping[str, str]) -> Alert:
    return replace(
        alert,
        expr=fill(alert.expr, **values),
        summary=fill(alert.summary, **values),
        description=fill(alert.description, **values),
    )


def fill_record(record: Record, values: Mapping[str, str]) -> Record:
    labels = {name: fill(value, **values) for name, value in record.labels.items()}
    return replace(record, expr=fill(record.expr, **values), labels=labels)


def with_defaults(group: Group, tables: tuple[Table, ...] = TABLES) -> Group:
    """The group as Prometheus reads it: settings filled in, and a rule for every row of its table."""
    values = defaults()
    rows = {table.name: table.rows for table in tables}
    rules: list[Alert | Record] = []
    for rule in group.rules:
        if isinstance(rule, Alert):
            rules.append(fill_alert(rule, values))
        elif rule.each:
            rules += (
                fill_record(rule, {**values, "key": key, "value": written(value)})
                for key, value in sorted(rows.get(rule.each, {}).items())
            )
        else:
            rules.append(fill_record(rule, values))
    return replace(group, rules=tuple(rules))
