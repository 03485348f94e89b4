"""Records every call of the driver's library: its name, return code, duration and arguments after the call.

All of pynvml, and the reader's own calls of C functions, get a function by `_nvmlGetFunctionPointer`: that
covers them all, whatever the reader calls. What may identify a host is replaced before it is stored, and
bytes whose meaning is not known are left out.

An argument is stored as its value; {"handle": number} is a GPU, sample or event set, {"time": number} a
number of 64 bits, and {"out": value} what the call has filled.
"""

import ctypes
import math
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from gputally.commands.capture.masks import Masks

MOST_CALLS = 200_000
MOST_VALUES = 2_000_000
HIDDEN = "hidden"
_NOT_RECORDED = ("nvmlErrorString",)  # returns a text that is the same on every host


class RowLayout(NamedTuple):
    """The rows of a buffer that the reader passes as bytes."""

    row: struct.Struct
    pids: tuple[int, ...] = ()
    """The columns with pids."""
    keys: int = 0
    """The number of leading columns that are the question, not the answer."""


_PROCESSES = RowLayout(struct.Struct("=I4xQII"), pids=(0,))
LAYOUTS = {
    **{
        f"nvmlDeviceGet{kind}RunningProcesses_v{version}": _PROCESSES
        for kind in ("Compute", "Graphics", "MPSCompute")
        for version in (2, 3)
    },
    "nvmlDeviceGetProcessUtilization": RowLayout(struct.Struct("=I4xQIIII"), pids=(0,)),
    "nvmlDeviceGetAccountingPids": RowLayout(struct.Struct("=I"), pids=(0,)),
    "nvmlDeviceGetAccountingStats": RowLayout(struct.Struct("=IIQQQI20x")),
    "nvmlDeviceGetAccountingStats_v2": RowLayout(struct.Struct("=IIIIQI4xQQQQ"), pids=(0,), keys=1),
    "nvmlDeviceGetFieldValues": RowLayout(struct.Struct("=IIqqIIQ"), keys=2),
}
"""nvml.h: nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlAccountingStats_t, nvmlFieldValue_t."""
_PID_ARGUMENTS = {"nvmlDeviceGetAccountingStats": 1, "nvmlSystemGetProcessName": 0}
_PLAIN_TEXTS = re.compile(
    r"nvml(?:Device|System)Get(?:Name|VbiosVersion|DriverVersion|NVMLVersion|Inforom\w*|BoardPartNumber)"
)


