"""Values in the output of rocm-smi and amd-smi: pure functions, for the spelling of every version.

All of rocm-smi's values are texts; amd-smi has numbers, or a value beside its unit. They
raise only `Malformed`, for a value that cannot be parsed.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gputally.devices import Errors

Parsed = TypeVar("Parsed")

_NOTHING = {"", "n/a", "na", "none", "unknown", "unsupported", "not supported"}
_QUANTITY = re.compile(r"\(?([+-]?[0-9]{1,20}(?:\.[0-9]{1,12})?) ?([A-Za-z/%°]{0,8})\)?")
_PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_DEVICE_ID = re.compile(r"0x([0-9a-f]{1,4})")
_AMD = 0x1002
_MOST = 1e20
_UNRECOGNIZED = "unrecognized arguments:"

# Unit in lower case -> (times, divided by). amd-smi's MB are MiB.
_SCALES = {
    "": (1, 1),
    "%": (1, 100),
    "b": (1, 1),
    "kb": (2**10, 1),
    "mb": (2**20, 1),
    "gb": (2**30, 1),
    "w": (1, 1),
    "uw": (1, 10**6),
    "c": (1, 1),
    "°c": (1, 1),
    "mhz": (10**6, 1),
    "ghz": (10**9, 1),
    "j": (1, 1),
    "uj": (1, 10**6),
    "gt/s": (1, 1),
}


class Malformed(ValueError):
    """A value that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """A line of `--showpids`, which has only the number of GPUs of a process."""

    pid: int
    name: str | None
    gpus: int | None
    memory_used_bytes: int | None


def find_json(text: str) -> Any:
    """The first whole JSON document in an output that may have warnings around it; None without one."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"^[ \t]*(?=[{\[])", text, re.MULTILINE):
        try:
            document, _ = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        return document
    return None


def is_nothing(value: object) -> bool:
    """Whether the text stands for no value: not supported by this GPU or driver."""
    return value is None or (
        isinstance(value, str) and (value.strip().lower() in _NOTHING or value.strip().startswith("N/A"))
    )


def parse_text(value: object) -> str | None:
    """A name or a number that is only a name."""
    if is_nothing(value) or isinstance(value, (dict, list)):
        return None
    return str(value).strip()


def parse_quantity(value: object, unit: str = "") -> int | float | None:
    """A number in base units; `unit` is that of a number without one."""
    if isinstance(value, dict):
        inner = value.get("unit")
        return parse_quantity(value.get("value"), inner if isinstance(inner, str) and inner else unit)
    if is_nothing(value):
        return None
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match is None:
            raise Malformed(value)
        number = float(match[1]) if "." in match[1] else int(match[1])
        return _scaled(number, match[2] or unit)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _MOST:
        raise Malformed(str(type(value)))
    return _scaled(value, unit)


def _scaled(number: int | float, unit: str) -> int | float:
    scale = _SCALES.get(unit.strip().lower())
    if scale is None:
        raise Malformed(unit)
    number *= scale[0]
    return number if scale[1] == 1 else number / scale[1]


def parse_whole(value: object, unit: str = "") -> int | None:
    """A count, or bytes: a quantity without a fraction."""
    number = parse_quantity(value, unit)
    if number is None or isinstance(number, int):
        return number
    if not number.is_integer():
        raise Malformed(repr(value))
    return int(number)


def parse_unique_id(value: object) -> int | None:
    """The GPU's unique id, hexadecimal; amd-smi 6.1 prints the decimal number behind a 0x."""
    text = parse_text(value)
    if text is None:
        return None
    digits = text.lower().removeprefix("0x")
    try:
        number = int(digits, 16) if len(digits) <= 16 else int(digits)
    except ValueError:
        raise Malformed(text) from None
    if not 0 <= number < 2**64:
        raise Malformed(text)
    return number if 0 < number < 2**64 - 1 else None


def parse_device_id(value: object) -> int | None:
    """A PCI device id like 0x740f; None for other texts, and for the vendor's id."""
    match = _DEVICE_ID.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    number = int(match[1], 16) if match else None
    return None if number == _AMD else number


def parse_pci_address(value: object) -> str | None:
    """In the kernel's spelling: lower case, and a domain of four digits or more."""
    text = parse_text(value)
    if text is None:
        return None
    match = _PCI_ADDRESS.fullmatch(text.lower())
    if match is None:
        raise Malformed(text)
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}"


def first_value(
    field: str, values: Iterable[object], parse: Callable[[object], Parsed | None], errors: Errors
) -> Parsed | None:
    """The first value that can be parsed; if there is none, a malformed one is counted."""
    malformed = False
    for value in values:
        try:
            parsed = parse(value)
        except Malformed:
            malformed = True
            continue
        if parsed is not None:
            return parsed
    if malformed:
        errors[field, "malformed"] += 1
    return None


def parse_processes(system: Mapping[str, object]) -> tuple[list[ListedProcess], int]:
    """The processes of the tool's "system" part, and the number of malformed lines.

    Such a line is "name, gpus, vram, sdma, cu": a name with blanks has become several words.
    """
    found, malformed = [], 0
    for key, value in system.items():
        pid = key.upper().removeprefix("PID")
        if not key.upper().startswith("PID") or not pid.isdecimal() or not pid.isascii():
            continue
        words = str(value).split(", ")
        if len(words) < 5 or len(pid) > 9 or int(pid) == 0:
            malformed += 1
            continue
        name, (gpus, memory) = " ".join(words[:-4]), words[-4:-2]
        try:
            found.append(ListedProcess(int(pid), parse_text(name), parse_whole(gpus), parse_whole(memory)))
        except Malformed:
            malformed += 1
    return found, malformed


def parse_unrecognized(stderr: str) -> frozenset[str]:
    """The options that this version of the tool does not support, from its error message."""
    for line in stderr.splitlines():
        _, complaint, options = line.partition(_UNRECOGNIZED)
        if complaint:
            return frozenset(word for word in options.split() if word.startswith("--"))
    return frozenset()
