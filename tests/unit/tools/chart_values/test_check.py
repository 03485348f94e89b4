"""What is said of a values.yaml and of presets that lack something."""

import pytest

from tools.chart_values.check import problems

GOOD = {"a.yaml": "# For A.\n# Pod Security: restricted\nexporter: {}\n"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("key: 1", "key: nothing says what it is"),
        ("# A group.\ngroup:\n  key: 1", "group.key: nothing says what it is"),
        ("# A key.\nkey: []", "key: a list, and nothing says of what"),
        ("# A key.\nkey: {}", "key: a map, and nothing says of what"),
        ("# A key.\nkey:", "key: has no default"),
        ("# A key.\n# @schema {patern: a}\nkey: a", "key: @schema: patern is none of the words"),
        ("# A key.\n# @schema {items: {minimun: 1}}\nkey: []", "key: @schema: minimun is none of the words"),
        ('# A key.\n# @schema {$ref: "#/$defs/prot"}\nkey: 1', "key: @schema: #/$defs/prot is not defined"),
        (
            '# A key.\n# @schema {$ref: "#/$defs/port", minimum: 9}\nkey: 1',
            "key: @schema: what stands beside",
        ),
        ("# A key.\n# @schema [1]\nkey: 1", "key: @schema is no map"),
        ("# A key.\nkey: 1\n# Again.\nkey: 2", "key: stands there 2 times"),
    ],
)
def test_each_fault_of_the_values_is_one_line_with_its_place(lines: str, said: str) -> None:
    (found,) = problems(f"{lines}\n", GOOD)
    assert found.startswith(f"values.yaml: {said}")


def test_a_name_that_is_the_same_everywhere_needs_no_comment() -> None:
    assert problems('# @schema {$ref: "#/$defs/tolerations"}\ntolerations: []\n', GOOD) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exporter: {}\n# For A.\n# Pod Security: baseline\n", "its first line does not say for whom it is"),
        ("# For A.\nexporter: {}\n", "no line `# Pod Security: LEVEL`"),
    ],
)
def test_a_preset_says_for_whom_it_is_and_what_pod_security_thinks(text: str, said: str) -> None:
    assert problems("# A key.\nkey: 1\n", {"b.yaml": text}) == [f"presets/b.yaml: {said}"]
