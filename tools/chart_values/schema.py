"""values.schema.json: draft 7, which Helm 3 and Helm 4 both support.

A key that is not in values.yaml is an error, except in `global`, which is shared with parent charts.
"""

import json
import re
from collections.abc import Sequence

from alerts.groups import ALERTS, GROUPS
from alerts.model import Alert, Setting, Severity
from alerts.settings import SETTINGS, TABLES
from alerts.templating import camel
from tools.chart_values.definitions import DEFINITIONS as KUBERNETES_DEFINITIONS
from tools.chart_values.definitions import SWITCH, Schema, a_list, one_of, ref, strict, whole_number
from tools.chart_values.source import ChartValue, values

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_SHARED = ("global",)
_MAY_EXCEED_ONE = {"anomaly_margin_ratio", "volume_full_ratio"}


def text(source: str) -> str:
    return json.dumps(schema(values(source)), indent=2, ensure_ascii=False) + "\n"


def schema(tree: Sequence[ChartValue]) -> Schema:
    version = next(value.default for value in tree if value.name == "defaultsVersion")
    keys = _group(tree)
    # A parent chart's `condition` may set it. Templates do not read it, so false would have no effect.
    keys["properties"]["enabled"] = {"const": True}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the GPUTally chart",
        **keys,
        # Values of an older chart (`helm upgrade --reuse-values`) lack new keys; templates add the defaults.
        "if": {"properties": {"defaultsVersion": {"const": version}}, "required": ["defaultsVersion"]},
        "then": _required(tree),
        "definitions": DEFINITIONS,
    }


def schema_of(value: ChartValue) -> Schema:
    """The schema of one key, without its description."""
    if value.children:
        return _group(value.children, closed=value.dotted not in _SHARED)
    # With a type as well, Helm would report a mistake twice.
    enough = value.schema.keys() & {"$ref", "enum"}
    kind = {} if enough else {"type": _TYPES[type(value.default)]}
    return _without_defs(kind | dict(value.schema))


def _group(children: Sequence[ChartValue], closed: bool = True) -> Schema:
    group: Schema = {
        "type": "object",
        "properties": {child.name: _described(child) for child in children},
    }
    return group | ({"additionalProperties": False} if closed else {})


def _described(value: ChartValue) -> Schema:
    words = value.description
    return ({"description": words} if words else {}) | schema_of(value)


def _without_defs(schema: Schema) -> Schema:
    """The schema with `#/definitions/`, as draft 7 calls them."""
    moved: Schema = json.loads(json.dumps(schema).replace("#/$defs/", "#/definitions/"))
    return moved


def _required(children: Sequence[ChartValue]) -> Schema:
    """The keys that must not be set to null, by which Helm removes a key. Lists and free maps may be removed:
    templates treat them as empty."""
    names = [child.name for child in children if child.children or not isinstance(child.default, list | dict)]
    groups = {child.name: _required(child.children) for child in children if child.children}
    return {
        **({"required": names} if names else {}),
        **({"properties": groups} if groups else {}),
    }


def _rules() -> Schema:
    """The schema of `rules`: every setting, table, group and alert by name."""
    return strict(
        {
            "runbookUrl": {
                "type": "string",
                "pattern": "^https?://",
                "description": "Base URL of the runbooks; the alert's name and .md are appended.",
            },
            "additionalRuleLabels": {
                "description": "Labels of every alert; recording rules do not get them.",
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
        if re.search(KUBERNETES_DEFINITIONS["duration"]["pattern"], setting.value):
            return ref("duration")
        return {"type": "string"} | ({"minLength": 1} if setting.value else {})
    kind: Schema = {"type": "number", "minimum": 0}
    if setting.name.endswith("_ratio") and setting.name not in _MAY_EXCEED_ONE:
        # 95 instead of 0.95 is a likely mistake, and the alert would never fire.
        kind["maximum"] = 1
    return kind


def _alert(alert: Alert) -> Schema:
    return {"description": alert.fault} | ref("alert")


DEFINITIONS: dict[str, Schema] = KUBERNETES_DEFINITIONS | {
    "alert": strict(
        {
            "enabled": SWITCH,
            "for": ref("duration"),
            "keepFiringFor": ref("duration"),
            "severity": one_of(*Severity),
        }
    ),
    "rules": _rules(),
}
