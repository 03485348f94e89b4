"""The parser of the command line: its flags are those of declared settings.

It takes 0.9 MiB, so that the exporter forgets it before it serves: see `forget`.
"""

import argparse
import os
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from functools import partial
from typing import Any, NoReturn

from gputally.flags import Settings, boolean, duration


class OneLineParser(argparse.ArgumentParser):
    """Reports an error in one line and exits with 2."""

    def __init__(self, **more: Any) -> None:
        super().__init__(formatter_class=partial(argparse.HelpFormatter, width=_columns() - 2), **more)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (try {self.prog} --help)\n")


def _columns() -> int:
    """The width of the terminal. argparse would import shutil, with 0.8 MiB of compression libraries."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80


def server_url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL: http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """The parser as a `type` of argparse, with its own error message."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it takes {error}") from None

    return parsed


def add_flags(parser: argparse.ArgumentParser, settings: Settings, names: Sequence[str] = ()) -> None:
    """Add the flags of all settings, or of those named."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in fields(settings.kind):
        if names and one.name not in names:
            continue
        meta = one.metadata
        if meta["group"] not in groups:
            groups[meta["group"]] = parser.add_argument_group(settings.groups[meta["group"]])
        groups[meta["group"]].add_argument(
            meta["flag"], dest=one.name, default=None, help=_help_text(one, settings), **_argument_form(one)
        )
    if not names:
        _add_aliases(parser, settings)


def _add_aliases(parser: argparse.ArgumentParser, settings: Settings) -> None:
    by_name = {one.name: one for one in fields(settings.kind)}
    group = parser.add_argument_group("names of other tools")
    for alias in settings.aliases:
        if alias.flags:
            one = by_name[alias.setting]
            note = f", {alias.note}" if alias.note else ""
            variable = f" [{alias.env}]" if alias.env else ""
            group.add_argument(
                *alias.flags,
                dest=alias.flags[0],
                default=None,
                help=f"{one.metadata['flag']}{note} ({alias.tool}){variable}",
                **_argument_form(one, alias.parse),
            )


def _argument_form(one: Field[Any], parse: Callable[[str], Any] | None = None) -> dict[str, Any]:
    if one.metadata["parse"] is boolean:
        return {"nargs": "?", "const": "true", "metavar": "true|false"}
    parse = parse or one.metadata["parse"]
    return {"metavar": one.metadata["metavar"] or parse.__name__.upper()}


def _help_text(one: Field[Any], settings: Settings) -> str:
    shown = "" if one.default in (None, "", False, ()) else f"; default {_shown(one)}"
    only_variables = [alias.env for alias in settings.aliases_of(one) if not alias.flags]
    variables = ", ".join([one.metadata["env"], *only_variables])
    return f"{one.metadata['help']}{shown} [{variables}]".replace("%", "%%")


def _shown(one: Field[Any]) -> str:
    if one.metadata["parse"] is boolean:
        return str(one.default).lower()
    return f"{one.default:g}s" if one.metadata["parse"] is duration else str(one.default)
