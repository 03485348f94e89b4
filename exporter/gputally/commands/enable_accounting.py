"""`gputally enable-accounting`: turns on accounting mode of the NVIDIA driver, on every GPU."""

import sys
from enum import Enum, auto
from typing import Any, TextIO

from gputally.devices.nvml.library import NO_PERMISSION, ErrorMeaning, Library, LibraryGone, meaning_of
from gputally.devices.vendors import NVIDIA
from gputally.model import Unavailable
from gputally.printable import print_lines

_ON = 1
_NOT_ROOT = (
    "only root may turn accounting on",
    "run `gputally enable-accounting` as root, or in a privileged init container",
)
_NO_GPU = ("the driver lists no GPU", NVIDIA.no_gpus_fix)


class _Outcome(Enum):
    DONE = auto()
    """It is on, or this GPU does not support it."""
    DENIED = auto()
    FAILED = auto()


def enable_accounting(out: TextIO) -> int:
    """Writes a line for each GPU, and errors to stderr; returns the exit status.

    A GPU that does not support accounting is not a failure, even if it is the only one: otherwise a pod with
    this init container would never start on a node in MIG mode.
    """
    library = Library()
    try:
        library.start()
        outcomes = [_turn_on(library, index, out) for index in range(_count(library))]
    except Unavailable as error:
        return _fail(error.reason, error.fix)
    except LibraryGone as error:
        unavailable = library.unavailable(error.code)
        return _fail(unavailable.reason, unavailable.fix)
    finally:
        library.stop()
    if not outcomes:
        return _fail(*_NO_GPU)
    if _Outcome.DENIED in outcomes:
        return _fail(*_NOT_ROOT)
    return 1 if _Outcome.FAILED in outcomes else 0


def _count(library: Library) -> int:
    try:
        return int(library.nvml.nvmlDeviceGetCount())
    except library.nvml.NVMLError as error:
        raise LibraryGone(error.value) from error


def _turn_on(library: Library, index: int, out: TextIO) -> _Outcome:
    nvml = library.nvml
    name = f"gpu {index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = f"gpu {index} {nvml.nvmlDeviceGetUUID(handle)}"
        if nvml.nvmlDeviceGetAccountingMode(handle) == _ON:
            text = "accounting is on already"
        else:
            nvml.nvmlDeviceSetAccountingMode(handle, _ON)
            text = "accounting is on"
        if not _persists(nvml, handle):
            text += " until the last process leaves the GPU: persistence mode is off "
            text += f"(fix: {NVIDIA.persistence_command})"
        outcome = _Outcome.DONE
    except nvml.NVMLError as error:
        text, outcome = _explain(library, error.value)
    print_lines([f"{name}: {text}"], out)
    return outcome


def _persists(nvml: Any, handle: Any) -> bool:
    """Without persistence mode the driver releases the GPU after its last process, and resets its modes."""
    try:
        return bool(nvml.nvmlDeviceGetPersistenceMode(handle) == _ON)
    except nvml.NVMLError:
        return True  # the mode is not supported


def _explain(library: Library, code: int) -> tuple[str, _Outcome]:
    if code == NO_PERMISSION:
        return "accounting is off", _Outcome.DENIED
    match meaning_of(code):
        case ErrorMeaning.GONE:
            raise LibraryGone(code)
        case ErrorMeaning.UNSUPPORTED:
            return "accounting is not supported by this GPU or driver, or in MIG mode", _Outcome.DONE
        case ErrorMeaning.LOST:
            return "the GPU is lost", _Outcome.FAILED
        case _:
            return f"accounting could not be turned on: {library.error_name(code)}", _Outcome.FAILED


def _fail(reason: str, fix: str) -> int:
    print_lines([f"gputally enable-accounting: {reason}", *([f"fix: {fix}"] if fix else [])], sys.stderr)
    return 1
