"""A driver's library that answers from `nvml.json` of a capture, in the place of the real one below pynvml.

A question is a function with its handle, numbers and structs. Times are not part of it: they depend on the
clock. The answers to a question come in the order of the capture, each round its own; the last is repeated.
"""

import ctypes
import json
import tarfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pynvml

from gputally.commands.capture.nvml_calls import HIDDEN, LAYOUTS

_SUCCESS = 0
_NOT_FOUND = 6
_FUNCTION_NOT_FOUND = 13
_WAIT_SECONDS = 0.02

Question = tuple[Any, ...]
Answers = defaultdict[Question, defaultdict[int, list[Any]]]


def read_nvml(file: Path) -> dict[str, Any]:
    with tarfile.open(file) as archive:
        found = archive.extractfile("nvml.json")
        assert found is not None
        recorded: dict[str, Any] = json.load(found)
    return recorded


class Replay:
    """Answers like the driver in round `round` of the capture."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.round = 1
        self._lock = threading.Lock()
        self._answers: Answers = defaultdict(lambda: defaultdict(list))
        self._given: defaultdict[Question, int] = defaultdict(int)
        self._functions = set()
        for call in recorded["calls"]:
            if call["code"] == _FUNCTION_NOT_FOUND and not call["arguments"]:
                continue  # the driver does not have it
            self._functions.add(call["call"])
            if call["by"] == "reader":
                self._add(call)

    def _add(self, call: dict[str, Any]) -> None:
        name, arguments = call["call"], call["arguments"]
        layout = LAYOUTS.get(name)
        if layout is None or not layout.keys:
            self._answers[_recorded_question(name, arguments)][call["round"]].append(call)
            return
        (rows,) = (one["out"] for one in arguments if isinstance(one, dict) and "out" in one)
        for row in rows:
            question = (name, arguments[0]["handle"], *row[: layout.keys])
            self._answers[question][call["round"]].append((call["code"], row))

    @contextmanager
    def playing(self) -> Iterator["Replay"]:
        with (
            mock.patch.object(pynvml, "_nvmlGetFunctionPointer", self._find),
            mock.patch.object(pynvml, "_LoadNvmlLibrary", return_value=None),
        ):
            yield self

    def _find(self, name: str) -> Any:
        if name not in self._functions:
            raise pynvml.NVMLError(_FUNCTION_NOT_FOUND)  # type: ignore[no-untyped-call]
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> int:
        if name.startswith("nvmlEventSetWait"):
            threading.Event().wait(_WAIT_SECONDS)  # as long as no event arrives, it blocks
        layout = LAYOUTS.get(name)
        if layout is not None and layout.keys:
            return self._fill_rows(name, arguments)
        answer = self._next(_question(name, arguments))
        if answer is None:
            return _SUCCESS if "Free" in name or name == "nvmlShutdown" else _NOT_FOUND
        for argument, value in zip(arguments, answer["arguments"], strict=True):
            if isinstance(value, dict) and "out" in value:
                _fill(name, getattr(argument, "_obj", argument), value["out"])
        code: int = answer["code"]
        return code

    def _fill_rows(self, name: str, arguments: tuple[Any, ...]) -> int:
        """Each row of the buffer is a question of its own."""
        row_of = LAYOUTS[name].row
        buffer = next(one for one in arguments if isinstance(one, ctypes.Array))
        code = _SUCCESS
        for at in range(0, len(buffer), row_of.size):
            asked = row_of.unpack_from(buffer, at)[: LAYOUTS[name].keys]
            answer = self._next((name, _address(arguments[0]), *asked))
            if answer is None:
                return _NOT_FOUND
            code, row = answer
            row_of.pack_into(buffer, at, *row)
        return code

    def _next(self, question: Question) -> Any:
        with self._lock:
            rounds: dict[int, list[Any]] = self._answers.get(question) or {}
            last = max((one for one in rounds if one <= self.round), default=None)
            if last is None:
                return None
            place = self._given[(*question, last)]
            self._given[(*question, last)] += 1
            return rounds[last][min(place, len(rounds[last]) - 1)]


def _recorded_question(name: str, arguments: list[Any]) -> Question:
    question: list[Any] = [name]
    for argument in arguments:
        match argument:
            case {"out": {"type": kind, **fields}}:
                handles = [
                    one["handle"] for one in fields.values() if isinstance(one, dict) and "handle" in one
                ]
                question += [kind, *handles]
            case {"out": _}:
                question.append("out")
            case {"time": _}:
                question.append("time")
            case {"handle": number}:
                question.append(("handle", number))
            case _:
                question.append(argument)
    return tuple(question)


def _question(name: str, arguments: tuple[Any, ...]) -> Question:
    question: list[Any] = [name]
    for argument in arguments:
        filled = getattr(argument, "_obj", argument)
        if isinstance(filled, ctypes.Structure):
            parts = [ctypes.Structure.__getattribute__(filled, field[0]) for field in filled._fields_]
            handles = [_address(part) for part in parts if isinstance(part, ctypes._Pointer)]
            question += [type(filled).__name__, *handles]
        elif filled is not argument or isinstance(filled, ctypes.Array):
            question.append("out")
        elif isinstance(argument, ctypes.c_uint64):
            question.append("time")
        elif isinstance(argument, ctypes._Pointer | ctypes.c_void_p):
            question.append(("handle", _address(argument)))
        else:
            question.append(getattr(argument, "value", argument))
    return tuple(question)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _fill(name: str, target: Any, value: Any) -> None:
    """Writes a recorded value where the call expects it."""
    if value == HIDDEN or value is None:
        return
    if isinstance(target, ctypes._Pointer | ctypes.c_void_p):
        ctypes.memmove(ctypes.byref(target), ctypes.byref(ctypes.c_void_p(value["handle"])), 8)
    elif isinstance(target, ctypes.Structure):
        for field, kind, *_ in target._fields_:
            if kind is not ctypes.c_char_p:
                part = kind.from_buffer(target, getattr(type(target), field).offset)
                _fill(name, part, value[field])
    elif isinstance(target, ctypes.Union):
        ctypes.memmove(ctypes.byref(target), value.to_bytes(8, "little"), ctypes.sizeof(target))
    elif isinstance(target, ctypes.Array):
        _fill_array(name, target, value)
    else:
        target.value = float(value) if isinstance(value, str) else value


def _fill_array(name: str, target: Any, value: Any) -> None:
    if isinstance(value, str):
        target.value = value.encode()
    elif name in LAYOUTS and target._type_ is ctypes.c_char:
        for at, row in enumerate(value):
            LAYOUTS[name].row.pack_into(target, at * LAYOUTS[name].row.size, *row)
    else:
        for at, one in enumerate(value):
            if isinstance(target[at], ctypes.Structure):
                _fill(name, target[at], one)
            else:
                target[at] = one
