"""Checks the rules before they are loaded: one line per fault, with its group and rule."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jinja2
import jinja2.meta

from alerts import promql, runbooks, schema
from alerts.filling import with_defaults
from alerts.groups import GROUPS
from alerts.model import Alert, Group, RecordingRule, RowSetting, Setting
from alerts.settings import FIXED, SETTINGS, TABLES
from alerts.templating import ENVIRONMENT, TEMPLATES

RECORD_NAME = re.compile(r"[a-z]+:[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")
_USED_LABEL = re.compile(r"\$labels\.([a-zA-Z_][a-zA-Z0-9_]*)")


def problems(
    groups: tuple[Group, ...] = GROUPS,
    settings: tuple[Setting, ...] = SETTINGS,
    tables: tuple[RowSetting, ...] = TABLES,
    runbook_directory: Path = runbooks.DIRECTORY,
) -> list[str]:
    """Returns all faults."""
    return [
        *_duplicates(groups),
        *_settings(groups, settings, tables),
        *_expressions(groups, tables),
        *_runbooks(groups, runbook_directory),
    ]


def full_schema(
    groups: tuple[Group, ...] = GROUPS, tables: tuple[RowSetting, ...] = TABLES
) -> promql.SeriesLabels:
    """Returns the labels of all exported and recorded series. Raises Wrong, with the record's name."""
    known = dict(schema.exported())
    # A table may be empty until a user fills it, but its records are valid names.
    filled = tuple(replace(table, rows=table.rows or {"any": 1}) for table in tables)
    waiting = [record for group in groups for record in with_defaults(group, filled).records]
    # A record may read one that is defined further down: repeat until nothing new resolves.
    while waiting:
        left: list[RecordingRule] = []
        fault: promql.Wrong | None = None
        for record in waiting:
            try:
                labels = promql.labels_of(record.expr, known) | record.labels.keys()
            except promql.Wrong as wrong:
                left.append(record)
                fault = fault or promql.Wrong(f"{record.name}: {wrong}")
            else:
                known[record.name] = known.get(record.name, frozenset()) | labels
        if fault and len(left) == len(waiting):
            raise fault
        waiting = left
    return known


def _duplicates(groups: tuple[Group, ...]) -> Iterator[str]:
    for what, count in Counter(group.name for group in groups).items():
        if count > 1:
            yield f"group {what} is defined {count} times"
    for what, count in Counter(alert.name for group in groups for alert in group.alerts).items():
        if count > 1:
            yield f"{what} is defined {count} times"


def _settings(
    groups: tuple[Group, ...], settings: tuple[Setting, ...], tables: tuple[RowSetting, ...]
) -> Iterator[str]:
    known = {setting.name for setting in settings} | FIXED.keys() | {"key", "value"}
    used = {name for page in TEMPLATES.glob("*.j2") for name in _names(page.read_text())}
    for group in groups:
        for rule in group.rules:
            names = {name for text in _texts(rule) for name in _names(text)}
            used |= names
            for name in sorted(names - known):
                yield f"{group.name}: {rule.name}: there is no setting {name}"
    for setting in settings:
        if setting.name not in used:
            yield f"setting {setting.name} is not used"
    repeated = {record.each for group in groups for record in group.records if record.each}
    for table in tables:
        if table.name not in repeated:
            yield f"table {table.name} is not used"
    for name in sorted(repeated - {table.name for table in tables}):
        yield f"there is no table {name}"


def _expressions(groups: tuple[Group, ...], tables: tuple[RowSetting, ...]) -> Iterator[str]:
    try:
        known = full_schema(groups, tables)
    except (promql.Wrong, jinja2.UndefinedError) as wrong:
        yield str(wrong)
        return
    for group in groups:
        for rule in with_defaults(group, tables).rules:
            where = f"{group.name}: {rule.name}"
            if isinstance(rule, RecordingRule):
                if not RECORD_NAME.fullmatch(rule.name):
                    yield f"{where}: the name of a record must be level:metric:operation"
                continue
            if not rule.name.startswith("GPUTally"):
                yield f"{where}: the name of an alert must begin with GPUTally"
            try:
                has = promql.labels_of(rule.expr, known)
            except promql.Wrong as wrong:
                yield f"{where}: {wrong}"
                continue
            for label in _USED_LABEL.findall(rule.summary + rule.description):
                if label not in has:
                    yield f"{where}: its text uses $labels.{label}; it has only {', '.join(sorted(has))}"


def _runbooks(groups: tuple[Group, ...], directory: Path) -> Iterator[str]:
    names = {alert.name for group in groups for alert in group.alerts}
    pages = {page.stem: page for page in directory.glob("GPUTally*.md")}
    for name in sorted(names - pages.keys()):
        yield f"{name} has no runbook: write {directory.name}/{name}.md"
    for name, page in sorted(pages.items()):
        if name not in names:
            yield f"{directory.name}/{page.name} is a runbook without an alert"
            continue
        headings = re.findall(r"^##? (.+)$", page.read_text(), re.MULTILINE)
        if headings != [name, *runbooks.SECTIONS]:
            yield f"{directory.name}/{page.name}: its headings must be {name}, {', '.join(runbooks.SECTIONS)}"


def _texts(rule: Alert | RecordingRule) -> tuple[str, ...]:
    if isinstance(rule, Alert):
        return (rule.expr, rule.summary, rule.description)
    return (rule.expr, *rule.labels.values())


def _names(text: str) -> set[str]:
    return jinja2.meta.find_undeclared_variables(ENVIRONMENT.parse(text))
