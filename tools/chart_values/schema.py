"""values.schema.json: draft 7, which Helm 3 and Helm 4 both read.

A key that is not in values.yaml is a mistake, everywhere but in `global`, which is a parent chart's, too.
"""

import json
from collections.abc import Sequence

from tools.chart_values import rules
from tools.chart_values.definitions import DEFINITIONS, Schema
from tools.chart_values.descriptions import description
from tools.chart_values.reading import Value, values

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_SHARED = ("global",)


def text(source: str) -> str:
    return json.dumps(schema(values(source)), indent=2, ensure_ascii=False) + "\n"


def schema(tree: Sequence[Value]) -> Schema:
    version = next(value.default for value in tree if value.name == "defaultsVersion")
    keys = _group(tree)
    # A parent chart's `condition`. Nothing reads it, so false must not pass for a switch.
    keys["properties"]["enabled"] = {"const": True}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of GPUTally's chart",
        **keys,
        # Values of an older chart (`helm upgrade --reuse-values`) lack what is new, and get its default.
        "if": {"properties": {"defaultsVersion": {"const": version}}, "required": ["defaultsVersion"]},
        "then": _needed(tree),
        "definitions": DEFINITIONS | rules.DEFINITIONS,
    }


def of(value: Value) -> Schema:
    """The schema of one key, without its description."""
    if value.children:
        return _group(value.children, closed=value.dotted not in _SHARED)
    # These are enough, and with a type, too, a mistake would be told twice.
    enough = value.schema.keys() & {"$ref", "enum"}
    kind = {} if enough else {"type": _TYPES[type(value.default)]}
    return _without_defs(kind | dict(value.schema))


def _group(children: Sequence[Value], closed: bool = True) -> Schema:
    group: Schema = {
        "type": "object",
        "properties": {child.name: _described(child) for child in children},
    }
    return group | ({"additionalProperties": False} if closed else {})


def _described(value: Value) -> Schema:
    words = description(value)
    return ({"description": words} if words else {}) | of(value)


def _without_defs(schema: Schema) -> Schema:
    """Draft 7 calls them definitions."""
    moved: Schema = json.loads(json.dumps(schema).replace("#/$defs/", "#/definitions/"))
    return moved


def _needed(children: Sequence[Value]) -> Schema:
    """Helm takes a key away whose value is null. Lists and maps of the user's own are then as if empty;
    without the others, templates would print nothing where something must stand."""
    needed = [
        child.name for child in children if child.children or not isinstance(child.default, list | dict)
    ]
    groups = {child.name: _needed(child.children) for child in children if child.children}
    return {
        **({"required": needed} if needed else {}),
        **({"properties": groups} if groups else {}),
    }
