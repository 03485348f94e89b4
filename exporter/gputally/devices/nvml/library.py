"""NVML as a library: start and stop, the meaning of its error codes, and queries of one device.

pynvml is imported at the first sample: other readers do not need its memory.
"""

import _ctypes
import ctypes
from collections import Counter
from contextlib import suppress
from copy import copy
from enum import Enum, auto
from typing import Any

from gputally.model import Unavailable

SUCCESS = 0
NO_PERMISSION = 4
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999

# NVML's "not available", in 32 and in 64 bits.
NOT_AVAILABLE = frozenset({2**32 - 1, 2**64 - 1})


class DeviceLost(Exception):
    """The GPU is lost; the others may work."""


class LibraryGone(Exception):
    """The driver was unloaded: the library has to be started again."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ErrorMeaning(Enum):
    """The meaning of an error code for the query that returned it."""

    UNSUPPORTED = auto()
    """This GPU or driver does not support it in its present state."""
    DENIED = auto()
    """The exporter has not the permission."""
    ABSENT = auto()
    """There is no such object now."""
    LOST = auto()
    GONE = auto()
    FAILED = auto()
    """It failed this time."""


_VERDICTS = {
    2: ErrorMeaning.UNSUPPORTED,  # INVALID_ARGUMENT: a sensor, fan, link or clock that the GPU does not have
    3: ErrorMeaning.UNSUPPORTED,  # NOT_SUPPORTED
    FUNCTION_NOT_FOUND: ErrorMeaning.UNSUPPORTED,
    22: ErrorMeaning.UNSUPPORTED,  # VGPU_ECC_NOT_SUPPORTED
    25: ErrorMeaning.UNSUPPORTED,  # ARGUMENT_VERSION_MISMATCH: the driver is older than the struct
    26: ErrorMeaning.UNSUPPORTED,  # DEPRECATED
    NO_PERMISSION: ErrorMeaning.DENIED,
    6: ErrorMeaning.ABSENT,  # NOT_FOUND
    21: ErrorMeaning.ABSENT,  # NO_DATA
    15: ErrorMeaning.LOST,  # GPU_IS_LOST
    16: ErrorMeaning.LOST,  # RESET_REQUIRED
    28: ErrorMeaning.LOST,  # GPU_NOT_FOUND
    1: ErrorMeaning.GONE,  # UNINITIALIZED
    9: ErrorMeaning.GONE,  # DRIVER_NOT_LOADED
    LIBRARY_NOT_FOUND: ErrorMeaning.GONE,
    LIB_RM_VERSION_MISMATCH: ErrorMeaning.GONE,
}


def meaning_of(code: int) -> ErrorMeaning:
    return _VERDICTS.get(code, ErrorMeaning.FAILED)


_WHY_NOT = {
    1: ("the driver was unloaded while it was being read", "nvidia-smi"),
    NO_PERMISSION: (
        "no permission to open the NVIDIA device files",
        "ls -l /dev/nvidiactl /dev/nvidia0  # run as a user with read and write permission",
    ),
    9: (
        "the NVIDIA kernel driver is not loaded, or /dev/nvidiactl is not in this container",
        "modprobe nvidia  # in a container: docker run --gpus all, or runtimeClassName: nvidia",
    ),
    LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found: the NVIDIA driver is not installed, or not mounted into this "
        "container",
        "nvidia-smi  # to test the host's driver; in a container use the NVIDIA runtime (docker run --gpus "
        "all, or runtimeClassName: nvidia) with NVIDIA_VISIBLE_DEVICES=all",
    ),
    17: (
        "the operating system denies access to the NVIDIA devices (a device cgroup)",
        "restart the container  # with the NVIDIA runtime, which allows the devices",
    ),
    LIB_RM_VERSION_MISMATCH: (
        "the driver's library and its kernel module are of different versions: it was upgraded but not "
        "reloaded",
        "reboot  # or stop all users of the GPUs, then: "
        "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia",
    ),
    UNKNOWN: (
        'the driver returned "unknown error" when NVML started: often a daemon-reload on the host has '
        "removed the container's access to the devices",
        "restart the container  # on a bare host: dmesg | grep NVRM",
    ),
}


class Library:
    """NVML in this process. `nvml` is the pynvml module once `start` has returned."""

    def __init__(self) -> None:
        self.nvml: Any = None
        self.errors: Counter[tuple[str, str]] = Counter()
        self.running = False
        self._may_unload = True
        self._names: dict[int, str] = {}

    def start(self) -> None:
        """Raises Unavailable when NVML does not start."""
        if self.nvml is None:
            try:
                import pynvml  # noqa: PLC0415
            except ModuleNotFoundError as error:
                raise Unavailable(
                    "the Python package nvidia-ml-py is not installed", "pip install nvidia-ml-py"
                ) from error
            self.nvml = pynvml
        code = self._initialise()
        if code == LIB_RM_VERSION_MISMATCH and self._may_unload:
            # The driver may have been upgraded since this process loaded the old one's library.
            self._unload()
            code = self._initialise()
        if code != SUCCESS:
            raise self.unavailable(code)
        self.running = True

    def stop(self) -> None:
        if self.running:
            self.running = False
            with suppress(self.nvml.NVMLError):  # the driver may be unloaded already
                self.nvml.nvmlShutdown()

    def abandon(self) -> None:
        """Makes the next start skip the stop: a thread hangs in the library, which must stay loaded."""
        self.running = False
        self._may_unload = False

    def for_one_gpu(self) -> "Library":
        """The same library with its own count of errors: GPUs are read by different threads."""
        other = copy(self)
        other.errors = Counter()
        return other

    def judge(self, code: int, field: str) -> ErrorMeaning:
        """The meaning of the code. Counts an error; raises when the device is lost or the library is gone."""
        verdict = self.count(code, field)
        if verdict is ErrorMeaning.LOST:
            raise DeviceLost
        if verdict is ErrorMeaning.GONE:
            raise LibraryGone(code)
        return verdict

    def count(self, code: int, field: str) -> ErrorMeaning:
        """The meaning of the code. Counts an error; never raises."""
        verdict = meaning_of(code)
        if verdict in (ErrorMeaning.FAILED, ErrorMeaning.DENIED):
            self.errors[field, self.error_name(code)] += 1
        return verdict

    def function(self, *names: str) -> Any:
        """The first of these C functions that the driver's library has, or None."""
        for name in names:
            try:
                return self.nvml._nvmlGetFunctionPointer(name)
            except self.nvml.NVMLError as error:
                if error.value != FUNCTION_NOT_FOUND:
                    raise LibraryGone(error.value) from error
        return None

    def call(self, field: str, function: str, *arguments: Any) -> Any:
        """The result of a function that takes no device; None when it fails."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError as error:
            self.judge(error.value, field)
            return None

    def error_name(self, code: int) -> str:
        """NVML's name of the code in lower case: no_permission, timeout, unknown."""
        if not self._names:
            prefix = "NVML_ERROR_"
            self._names = {
                value: name.removeprefix(prefix).lower()
                for name, value in vars(self.nvml).items()
                if name.startswith(prefix)
            }
        return self._names.get(code, f"code_{code}")

    def unavailable(self, code: int) -> Unavailable:
        """Reason and fix for an error code of the library as a whole."""
        if code in _WHY_NOT:
            return Unavailable(*_WHY_NOT[code])
        return Unavailable(f"NVML did not start: {self.error_name(code)}", "nvidia-smi")

    def _initialise(self) -> int:
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            return int(error.value)
        return SUCCESS

    def _unload(self) -> None:
        """Makes pynvml load the library again while it is not initialised; pynvml has no function for it."""
        if (loaded := self.nvml.nvmlLib) is not None:
            self.nvml.nvmlLib = None
            self.nvml._nvmlGetFunctionPointer_cache.clear()
            _ctypes.dlclose(loaded._handle)


