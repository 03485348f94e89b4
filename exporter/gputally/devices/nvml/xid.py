"""XID errors, from NVML's event sets: a thread per GPU waits for them and counts them.

One event set for all GPUs would be useless while one of them is lost: every wait then fails (GPU_IS_LOST).
"""

import ctypes
import threading
import time
from contextlib import suppress
from typing import Any

from gputally.devices.nvml.library import SUCCESS, TIMEOUT, ErrorMeaning, Library, address, meaning_of
from gputally.model import Labelled

FILLS = frozenset({"xid_errors", "xid_last_timestamp_seconds"})
_XID_CRITICAL_ERROR = 0x8  # nvmlEventTypeXidCriticalError
WAIT_SECONDS = 2.0  # each wake-up costs CPU time, and each stop of the library waits for the end of a wait
_PAUSE_SECONDS = 1.0


class XidCounts:
    """XIDs by GPU and code since the exporter started. Written and read by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, tuple[int, float]]] = {}

    def add(self, uuid: str, xid: int) -> None:
        with self._lock:
            codes = self._counts.setdefault(uuid, {})
            count, _ = codes.get(xid, (0, 0.0))
            codes[xid] = (count + 1, time.time())

    def read(self, uuid: str) -> tuple[Labelled, Labelled]:
        """The number of errors of each code, and the time of the last of each."""
        with self._lock:
            codes = dict(self._counts.get(uuid, {}))
        return (
            {(str(xid),): count for xid, (count, _) in codes.items()},
            {(str(xid),): moment for xid, (_, moment) in codes.items()},
        )


class XidWatch:
    """Waits for XIDs of one GPU until it is stopped or the library is gone."""

    def __init__(self, library: Library, uuid: str, handle: Any, counts: XidCounts) -> None:
        self._library = library
        self._uuid = uuid
        self._device = address(handle)
        self._counts = counts
        self._stopping = threading.Event()
        self._lost = False
        self._thread: threading.Thread | None = None
        self.registered = self._register(handle)
        """Whether the GPU reports XIDs."""
        if self.registered:
            self._thread = threading.Thread(target=self._listen, name="nvml-events", daemon=True)
            self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def covers(self, handle: Any) -> bool:
        """Whether it waits for XIDs of this device, which responds, or the device does not support it."""
        return self._device == address(handle) and (
            not self.registered or (self.running and not self._lost and not self._stopping.is_set())
        )

    def stop(self) -> None:
        """Stops counting; the thread ends by itself."""
        self._stopping.set()

    def ended(self, wait_seconds: float) -> bool:
        """Waits for the thread's end. False when it hangs in the driver: do not stop the library then."""
        if self._thread is not None:
            self._thread.join(wait_seconds)
        return not self.running

    def _register(self, handle: Any) -> bool:
        nvml = self._library.nvml
        # pynvml's wrapper raises an exception at each timeout, which is most of the cost of waiting.
        self._wait = self._library.function("nvmlEventSetWait_v2")
        if self._wait is None:
            return False
        try:
            if not nvml.nvmlDeviceGetSupportedEventTypes(handle) & _XID_CRITICAL_ERROR:
                return False
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            self._library.judge(error.value, "xid_errors")
            return False
        try:
            nvml.nvmlDeviceRegisterEvents(handle, _XID_CRITICAL_ERROR, self._events)
        except nvml.NVMLError as error:
            self._free()
            self._library.judge(error.value, "xid_errors")
            return False
        return True

    def _listen(self) -> None:
        event = self._library.nvml.c_nvmlEventData_t()
        arguments = (self._events, ctypes.byref(event), ctypes.c_uint(round(WAIT_SECONDS * 1000)))
        while not self._stopping.is_set():
            code = int(self._wait(*arguments))
            if code == TIMEOUT:
                continue
            if code != SUCCESS:
                meaning = meaning_of(code)
                if meaning in (ErrorMeaning.GONE, ErrorMeaning.UNSUPPORTED):
                    break
                self._lost = meaning is ErrorMeaning.LOST
                # Every wait fails at once: pause between two of them.
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            if event.eventType & _XID_CRITICAL_ERROR and not self._stopping.is_set():
                self._counts.add(self._uuid, int(event.eventData))
        self._free()

    def _free(self) -> None:
        # The library may have gone first, and its event set with it.
        with suppress(self._library.nvml.NVMLError):
            self._library.nvml.nvmlEventSetFree(self._events)
