"""Finds mistakes in values.yaml and the presets."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tools.chart_values.schema import DEFINITIONS
from tools.chart_values.source import ChartValue, Preset, every, values

_KEYWORDS = {
    "type", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
    "items", "minItems", "uniqueItems", "properties", "required", "additionalProperties",
    "patternProperties", "minProperties", "$ref",
}  # fmt: skip
_SCHEMAS_BY_NAME = {"properties", "patternProperties"}
_SCHEMAS = {"items", "additionalProperties"}


def problems(source: str, presets: Sequence[Preset]) -> list[str]:
    """One line per mistake, with its file and key; empty if there is none."""
    try:
        tree = values(source)
    except ValueError as error:
        return [f"values.yaml: {error}"]
    found = [f"values.yaml: {value.dotted}: {fault}" for value in every(tree) for fault in _faults(value)]
    seen = Counter(value.dotted for value in every(tree))
    found += [f"values.yaml: {name}: defined {count} times" for name, count in seen.items() if count > 1]
    for preset in presets:
        if not preset.target:
            found.append(f"presets/{preset.name}: the first line is not a comment with the kind of cluster")
        if not preset.pod_security:
            found.append(f"presets/{preset.name}: missing comment line `# Pod Security: LEVEL`")
    return found


def _faults(value: ChartValue) -> Iterator[str]:
    if value.children:
        return
    if not value.description:
        yield "no description: add a comment above the key"
    if value.default is None:
        yield "no default, so its type is unknown"
    if isinstance(value.default, list) and not value.schema.keys() & {"$ref", "items"}:
        yield "a list of an unknown type: add @schema {items: ...}"
    if isinstance(value.default, dict) and not value.schema.keys() & {
        "$ref",
        "additionalProperties",
        "properties",
    }:
        yield "a map of an unknown type: add @schema {$ref: ...} or {additionalProperties: ...}"
    yield from _schema_faults(dict(value.schema))


def _schema_faults(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for keyword, content in schema.items():
        if keyword not in _KEYWORDS:
            yield f"@schema: unknown keyword {keyword}"
        elif keyword in _SCHEMAS_BY_NAME:
            for inner in content.values():
                yield from _schema_faults(inner)
        elif keyword in _SCHEMAS:
            yield from _schema_faults(content)
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        if name not in DEFINITIONS:
            yield f"@schema: {schema['$ref']} is not defined"
        if len(schema) > 1:
            yield "@schema: keywords beside $ref are ignored"
