"""The tables of docs/migrate.md: other tools' metrics and flags, and ours for the same."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields

from gputally.aliases import ALIASES, Alias
from gputally.config import Config
from gputally.metrics.compat import PROFILES, Row, load_rows


def stamp(
    text: str,
    profiles: Sequence[str] = tuple(PROFILES),
    rows: Callable[[str], Sequence[Row]] = load_rows,
    aliases: Sequence[Alias] = ALIASES,
) -> str:
    """The page with fresh tables between their marks: one per profile, and one for the flags."""
    for profile in profiles:
        text = _put(metrics_table(rows(profile)), f"rows {profile}", text)
    return _put(flags_table(aliases), "flags", text)


def _put(fresh: str, mark: str, text: str) -> str:
    before, after = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    place = f"{re.escape(before)}.*?{re.escape(after)}"
    stamped, count = re.subn(place, lambda _: f"{before}\n{fresh}\n\n{after}", text, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"docs/migrate.md has {count} places for the table <!-- {mark} -->, not 1")
    return stamped


def metrics_table(rows: Iterable[Row]) -> str:
    lines = ["| there | type | what it says | here |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_metric_line, rows)])


def _metric_line(row: Row) -> str:
    here = f"`{row.ours}`" if row.ours else "none"
    help = row.help.replace("|", r"\|")
    return f"| `{row.name}` | {row.kind.value} | {help} | {here} |"


def flags_table(aliases: Iterable[Alias]) -> str:
    lines = ["| tool | there | here |", "|---|---|---|"]
    return "\n".join([*lines, *map(_flag_line, sorted(aliases, key=lambda alias: alias.tool.lower()))])


def _flag_line(alias: Alias) -> str:
    ours = {setting.name: setting.metadata["flag"] for setting in fields(Config)}
    there = ", ".join(f"`{name}`" for name in (*alias.flags, alias.env) if name)
    note = f", {alias.note}" if alias.note else ""
    return f"| {alias.tool} | {there}{note} | `{ours[alias.setting]}` |"
