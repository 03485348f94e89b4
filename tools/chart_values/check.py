"""Says what is wrong with values.yaml and the presets: one line per fault, with its place."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tools.chart_values import presets, rules
from tools.chart_values.definitions import DEFINITIONS
from tools.chart_values.descriptions import description
from tools.chart_values.reading import Value, every, values

_KEYWORDS = {
    "type", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "items", "minItems", "uniqueItems", "properties", "required", "additionalProperties",
    "patternProperties", "minProperties", "$ref",
}  # fmt: skip
_SCHEMAS_BY_NAME = {"properties", "patternProperties"}
_SCHEMAS = {"items", "additionalProperties"}


def problems(source: str, preset_texts: Mapping[str, str]) -> list[str]:
    """Everything that is wrong; empty when all is well."""
    try:
        tree = values(source)
    except ValueError as error:
        return [f"values.yaml: {error}"]
    found = [f"values.yaml: {value.dotted}: {fault}" for value in every(tree) for fault in _faults(value)]
    seen = Counter(value.dotted for value in every(tree))
    found += [f"values.yaml: {name}: stands there {count} times" for name, count in seen.items() if count > 1]
    return found + [fault for name, text in preset_texts.items() for fault in presets.faults(name, text)]


def _faults(value: Value) -> Iterator[str]:
    if value.children:
        return
    if not description(value):
        yield "nothing says what it is: a comment above it does"
    if value.default is None:
        yield "has no default, so nothing says of what kind it is"
    if isinstance(value.default, list) and not value.schema.keys() & {"$ref", "items"}:
        yield "a list, and nothing says of what: @schema {items: ...} does"
    if isinstance(value.default, dict) and not value.schema.keys() & {
        "$ref",
        "additionalProperties",
        "properties",
    }:
        yield "a map, and nothing says of what: @schema {$ref: ...} or {additionalProperties: ...} does"
    yield from _schema_faults(dict(value.schema))


def _schema_faults(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for keyword, content in schema.items():
        if keyword not in _KEYWORDS:
            yield f"@schema: {keyword} is none of the words of a schema that are used here"
        elif keyword in _SCHEMAS_BY_NAME:
            for inner in content.values():
                yield from _schema_faults(inner)
        elif keyword in _SCHEMAS:
            yield from _schema_faults(content)
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        if name not in DEFINITIONS | rules.DEFINITIONS:
            yield f"@schema: {schema['$ref']} is not defined"
        if len(schema) > 1:
            yield "@schema: what stands beside $ref is not looked at"
