"""Replacements of what identifies a host, its GPUs and its users. Equal ones stay equal in all files."""

import os
import re
from collections.abc import Hashable
from typing import TypeVar

_UUID = re.compile(r"\b(GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_PCI = re.compile(r"\b([0-9a-f]{4}(?:[0-9a-f]{4})?):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])\b", re.IGNORECASE)
_SERIAL = re.compile(r"(?=.*\d)[0-9A-Za-z-]{4,}")
_FIRST_PID = 100_000  # not to be taken for a real one of the same text
_SHORTEST_NAME = 3

_Key = TypeVar("_Key", bound=Hashable)


class Masks:
    """What was replaced so far, by kind."""

    def __init__(self, host_name: str | None = None) -> None:
        self._uuids: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        self._serials: dict[str, int] = {}
        self._pids: dict[int, int] = {}
        self._names: dict[str, int] = {}
        host = os.uname().nodename if host_name is None else host_name
        self._host = re.compile(rf"\b{re.escape(host)}\b") if len(host) >= _SHORTEST_NAME else None

    def text(self, text: str) -> str:
        """UUIDs, PCI addresses, known serial numbers and the host's name in any text."""
        text = _UUID.sub(lambda match: self._uuid(match[0], match[1] or ""), text)
        text = _PCI.sub(lambda match: self._address(match[1], match[0]), text)
        for serial, number in self._serials.items():
            text = text.replace(serial, f"serial-{number}")
        return self._host.sub("host", text) if self._host else text

    def uuid(self, text: str) -> str:
        """A UUID, whatever its form."""
        prefix = re.match(r"(?:GPU-|MIG-)?", text)
        swept = self.text(text)
        return swept if swept != text or not text else self._uuid(text, prefix[0] if prefix else "")

    def serial(self, text: str) -> str:
        """A serial number; what is none, such as [N/A], stays."""
        if not _SERIAL.fullmatch(text):
            return text
        return f"serial-{_number(self._serials, text)}"

    def pid(self, pid: int) -> int:
        return _FIRST_PID + _number(self._pids, pid) if pid else 0

    def name(self, text: str) -> str:
        """The name of a process; what is none, such as [Not Found], stays."""
        if not text or (text.startswith("[") and text.endswith("]")):
            return text
        return f"process-{_number(self._names, text)}"

    def bus(self, number: int) -> int:
        """The number of a PCI bus, as in the replaced address."""
        return _number(self._addresses, f"{number:02x}")

    def _uuid(self, uuid: str, prefix: str) -> str:
        return f"{prefix}{_number(self._uuids, uuid.lower()):08x}-0000-4000-8000-000000000000"

    def _address(self, domain: str, address: str) -> str:
        bus = address.lower().split(":")[1]
        return f"{'0' * len(domain)}:{_number(self._addresses, bus):02X}:00.0"


def _number(known: dict[_Key, int], one: _Key) -> int:
    return known.setdefault(one, len(known) + 1)
