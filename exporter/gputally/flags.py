"""The machinery of settings: how one is declared, read from a flag or the environment, and shown in --help.

A parser of a value raises ValueError with a text that says what is allowed.
"""

import argparse
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Seconds, from 5s, 500ms, 1m or a bare number of seconds."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if not 0.1 <= seconds <= 86400:
        raise ValueError("a duration from 100ms to 24h, such as 5s, 500ms or 1m")
    return seconds


def milliseconds(text: str) -> float:
    """Seconds, from a bare number of milliseconds."""
    try:
        return duration(f"{text}ms")
    except ValueError:
        raise ValueError("a number of milliseconds, from 100 to 86400000") from None


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError("a port from 0 to 65535 (0 takes a free one)")
    return int(text)


def url_path(text: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]+", text):
        raise ValueError("a path that starts with /, such as /metrics")
    return text


def gateway_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text):
        raise ValueError("a URL without a login, such as http://pushgateway:9091")
    return text


def web_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", text):
        raise ValueError("a URL without parameters, such as https://grafana.example.com")
    return text.rstrip("/")


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1024:
        raise ValueError("a whole number from 1 to 1024")
    return int(text)


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def timestamp(text: str) -> float:
    """Seconds since 1970."""
    if not re.fullmatch(r"\d{1,11}(\.\d+)?", text):
        raise ValueError("seconds since 1970, such as 1760000000")
    return float(text)


def boolean(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("true or false")


def path_or_none(text: str) -> Path | None:
    return None if text == "none" else Path(text)


def directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise ValueError("a directory that exists")
    return Path(text)


def existing_file(text: str) -> Path:
    if not Path(text).is_file():
        raise ValueError("a file that exists")
    return Path(text)


def output_file(text: str) -> Path:
    if not text or not Path(text).absolute().parent.is_dir() or Path(text).is_dir():
        raise ValueError("a file in a directory that exists")
    return Path(text)


def names(text: str) -> tuple[str, ...]:
    """Names, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def metric_prefix(text: str) -> str:
    """What names of metrics begin with, without the underscore that follows it."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(?<!_)", text):
        raise ValueError("letters, digits and underscores, such as my_gpu_process")
    return text


def one_of(*allowed: str, also: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], str]:
    """One of the words; `also` are other words for them."""

    def parse(text: str) -> str:
        word = also.get(text.lower(), text.lower())
        if word not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return word

    return parse


def several_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """Words by commas, each once."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(names(text.lower())))
        if not set(words) <= set(allowed):
            raise ValueError("one or more of " + ", ".join(allowed) + ", by commas")
        return words

    return parse


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


class ConfigError(ValueError):
    """A setting has a value that is not allowed; the text names both."""


def setting(
    default: Any,
    flag: str,
    help: str,
    parse: Callable[[str], Any] = str,
    *,
    group: str = "serving",
    metavar: str | None = None,
) -> Any:
    """A field of a dataclass of settings. Its environment variable is GPUTALLY_ and the name of the flag."""
    return field(
        default=default,
        metadata={
            "flag": flag,
            "help": help,
            "parse": parse,
            "group": group,
            "env": "GPUTALLY_" + flag[2:].replace("-", "_").upper(),
            "metavar": metavar,
        },
    )


@dataclass(frozen=True, slots=True)
class Alias:
    """Flags or an environment variable of another tool that set one of our settings."""

    tool: str
    setting: str
    """The name of the field."""
    flags: tuple[str, ...] = ()
    env: str = ""
    parse: Callable[[str], Any] | None = None
    """The parser of the value, if it differs from that of the setting."""
    note: str = ""
    least: bool = False
    """That tool has several settings for one of ours: the smallest value applies."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A dataclass of settings with the titles of its groups and the names that other tools use."""

    kind: type[Any]
    groups: Mapping[str, str]
    aliases: Sequence[Alias] = ()

    def aliases_of(self, one: Field[Any]) -> list[Alias]:
        return [alias for alias in self.aliases if alias.setting == one.name]


class OneLineParser(argparse.ArgumentParser):
    """Reports an error in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (try {self.prog} --help)\n")


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


def read_values(
    settings: Settings, arguments: argparse.Namespace, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The settings that were given: by flag, else by environment variable. Raises ConfigError."""
    values: dict[str, Any] = {}
    for one in fields(settings.kind):
        aliases = settings.aliases_of(one)
        given = _from_flags(one, aliases, arguments) or _from_environment(one, aliases, environment)
        if given:
            values[one.name] = _agreed(one, given)
    return values


@dataclass(frozen=True, slots=True)
class _Given:
    """The text given for a setting, and the flag or variable that holds it."""

    name: str
    text: str
    alias: Alias | None = None

    def value(self, one: Field[Any]) -> Any:
        parse = (self.alias and self.alias.parse) or one.metadata["parse"]
        try:
            return parse(self.text)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {self.text!r} is not allowed; it takes {error}") from None


def _from_flags(one: Field[Any], aliases: Sequence[Alias], arguments: argparse.Namespace) -> list[_Given]:
    """Every flag of the setting that is on the command line."""
    ours = getattr(arguments, one.name, None)
    given = [] if ours is None else [_Given(one.metadata["flag"], ours)]
    for alias in aliases:
        theirs = getattr(arguments, alias.flags[0], None) if alias.flags else None
        if theirs is not None:
            given.append(_Given(alias.flags[-1], theirs, alias))
    return given


def _from_environment(
    one: Field[Any], aliases: Sequence[Alias], environment: Mapping[str, str]
) -> list[_Given]:
    """The first variable that is set: ours, then those of other tools."""
    names = [(one.metadata["env"], None), *((alias.env, alias) for alias in aliases)]
    return [_Given(name, environment[name], alias) for name, alias in names if environment.get(name)][:1]


def _agreed(setting: Field[Any], given: Sequence[_Given]) -> Any:
    values = [text.value(setting) for text in given]
    if all(text.alias is not None and text.alias.least for text in given):
        return min(values)
    for text, value in zip(given, values, strict=True):
        if value != values[0]:
            raise ConfigError(
                f"{given[0].name} {given[0].text} and {text.name} {text.text} contradict each other: "
                "both set the same value"
            )
    return values[0]
