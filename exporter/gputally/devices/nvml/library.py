"""The library itself: starting and stopping it, and what each of its error codes means to us.

pynvml is imported when the reader first looks, so that nobody else pays for it.
"""

import _ctypes
from collections import Counter
from contextlib import suppress
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

# What NVML puts where it has no number, as 32 and as 64 bits.
NOT_AVAILABLE = frozenset({2**32 - 1, 2**64 - 1})


class DeviceLost(Exception):
    """The GPU does not answer any more; the others may."""


class LibraryGone(Exception):
    """The driver went away under the library: it has to be started anew."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ErrorMeaning(Enum):
    """What an error code says of the question that got it."""

    UNSUPPORTED = auto()
    """This card or driver will not answer it, however often it is asked."""
    ABSENT = auto()
    """There is no such thing now."""
    LOST = auto()
    GONE = auto()
    FAILED = auto()
    """It went wrong this time."""


_VERDICTS = {
    2: ErrorMeaning.UNSUPPORTED,  # INVALID_ARGUMENT: a sensor, fan, link or clock that the card does not have
    3: ErrorMeaning.UNSUPPORTED,  # NOT_SUPPORTED
    FUNCTION_NOT_FOUND: ErrorMeaning.UNSUPPORTED,
    22: ErrorMeaning.UNSUPPORTED,  # VGPU_ECC_NOT_SUPPORTED
    25: ErrorMeaning.UNSUPPORTED,  # ARGUMENT_VERSION_MISMATCH: the driver is older than the struct
    26: ErrorMeaning.UNSUPPORTED,  # DEPRECATED
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
    1: ("the driver went away while it was being read", "nvidia-smi"),
    NO_PERMISSION: (
        "no permission to open the NVIDIA device files",
        "ls -l /dev/nvidiactl /dev/nvidia0  # run as a user who may read and write them",
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
        "restart the container  # with the NVIDIA runtime, which allows it the devices",
    ),
    LIB_RM_VERSION_MISMATCH: (
        "the driver's library and its kernel module are of different versions: it was upgraded but not "
        "reloaded",
        "reboot  # or stop all users of the GPUs, then: "
        "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia",
    ),
    UNKNOWN: (
        'the driver answered "unknown error" when NVML started: in a container, it has often lost the '
        "devices to a daemon-reload on the host",
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
        """Raises Unavailable when there is no driver to talk to."""
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
            with suppress(self.nvml.NVMLError):  # the driver may have gone first
                self.nvml.nvmlShutdown()

    def abandon(self) -> None:
        """Start anew next time without a stop: a thread hangs in it, and needs it to stay."""
        self.running = False
        self._may_unload = False

    def judge(self, code: int, field: str) -> ErrorMeaning:
        """What the code means; counts it when it is an error, raises when device or library are gone."""
        verdict = self.count(code, field)
        if verdict is ErrorMeaning.LOST:
            raise DeviceLost
        if verdict is ErrorMeaning.GONE:
            raise LibraryGone(code)
        return verdict

    def count(self, code: int, field: str) -> ErrorMeaning:
        """What the code means, for those who go on whatever it is; counted when it is an error."""
        verdict = meaning_of(code)
        if verdict is ErrorMeaning.FAILED:
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

    def ask(self, field: str, function: str, *arguments: Any) -> Any:
        """Ask the library something that is about no single device; None when it cannot tell."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError as error:
            self.judge(error.value, field)
            return None

    def error_name(self, code: int) -> str:
        """NVML's own name of the code, in small letters: no_permission, timeout, unknown."""
        if not self._names:
            prefix = "NVML_ERROR_"
            self._names = {
                value: name.removeprefix(prefix).lower()
                for name, value in vars(self.nvml).items()
                if name.startswith(prefix)
            }
        return self._names.get(code, f"code_{code}")

    def unavailable(self, code: int) -> Unavailable:
        """What to tell a person when the library as a whole says this."""
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
        """Make pynvml load the library's file anew. Only while it is not initialised."""
        if (loaded := self.nvml.nvmlLib) is not None:
            self.nvml.nvmlLib = None
            self.nvml._nvmlGetFunctionPointer_cache.clear()
            _ctypes.dlclose(loaded._handle)


class Query:
    """Asks one device. Remembers what it cannot tell, and does not ask that again."""

    def __init__(self, library: Library, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self._unsupported: set[tuple[Any, ...]] = set()

    def ask(self, field: str, function: str, *arguments: Any, absent: Any = None) -> Any:
        """What pynvml's function returns for this device; None when it cannot tell.

        `absent` is returned instead when the driver says that there is no such thing now. `field` is
        what an error is counted under. Raises DeviceLost and LibraryGone.
        """
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
        """Like `ask`, for functions that return one whole number."""
        value = self.ask(field, function, *arguments)
        return None if value is None or value in NOT_AVAILABLE else int(value)

    def first(self, field: str, functions: tuple[str, ...], *arguments: Any) -> int | None:
        """The number from the first of these functions that can tell: the newer one stands first."""
        for function in functions:
            if (value := self.number(field, function, *arguments)) is not None:
                return value
        return None

    def can(self, *question: Any) -> bool:
        """False when the device has said that it does not support this."""
        return question not in self._unsupported

    def judge(self, code: int, field: str, question: tuple[Any, ...]) -> ErrorMeaning:
        """For calls that are made without pynvml's wrapper: the same judgement, the same memory."""
        verdict = self.library.judge(code, field)
        if verdict is ErrorMeaning.UNSUPPORTED:
            self._unsupported.add(question)
        return verdict

    def forget(self) -> None:
        """Ask everything again: the device was changed so that it may tell more, or less."""
        self._unsupported.clear()


def some(values: dict[Any, Any]) -> dict[Any, Any] | None:
    """The values that are known, or None when none is."""
    known = {key: value for key, value in values.items() if value is not None}
    return known or None
