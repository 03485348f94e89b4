"""One page as text or JSON, for scripts."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from gputally.commands.top.board import Line, Size, board
from gputally.commands.top.page import Page
from gputally.commands.top.state import State

WIDTH = 120
MOST_ROWS = 2000
_OTHER_LINES = 12


def page_json(page: Page) -> str:
    """Every number in base units, as in the metrics; null is "not supported" or "not known"."""
    rows = [{"kind": type(row).__name__.removesuffix("Row").lower(), **asdict(row)} for row in page.rows]
    document = {**asdict(page), "rows": rows}
    return json.dumps(document, indent=2, ensure_ascii=False)


def page_lines(state: State, page: Page, *, width: int = WIDTH, unicode: bool = True) -> Iterator[str]:
    """The screen, as long as it needs to be, without keys."""
    size = Size(width, len(page.rows) + _OTHER_LINES)
    for line in board(state, page, None, size, unicode=unicode)[:-2]:
        if text := text_of(line):
            yield text


def text_of(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()
