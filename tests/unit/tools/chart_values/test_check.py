"""The check of values.yaml and the presets."""

import pytest

from tools.chart_values.check import problems
from tools.chart_values.source import Preset

GOOD = [Preset("a.yaml", "Clusters of A.", "restricted")]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("key: 1", "key: no description"),
        ("# A group.\ngroup:\n  key: 1", "group.key: no description"),
        ("# A key.\nkey: []", "key: a list of an unknown type"),
        ("# A key.\nkey: {}", "key: a map of an unknown type"),
        ("# A key.\nkey:", "key: no default"),
        ("# A key.\n# @schema {patern: a}\nkey: a", "key: @schema: unknown keyword patern"),
        ("# A key.\n# @schema {items: {minimun: 1}}\nkey: []", "key: @schema: unknown keyword minimun"),
        ('# A key.\n# @schema {$ref: "#/$defs/prot"}\nkey: 1', "key: @schema: #/$defs/prot is not defined"),
        (
            '# A key.\n# @schema {$ref: "#/$defs/port", minimum: 9}\nkey: 1',
            "key: @schema: keywords beside $ref",
        ),
        ("# A key.\n# @schema [1]\nkey: 1", "key: @schema is not a map"),
        ("# A key.\nkey: 1\n# Again.\nkey: 2", "key: defined 2 times"),
    ],
)
def test_each_mistake_in_the_values_is_one_line_with_the_key(lines: str, named: str) -> None:
    (found,) = problems(f"{lines}\n", GOOD)
    assert found.startswith(f"values.yaml: {named}")


def test_a_name_with_a_usual_description_needs_no_comment() -> None:
    assert problems('# @schema {$ref: "#/$defs/tolerations"}\ntolerations: []\n', GOOD) == []


@pytest.mark.parametrize(
    ("preset", "named"),
    [(Preset("b.yaml", "", "baseline"), "first line"), (Preset("b.yaml", "For B.", ""), "Pod Security")],
)
def test_a_preset_needs_its_kind_of_cluster_and_its_pod_security_level(preset: Preset, named: str) -> None:
    (found,) = problems("# A key.\nkey: 1\n", [preset])
    assert found.startswith("presets/b.yaml: ")
    assert named in found
