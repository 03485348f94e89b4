"""The schema of `rules`: every setting, table, group and alert by its name."""

import re

from alerts.groups import ALERTS, GROUPS
from alerts.model import Alert, Setting, Severity
from alerts.settings import SETTINGS, TABLES
from alerts.templating import camel
from tools.chart_values import definitions
from tools.chart_values.definitions import SWITCH, Schema, a_list, one_of, ref, strict, whole_number

_MAY_EXCEED_ONE = {"anomaly_margin_ratio"}


def _schema() -> Schema:
    return strict(
        {
            "runbookUrl": {
                "type": "string",
                "pattern": "^https?://",
                "description": "Where the runbooks are; the alert's name and .md are added.",
            },
            "additionalRuleLabels": {
                "description": "Labels for every alert and no record.",
                **ref("seriesLabels"),
            },
            "settings": strict({camel(setting.name): _setting(setting) for setting in SETTINGS}),
            "tables": strict(
                {
                    camel(table.name): {
                        "description": table.help,
                        "type": "object",
                        "additionalProperties": {"type": "number", "minimum": 0},
                    }
                    for table in TABLES
                }
            ),
            "groups": strict({group.name: strict({"enabled": SWITCH}) for group in GROUPS if group.records}),
            "alerts": strict({alert.name: _alert(alert) for alert in ALERTS}),
        }
    )


def _setting(setting: Setting) -> Schema:
    return {"description": setting.help} | _kind(setting)


def _kind(setting: Setting) -> Schema:
    if isinstance(setting.value, tuple):
        return a_list(whole_number(0))
    if isinstance(setting.value, str):
        if re.search(definitions.DEFINITIONS["duration"]["pattern"], setting.value):
            return ref("duration")
        return {"type": "string"} | ({"minLength": 1} if setting.value else {})
    kind: Schema = {"type": "number", "minimum": 0}
    if setting.name.endswith("_ratio") and setting.name not in _MAY_EXCEED_ONE:
        # 95 for 95 % is a likely mistake, and an alert that never fires.
        kind["maximum"] = 1
    return kind


def _alert(alert: Alert) -> Schema:
    return {"description": alert.fault} | ref("alert")


DEFINITIONS: dict[str, Schema] = {
    "alert": strict(
        {
            "enabled": SWITCH,
            "for": ref("duration"),
            "keepFiringFor": ref("duration"),
            "severity": one_of(*Severity),
        }
    ),
    "rules": _schema(),
}
