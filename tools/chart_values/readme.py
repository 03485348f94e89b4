"""README.md of the chart: text by hand (readme.md.j2), and the tables of values and presets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alerts.runbooks import BASE_URL
from alerts.templating import fill
from tools.chart_values import presets
from tools.chart_values.descriptions import description
from tools.chart_values.reading import Value, every, sections
from tools.chart_values.schema import of
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
    "routingTimes": "durations",
    "samplingTime": "duration",
    "seriesLabels": "labels",
    "timeIntervals": "list of time intervals",
}
"""Other words for kinds, where those of the schema say less."""


def text(source: str, preset_texts: Mapping[str, str]) -> str:
    parts = [
        {"title": section.title, "text": section.text, "table": values_table(section.values)}
        for section in sections(source)
    ]
    return fill(
        _TEMPLATE.read_text(),
        docs=BASE_URL.removesuffix("/runbooks"),
        presets=presets_table(preset_texts),
        sections=parts,
    )


def presets_table(preset_texts: Mapping[str, str]) -> str:
    read = [presets.preset(name, text) for name, text in preset_texts.items()]
    rows = [(f"`{preset.name}`", preset.for_whom, preset.pod_security) for preset in read]
    return table(("file", "for", "Pod Security"), rows)


def values_table(values: Sequence[Value]) -> str:
    """A group has a row when a comment says something of it as a whole."""
    rows = [_row(value) for value in every(values) if description(value)]
    return table(("value", "type", "default", "what it is"), rows)


def _row(value: Value) -> tuple[str, str, str, str]:
    if value.children:
        return (f"`{value.dotted}`", "", "", description(value))
    return (f"`{value.dotted}`", kind(of(value)), _default(value), description(value))


def kind(schema: Mapping[str, Any]) -> str:
    """In a word or two, what may stand there."""
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


def _default(value: Value) -> str:
    written = json.dumps(value.default, ensure_ascii=False)
    if isinstance(value.default, str) and value.default:
        written = value.default
    return f"`{written}`" if len(written) <= _LONGEST_DEFAULT else "see values.yaml"
