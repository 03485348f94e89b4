"""`gputally enable-accounting`: has the NVIDIA driver keep account of every process, on every GPU."""

import sys
from enum import Enum, auto
from typing import Any, TextIO

from gputally.devices.nvml.library import NO_PERMISSION, ErrorMeaning, Library, LibraryGone, meaning_of
from gputally.model import Unavailable

_ON = 1
_NOT_ROOT = (
    "only root may turn accounting on",
    "run `gputally enable-accounting` as root, or in a privileged init container",
)
_NO_GPU = (
    "the driver shows no GPU",
    "in a container: run it with the NVIDIA runtime and NVIDIA_VISIBLE_DEVICES=all",
)


class _Outcome(Enum):
    DONE = auto()
    """It is on, or this GPU cannot account and nothing is to be done about that."""
    DENIED = auto()
    FAILED = auto()


def enable_accounting(out: TextIO) -> int:
    """Writes a line about each GPU; what stands in the way goes to stderr. The exit status.

    A GPU that does not support accounting is no failure, not even when it is the only one: a pod whose init
    container this is would never start on a node in MIG mode.
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
            text += ", until nobody uses the GPU: persistence mode is off (nvidia-smi -pm 1)"
        outcome = _Outcome.DONE
    except nvml.NVMLError as error:
        text, outcome = _explain(library, error.value)
    print(f"{name}: {text}", file=out)
    return outcome


def _persists(nvml: Any, handle: Any) -> bool:
    """Without persistence mode the driver lets go of the GPU after its last user, and forgets its modes."""
    try:
        return bool(nvml.nvmlDeviceGetPersistenceMode(handle) == _ON)
    except nvml.NVMLError:
        return True  # there is no such mode here


def _explain(library: Library, code: int) -> tuple[str, _Outcome]:
    if code == NO_PERMISSION:
        return "accounting is off", _Outcome.DENIED
    match meaning_of(code):
        case ErrorMeaning.GONE:
            raise LibraryGone(code)
        case ErrorMeaning.UNSUPPORTED:
            return "accounting is not supported by this card or driver, or in MIG mode", _Outcome.DONE
        case ErrorMeaning.LOST:
            return "the GPU does not answer", _Outcome.FAILED
        case _:
            return f"accounting could not be turned on: {library.error_name(code)}", _Outcome.FAILED


def _fail(reason: str, fix: str) -> int:
    sys.stderr.write(f"gputally enable-accounting: {reason}\n")
    if fix:
        sys.stderr.write(f"fix: {fix}\n")
    return 1
