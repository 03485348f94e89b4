"""Markdown tables, and their insertion between the marks `<!-- name -->` and `<!-- /name -->`."""

import re
from collections.abc import Sequence
from pathlib import Path


def put(fresh: str, mark: str, page: str, text: str) -> str:
    """Replaces the text between the marks. Raises SystemExit, with the name of the page, unless they exist
    once.
    """
    before, after = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    place = f"{re.escape(before)}.*?{re.escape(after)}"
    stamped, count = re.subn(place, lambda _: f"{before}\n{fresh}\n\n{after}", text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} has {count} marks <!-- {mark} -->, not 1")
    return stamped


def put_into(page: Path, mark: str, fresh: str) -> None:
    """Replaces the text between the marks of that file."""
    page.write_text(put(fresh, mark, str(page), page.read_text()))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; bars in its cells are escaped."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
