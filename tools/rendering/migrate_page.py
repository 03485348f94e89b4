"""The tables of docs/migrate.md: metrics and flags of other tools, with the GPUTally equivalents."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields

from gputally.config import ALIASES, Config
from gputally.flags import Alias
from gputally.metrics.compat import PROFILES, Row, load_rows
from tools.rendering.markdown import put

PAGE = "docs/migrate.md"


def stamp(
    text: str,
    profiles: Sequence[str] = tuple(PROFILES),
    rows: Callable[[str], Sequence[Row]] = load_rows,
    aliases: Sequence[Alias] = ALIASES,
) -> str:
    """The page with new tables between their marks: one per profile, and one for the flags."""
    for profile in profiles:
        text = put(metrics_table(rows(profile)), f"rows {profile}", PAGE, text)
    return put(flags_table(aliases), "flags", PAGE, text)


def metrics_table(rows: Iterable[Row]) -> str:
    lines = ["| metric | type | meaning | GPUTally metric |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_metric_line, rows)])


def _metric_line(row: Row) -> str:
    here = f"`{row.ours}`" if row.ours else "none"
    help = row.help.replace("|", r"\|")
    return f"| `{row.name}` | {row.kind.value} | {help} | {here} |"


def flags_table(aliases: Iterable[Alias]) -> str:
    lines = ["| tool | its flag or variable | GPUTally flag |", "|---|---|---|"]
    return "\n".join([*lines, *map(_flag_line, sorted(aliases, key=lambda alias: alias.tool.lower()))])


def _flag_line(alias: Alias) -> str:
    ours = {setting.name: setting.metadata["flag"] for setting in fields(Config)}
    there = ", ".join(f"`{name}`" for name in (*alias.flags, alias.env) if name)
    note = f", {alias.note}" if alias.note else ""
    return f"| {alias.tool} | {there}{note} | `{ours[alias.setting]}` |"