class Recorder:
    """The calls so far. Threads of the reader may call at the same time."""

    def __init__(self, nvml: Any, masks: Masks) -> None:
        self.calls: list[dict[str, Any]] = []
        self.by, self.round = "reader", 0
        """Who calls now, and in which round."""
        self.left_out = 0
        """The number of calls beyond the limit."""
        self._nvml = nvml
        self._masks = masks
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}
        self._under_way: dict[int, tuple[str, float]] = {}
        self._values = 0
        self._began = time.monotonic()

    @contextmanager
    def recording(self) -> Iterator[None]:
        original = self._nvml._nvmlGetFunctionPointer

        def find(name: str) -> Any:
            try:
                function = original(name)
            except self._nvml.NVMLError as error:
                self._store(name, int(error.value), time.monotonic(), ())
                raise
            return function if name in _NOT_RECORDED else _Recorded(self, name, function)

        self._nvml._nvmlGetFunctionPointer = find
        try:
            yield
        finally:
            self._nvml._nvmlGetFunctionPointer = original

    def under_way(self) -> list[dict[str, Any]]:
        """The calls that have not returned yet, and for how long; waiting for events is normal."""
        now = time.monotonic()
        return [
            {"call": name, "seconds": round(now - began, 3)}
            for name, began in tuple(self._under_way.values())
            if not name.startswith("nvmlEventSetWait")
        ]

    def call(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        began = time.monotonic()
        this = threading.get_ident()
        self._under_way[this] = name, began
        try:
            code = function(*arguments)
        finally:
            del self._under_way[this]
        self._store(name, code, began, arguments)
        return code

    def _store(self, name: str, code: object, began: float, arguments: Sequence[Any]) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self.calls) >= MOST_CALLS or self._values >= MOST_VALUES:
                self.left_out += 1
                return
            self.calls.append(
                {
                    "by": self.by,
                    "round": self.round,
                    "at": round(began - self._began, 6),
                    "us": round((now - began) * 1e6),
                    "call": name,
                    "code": code if isinstance(code, int) else None,
                    "arguments": [self._argument(name, place, arguments) for place in range(len(arguments))],
                }
            )

    def _argument(self, call: str, place: int, arguments: Sequence[Any]) -> Any:
        argument = arguments[place]
        if _PID_ARGUMENTS.get(call) == place:
            return self._masks.pid(int(getattr(argument, "value", argument)))
        if isinstance(argument, ctypes.c_uint64):
            return {"time": argument.value}
        filled = getattr(argument, "_obj", argument)  # byref
        if isinstance(filled, ctypes.Array) and filled._type_ is ctypes.c_char:
            layout = LAYOUTS.get(call)
            if layout is not None:
                return {"out": self._rows(layout, filled, _count(arguments))}
            return {"out": self._buffer(call, filled.value)}
        value = self._value("", filled)
        return value if filled is argument and not isinstance(filled, ctypes.Array) else {"out": value}

    def _rows(self, layout: RowLayout, buffer: Any, count: int | None) -> list[list[int]]:
        fits = len(buffer) // layout.row.size
        rows = fits if count is None else min(fits, count)
        found = []
        for row in layout.row.iter_unpack(memoryview(buffer)[: rows * layout.row.size]):
            self._values += len(row)
            found.append([self._masks.pid(one) if at in layout.pids else one for at, one in enumerate(row)])
        return found

    def _buffer(self, call: str, content: bytes) -> Any:
        self._values += 1
        text = content.decode("utf-8", "replace")
        if call == "nvmlSystemGetProcessName":
            return self._masks.name(text)
        if call == "nvmlDeviceGetSerial":
            return self._masks.serial(text)
        if call == "nvmlDeviceGetUUID":
            return self._masks.uuid(text)
        return self._masks.text(text) if _PLAIN_TEXTS.fullmatch(call) else HIDDEN

    def _value(self, name: str, value: Any) -> Any:
        """Of an argument, a field of a struct or an entry of an array."""
        self._values += 1
        if isinstance(value, ctypes._Pointer | ctypes.c_void_p):
            return {"handle": self._handle(value)}
        if isinstance(value, ctypes._SimpleCData):
            value = value.value
        if isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array):
            return self._compound(name, value)
        if isinstance(value, bytes | str):
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            return self._masks.text(text) if name.startswith("busId") else HIDDEN if text else ""
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        return self._masks.pid(value) if name == "pid" and value else value

    def _compound(self, name: str, value: Any) -> Any:
        if isinstance(value, ctypes.Structure):
            return self._struct(value)
        if isinstance(value, ctypes.Union):
            return int.from_bytes(bytes(value)[:8], "little")
        if value._type_ in (ctypes.c_char, ctypes.c_ubyte, ctypes.c_byte):
            return HIDDEN
        entries = [self._value(name, one) for one in value]
        while entries and not _any(entries[-1]):
            entries.pop()
        return entries

    def _struct(self, value: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"type": type(value).__name__}
        for name, kind, *_ in value._fields_:
            # pynvml's structs decode bytes on access, which may fail.
            raw = ctypes.Structure.__getattribute__(value, name)
            fields[name] = None if kind is ctypes.c_char_p else self._value(name, raw)
        if "busId" in fields:  # nvmlPciInfo_t
            fields |= {"domain": 0, "bus": self._masks.bus(fields["bus"]), "device": 0}
        return fields

    def _handle(self, pointer: Any) -> int:
        """A number for each address; 0 for none."""
        address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
        return self._handles.setdefault(address, len(self._handles) + 1) if address else 0


class _Recorded:
    """A C function whose calls are recorded."""

    _recorder: Recorder
    _name: str
    _function: Any

    def __init__(self, recorder: Recorder, name: str, function: Any) -> None:
        self.__dict__.update(_recorder=recorder, _name=name, _function=function)

    def __call__(self, *arguments: Any) -> Any:
        return self._recorder.call(self._name, self._function, arguments)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._function, name, value)  # restype, argtypes


def _count(arguments: Sequence[Any]) -> int | None:
    """The number of rows, where a call returns it."""
    for argument in arguments:
        counted = getattr(argument, "_obj", None)
        if isinstance(counted, ctypes.c_uint):
            return counted.value
    return None


def _any(entry: Any) -> bool:
    if isinstance(entry, dict):
        return any(_any(value) for name, value in entry.items() if name != "type")
    return bool(entry)
