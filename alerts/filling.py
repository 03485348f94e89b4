"""Replaces `[[ name ]]` in rules: by the default, or, in the chart, by a reference to a Helm value."""

from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent

from alerts.model import Alert, Group, RecordingRule, RowSetting, Setting, SettingValue
from alerts.settings import FIXED, SETTINGS, TABLES
from alerts.templating import fill


def written(value: SettingValue) -> str:
    """The value as PromQL, and as Helm prints it."""
    if isinstance(value, tuple):
        return "|".join(str(code) for code in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def defaults(settings: tuple[Setting, ...] = SETTINGS) -> dict[str, str]:
    return {setting.name: written(setting.value) for setting in settings} | FIXED


def _expression(text: str, values: Mapping[str, str]) -> str:
    """The literal of a group without its indentation, for the plain files and the chart alike."""
    return fill(dedent(text).strip("\n"), **values)


def fill_alert(alert: Alert, values: Mapping[str, str]) -> Alert:
    return replace(
        alert,
        expr=_expression(alert.expr, values),
        summary=fill(alert.summary, **values),
        description=fill(alert.description, **values),
    )


def fill_record(record: RecordingRule, values: Mapping[str, str]) -> RecordingRule:
    labels = {name: fill(value, **values) for name, value in record.labels.items()}
    return replace(record, expr=_expression(record.expr, values), labels=labels)


def with_defaults(group: Group, tables: tuple[RowSetting, ...] = TABLES) -> Group:
    """The group with the default settings, and one rule for each row of a table."""
    values = defaults()
    rows = {table.name: table.rows for table in tables}
    rules: list[Alert | RecordingRule] = []
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
