"""values.yaml with its comments: what each key is, and what its default does not tell."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

_SECTION = re.compile(r"# -- (.+?) -*")
_SCHEMA = "@schema "


@dataclass(frozen=True, slots=True)
class Value:
    """One key. A map without an @schema line of its own is a group: its keys are fixed, and values too."""

    path: tuple[str, ...]
    line: int
    description: str
    schema: Mapping[str, Any]
    """What its @schema lines say."""
    default: Any
    children: tuple["Value", ...] = ()

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def dotted(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Section:
    """The keys below a line `# -- Title ---`, and the comment between that line and an empty one."""

    title: str
    text: str
    values: list[Value] = field(default_factory=list)


def values(text: str) -> tuple[Value, ...]:
    """The keys of the first level. Raises ValueError for an @schema line that is no map."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return _children(node, (), yaml.safe_load(text), text.splitlines())


def sections(text: str) -> list[Section]:
    """Keys above the first line with a title are in none: they are not for users."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _SECTION.fullmatch(line)]
    found = [Section(_title(lines[start]), _below(lines, start)) for start in starts]
    for value in values(text):
        before = [section for section, start in zip(found, starts, strict=True) if start < value.line]
        if before:
            before[-1].values.append(value)
    return found


def every(tree: Sequence[Value]) -> Iterator[Value]:
    """All keys of all levels, in the order of the file."""
    for value in tree:
        yield value
        yield from every(value.children)


def _children(node: yaml.Node, path: tuple[str, ...], default: Any, lines: list[str]) -> tuple[Value, ...]:
    return tuple(_value(key, node, path, default, lines) for key, node in node.value)


def _value(
    key: yaml.ScalarNode, node: yaml.Node, above: tuple[str, ...], defaults: Any, lines: list[str]
) -> Value:
    path, default = (*above, key.value), defaults[key.value]
    comment = _comment(lines, key.start_mark.line, key.start_mark.column)
    schema: dict[str, Any] = {}
    for line in comment:
        if line.startswith(_SCHEMA):
            schema |= _flow_map(line.removeprefix(_SCHEMA), ".".join(path))
    is_group = isinstance(node, yaml.MappingNode) and node.value and not schema
    return Value(
        path=path,
        line=key.start_mark.line,
        description=" ".join(line for line in comment if not line.startswith(_SCHEMA)),
        schema=schema,
        default=default,
        children=_children(node, path, default, lines) if is_group else (),
    )


def _comment(lines: list[str], key_line: int, column: int) -> list[str]:
    """The comment directly above a key, indented as it is, without its marks."""
    found: list[str] = []
    for line in reversed(lines[:key_line]):
        if not line.startswith(f"{' ' * column}#") or _SECTION.fullmatch(line):
            break
        found.insert(0, line.strip().lstrip("#").strip())
    return found


def _flow_map(text: str, place: str) -> dict[str, Any]:
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{place}: @schema is no YAML: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{place}: @schema is no map, as in {{minimum: 0}}")
    return read


def _title(line: str) -> str:
    found = _SECTION.fullmatch(line)
    return found[1] if found else ""


def _below(lines: list[str], start: int) -> str:
    found: list[str] = []
    for line in lines[start + 1 :]:
        if not line.startswith("#"):
            # Right above a key, it is the key's.
            return " ".join(found) if not line else ""
        found.append(line.lstrip("# "))
    return ""
