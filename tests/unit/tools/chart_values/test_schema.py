"""The schema that is generated from a values.yaml."""

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.model import Setting
from alerts.settings import SETTINGS
from alerts.templating import camel
from tools.chart_values import schema
from tools.chart_values.schema import DEFINITIONS

VALUES = """\
defaultsVersion: 1.2.3
# A port.
# @schema {$ref: "#/$defs/port"}
port: 80
# A word.
# @schema {enum: [one, two]}
word: one
# A group.
group:
  # A list.
  # @schema {items: {type: string, pattern: "^--"}}
  list: []
  # Text.
  text: ""
global:
  # Text.
  shared: ""
"""


def made(values: str = VALUES) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(schema.text(values))
    return read


def complaints(values: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft7Validator(made())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(values)]


def test_types_come_from_defaults_and_descriptions_from_comments() -> None:
    properties = made()["properties"]
    assert properties["group"]["properties"] == {
        "list": {"description": "A list.", "type": "array", "items": {"type": "string", "pattern": "^--"}},
        "text": {"description": "Text.", "type": "string"},
    }
    assert properties["port"] == {"description": "A port.", "$ref": "#/definitions/port"}
    assert properties["word"] == {"description": "A word.", "enum": ["one", "two"]}


def test_an_unknown_key_is_refused_except_in_global() -> None:
    assert complaints({"prot": 1}) == ["$: Additional properties are not allowed ('prot' was unexpected)"]
    assert len(complaints({"group": {"lits": []}})) == 1
    assert complaints({"global": {"of": "a parent chart"}}) == []


def test_a_parent_charts_condition_may_be_true_but_not_false() -> None:
    assert complaints({"enabled": True}) == []
    assert complaints({"enabled": False}) == ["$.enabled: True was expected"]


def test_with_the_defaults_of_this_chart_only_lists_may_be_missing() -> None:
    missing = complaints({"defaultsVersion": "1.2.3", "group": {}, "global": {"shared": ""}})
    assert missing == [
        "$: 'port' is a required property",
        "$: 'word' is a required property",
        "$.group: 'text' is a required property",
    ]


@pytest.mark.parametrize("older", [{}, {"defaultsVersion": "1.2.2"}])
def test_values_of_an_older_chart_may_lack_anything(older: dict[str, Any]) -> None:
    assert complaints(older) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_of_the_rules_accepts_its_default_and_no_other_type(setting: Setting) -> None:
    validator = jsonschema.Draft7Validator({"$ref": "#/definitions/rules", "definitions": DEFINITIONS})

    def accepted(value: Any) -> bool:
        return validator.is_valid({"settings": {camel(setting.name): value}})

    default = [*setting.value] if isinstance(setting.value, tuple) else setting.value
    assert accepted(default)
    kinds: dict[type, list[Any]] = {
        str: [1, True, None],
        int: ["1", True, -1],
        float: ["0.5", None, -0.5],
        list: ["48|79", ["48"], 48],
    }
    assert [wrong for wrong in kinds[type(default)] if accepted(wrong)] == []


def test_a_percentage_is_refused_as_a_ratio() -> None:
    validator = jsonschema.Draft7Validator({"$ref": "#/definitions/rules", "definitions": DEFINITIONS})
    assert not validator.is_valid({"settings": {"memoryFullRatio": 95}})
    assert validator.is_valid({"settings": {"anomalyMarginRatio": 1.5}})


UNITS = ("y", "w", "d", "h", "m", "s", "ms")


@given(st.lists(st.sampled_from(UNITS), min_size=1, unique=True), st.integers(0, 999))
def test_every_duration_of_prometheus_is_accepted(units: list[str], number: int) -> None:
    text = "".join(f"{number}{unit}" for unit in sorted(units, key=UNITS.index))
    assert re.search(DEFINITIONS["duration"]["pattern"], text)


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        ("duration", ["0s", "1h30m", "180d"], ["5 minutes", "5", "", "5sec", "-5s", "1.5h"]),
        ("samplingTime", ["500ms", "1.5s", "24h"], ["1h30m", "5", "1d", ""]),
        ("quantity", ["10m", "1.5", "48Mi", "2e3", 0, 1.5], ["50 GB", "50GB", "", "Mi", -1, "1,5"]),
        ("size", ["50Gi", "0.5Ti", "100G"], ["0", "0Gi", "50", "50GB", "0.0Gi", "50 Gi", 50]),
        ("intOrPercent", [1, "10%", "100%"], [0, -1, "10", "0%", "101%", 0.5]),
        ("port", [1, 9400, 65535], [0, -1, 65536, "9400", 94.5]),
        ("name", ["", "gpu-1"], ["GPU", "a_b", "-a", "a.b", "a" * 64]),
        ("objectName", ["", "team.secret-1"], ["Team", "a..b", ".a", "a b"]),
        ("absolutePath", ["", "/var/lib"], ["var/lib", "./a", "C:\\a"]),
        ("labelValue", ["", "a.b_c-1"], ["a b", "-a", "ä", "a" * 64, 1, True]),
        ("labels", [{"a.io/b": "1"}], [{"a b": "1"}, {"a": 1}, {"a": True}, {"a": None}, {"/a": "b"}]),
        ("seriesLabels", [{"team_1": "any text"}], [{"team-1": "a"}, {"1a": "b"}, {"a": 1}]),
        ("resourceList", [{"nvidia.com/gpu": 1, "cpu": "10m"}], [{"memroy": "1Gi"}, {"cpu": "1 core"}]),
    ],
)
def test_a_definition_accepts_valid_values_only(definition: str, good: list[Any], bad: list[Any]) -> None:
    validator = jsonschema.Draft7Validator(
        {"$ref": f"#/definitions/{definition}", "definitions": DEFINITIONS}
    )
    assert [value for value in good if not validator.is_valid(value)] == []
    assert [value for value in bad if validator.is_valid(value)] == []
