"""values.yaml and the presets with their comments."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tools.chart_values.source import every, read_preset, sections, values, without_comments

KEYS = st.sampled_from(["a", "b", "camelCase", "x1"])
WORDS = st.text("abc XYZ:{}`\"'.,-", min_size=1).map(lambda text: " ".join(text.split())).filter(bool)
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=5)
LEAVES = st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT, max_size=2)
TREES = st.dictionaries(KEYS, LEAVES | st.dictionaries(KEYS, LEAVES | st.dictionaries(KEYS, LEAVES)))


def written(tree: dict[str, object], words: str, depth: int = 0) -> str:
    """The tree in the style of values.yaml: above each key a comment that starts with its name."""
    margin, lines = "  " * depth, []
    for key, value in tree.items():
        lines.append(f"{margin}# {key} {words}\n")
        if isinstance(value, dict) and value:
            lines.append(f"{margin}{key}:\n{written(value, words, depth + 1)}")
        else:
            lines.append(f"{margin}{key}: {yaml.safe_dump(value, default_flow_style=True, width=10_000)}")
    return "".join(lines).replace("\n...\n", "\n")


@given(TREES, WORDS)
def test_every_key_has_its_own_comment_and_its_default(tree: dict[str, object], words: str) -> None:
    text = written(tree, words)
    found = [*every(values(text))] if tree else []
    assert {value.path: value.default for value in found} == dict(paths(tree))
    assert [value.description for value in found] == [f"{value.name} {words}" for value in found]


def paths(tree: dict[str, object], above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    found: list[tuple[tuple[str, ...], object]] = []
    for key, value in tree.items():
        found.append(((*above, key), value))
        if isinstance(value, dict):
            found += paths(value, (*above, key))
    return found


@given(TREES)
def test_the_defaults_without_comments_are_the_same_values(tree: dict[str, object]) -> None:
    assert yaml.safe_load(without_comments(written(tree, "x") or "{}")) == tree


def test_schema_lines_are_not_part_of_the_description_and_add_up() -> None:
    (value,) = values(
        '# How long.\n# @schema {minimum: 0}\n# Really.\n# @schema {pattern: "^a: {b}$"}\nwait: 5\n'
    )
    assert value.description == "How long. Really."
    assert value.schema == {"minimum": 0, "pattern": "^a: {b}$"}


def test_a_comment_with_an_empty_line_below_or_another_indentation_is_not_the_description() -> None:
    text = "# Of the file.\n\na:\n  # Of no key.\n\n  b: 1\n# Too far left.\n  c: 2\n"
    assert [value.description for value in every(values(text))] == ["", "", ""]


def test_a_map_with_a_schema_of_its_own_is_one_value_and_no_group() -> None:
    text = '# Labels.\n# @schema {$ref: "#/$defs/labels"}\nlabels: {a: b}\n# Group.\ngroup: {a: b}\n'
    labels, group = values(text)
    assert (labels.children, labels.default) == ((), {"a": "b"})
    assert [child.dotted for child in group.children] == ["group.a"]


@pytest.mark.parametrize("line", ["[1]", "{a: ", "minimum"])
def test_a_schema_line_that_is_not_a_map_is_an_error_with_the_path(line: str) -> None:
    with pytest.raises(ValueError, match=r"a\.b: @schema is not"):
        values(f"a:\n  # @schema {line}\n  b: 1\n")


def test_keys_belong_to_the_section_above_them() -> None:
    text = (
        "# Internal.\nversion: 1\n\n"
        "# -- First: a `title` ----\n# What all of them are.\n# And more.\n\n# Key.\na: 1\nb: 2\n\n"
        "# -- Second ---\n# Of the key c.\nc: 3\n"
    )
    found = sections(text)
    assert [(part.title, part.text) for part in found] == [
        ("First: a `title`", "What all of them are. And more."),
        ("Second", ""),
    ]
    assert [[value.name for value in part.values] for part in found] == [["a", "b"], ["c"]]
    assert found[1].values[0].description == "Of the key c."


def test_the_usual_description_of_a_name_is_used_without_a_comment() -> None:
    labels, other = values('# @schema {$ref: "#/$defs/labels"}\npodLabels: {}\nother: 1\n')
    assert (labels.description, other.description) == ("Labels of the pods.", "")


@pytest.mark.parametrize(
    ("text", "target", "level"),
    [
        ("# Clusters of A.\n# More.\n#\n# Pod Security: baseline\nkey: 1\n", "Clusters of A.", "baseline"),
        ("key: 1\n# Too late.\n# Pod Security: baseline\n", "", "baseline"),
        ("key: 1\n", "", ""),
    ],
)
def test_a_preset_has_its_kind_of_cluster_and_its_pod_security_level(
    text: str, target: str, level: str
) -> None:
    preset = read_preset("a.yaml", text)
    assert (preset.name, preset.target, preset.pod_security) == ("a.yaml", target, level)