def address(handle: Any) -> int:
    """Two handles of one device are two Python objects with one address."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class Query:
    """Queries one device. Does not repeat queries that are unsupported or denied until `forget`.

    Nothing is queried for the fields `skipped`.
    """

    def __init__(self, library: Library, handle: Any, skipped: frozenset[str] = frozenset()) -> None:
        self.library = library
        self.handle = handle
        self.skipped = skipped
        self._unsupported: set[tuple[Any, ...]] = set()
        self._denied: set[tuple[Any, ...]] = set()

    def call(self, field: str, function: str, *arguments: Any, absent: Any = None) -> Any:
        """The result of pynvml's function for this device; None when it is not supported or fails.

        `absent` is returned instead when the driver has no such object now. Errors are counted under
        `field`. Raises DeviceLost and LibraryGone.
        """
        if field in self.skipped:
            return None
        question = (function, *arguments)
        if question in self._unsupported:
            return None
        nvml = self.library.nvml
        call = getattr(nvml, function, None)
        if call is None:  # this pynvml is older than the function
            self._unsupported.add(question)
            return None
        try:
            return call(self.handle, *arguments)
        except nvml.NVMLError as error:
            verdict = self.judge(error.value, field, question)
            return absent if verdict is ErrorMeaning.ABSENT else None
        except UnicodeDecodeError:  # text from a damaged infoROM
            self.library.errors[field, "garbled"] += 1
            return None

    def number(self, field: str, function: str, *arguments: Any) -> int | None:
        """Like `call`, for functions that return one whole number."""
        value = self.call(field, function, *arguments)
        return None if value is None or value in NOT_AVAILABLE else int(value)

    def first(self, field: str, functions: tuple[str, ...], *arguments: Any) -> int | None:
        """The number from the first function that is supported: newer functions come first."""
        for function in functions:
            if (value := self.number(field, function, *arguments)) is not None:
                return value
        return None

    def can(self, *question: Any) -> bool:
        """False when the device does not support this query, or denied it."""
        return question not in self._unsupported

    @property
    def denied(self) -> bool:
        """Whether the driver denied a query that was not repeated since."""
        return not self._denied.isdisjoint(self._unsupported)

    def judge(self, code: int, field: str, question: tuple[Any, ...]) -> ErrorMeaning:
        """For calls without pynvml's wrapper: classifies the code and remembers an unsupported query.

        A query that is denied again is not counted again.
        """
        if meaning_of(code) is ErrorMeaning.DENIED and question in self._denied:
            verdict = ErrorMeaning.DENIED
        else:
            verdict = self.library.judge(code, field)
        if verdict in (ErrorMeaning.UNSUPPORTED, ErrorMeaning.DENIED):
            self._unsupported.add(question)
        if verdict is ErrorMeaning.DENIED:
            self._denied.add(question)
        return verdict

    def forget(self) -> None:
        """Repeats these queries: the device may have changed, and support or allow them now."""
        self._unsupported.clear()


def some(values: dict[Any, Any]) -> dict[Any, Any] | None:
    """The values that are not None; None when there is none."""
    known = {key: value for key, value in values.items() if value is not None}
    return known or None
