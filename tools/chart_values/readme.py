"""README.md of the chart: the text of readme.md.j2 and the tables of values and presets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alerts.runbooks import BASE_URL
from alerts.templating import fill
from tools.chart_values.schema import schema_of
from tools.chart_values.source import ChartValue, Preset, every, sections
from tools.rendering.markdown import table

_TEMPLATE = Path(__file__).with_name("readme.md.j2")
_LONGEST_DEFAULT = 80
_KINDS = {
    "absolutePath": "path",
    "array": "list",
    "boolean": "true or false",
    "intOrPercent": "number or percentage",
    "labelValue": "string",
    "networkPolicyPeers": "list of peers",
    "object": "map",
    "objectName": "name",
    "routingTiming": "durations",
    "samplingTime": "duration",
    "seriesLabels": "labels",
    "timeIntervals": "list of time intervals",
}
"""Names of types in the tables, where the schema's own name is less clear."""


def text(source: str, presets: Sequence[Preset]) -> str:
    parts = [
        {"title": section.title, "text": section.text, "table": values_table(section.values)}
        for section in sections(source)
    ]
    return fill(
        _TEMPLATE.read_text(),
        docs=BASE_URL.removesuffix("/runbooks"),
        presets=presets_table(presets),
        sections=parts,
    )


def presets_table(presets: Sequence[Preset]) -> str:
    rows = [(f"`{preset.name}`", preset.target, preset.pod_security) for preset in presets]
    return table(("file", "for", "Pod Security"), rows)


def values_table(values: Sequence[ChartValue]) -> str:
    """One row per value, and per group that has a comment."""
    rows = [_row(value) for value in every(values) if value.description]
    return table(("value", "type", "default", "description"), rows)


def _row(value: ChartValue) -> tuple[str, str, str, str]:
    if value.children:
        return (f"`{value.dotted}`", "", "", value.description)
    return (f"`{value.dotted}`", kind(schema_of(value)), _default(value), value.description)


def kind(schema: Mapping[str, Any]) -> str:
    """The type of a value, in a word or two."""
    if "$ref" in schema:
        return _word(str(schema["$ref"]).rpartition("/")[2])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(word) if word == '' else word}`" for word in schema["enum"])
    if schema["type"] == "array":
        return f"list of {kind(schema['items'])}"
    if isinstance(schema["type"], list):
        return " or ".join(map(_word, schema["type"]))
    return _word(schema["type"])


def _word(name: str) -> str:
    return _KINDS.get(name, name)


def _default(value: ChartValue) -> str:
    written = json.dumps(value.default, ensure_ascii=False)
    if isinstance(value.default, str) and value.default:
        written = value.default
    return f"`{written}`" if len(written) <= _LONGEST_DEFAULT else "see values.yaml"
