"""How the text of a setting becomes its value: each raises ValueError that says what it takes."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

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
