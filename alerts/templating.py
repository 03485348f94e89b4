"""Jinja with the delimiters `[[ value ]]`, `[% statement %]` and `[# comment #]`.

The output contains `{{ }}` of Prometheus and Helm. An unknown name is an error.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import jinja2

TEMPLATES = Path(__file__).with_name("templates")


def _block(text: str, indent: int) -> str:
    """A YAML block scalar, in which PromQL and sentences need no escapes."""
    margin = "\n" + " " * indent
    # If the first line is indented, YAML needs the indentation of the block.
    return ("|2-" if text.startswith(" ") else "|-") + margin + text.replace("\n", margin)


def _flow(items: Iterable[object]) -> str:
    """A YAML list on one line."""
    return json.dumps([str(item) for item in items])


def camel(name: str) -> str:
    """A setting's name in the spelling of Helm values."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


ENVIRONMENT = jinja2.Environment(
    variable_start_string="[[",
    variable_end_string="]]",
    block_start_string="[%",
    block_end_string="%]",
    comment_start_string="[#",
    comment_end_string="#]",
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - nothing here is HTML
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
    loader=jinja2.FileSystemLoader(TEMPLATES),
)
ENVIRONMENT.filters["block"] = _block
ENVIRONMENT.filters["camel"] = camel
ENVIRONMENT.filters["flow"] = _flow
ENVIRONMENT.filters["resources"] = lambda matchers: json.dumps([m.as_resource() for m in matchers])
ENVIRONMENT.filters["quoted"] = json.dumps
"""A JSON string is a valid YAML string."""


def fill(text: str, **values: object) -> str:
    """Raises jinja2.UndefinedError with the name of a missing value."""
    return ENVIRONMENT.from_string(text).render(values)


def render(template: str, **values: object) -> str:
    return ENVIRONMENT.get_template(template).render(values)
