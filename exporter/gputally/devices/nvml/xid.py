"""XID errors, from NVML's event set: a thread waits for them and counts them."""

import ctypes
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gputally.devices.nvml.library import TIMEOUT, ErrorMeaning, Library, meaning_of
from gputally.model import Labelled

FILLS = frozenset({"xid_errors", "xid_last_timestamp_seconds"})
_XID_CRITICAL_ERROR = 0x8  # nvmlEventTypeXidCriticalError
_WAIT_MILLISECONDS = 500
_PAUSE_SECONDS = 1.0
_JOIN_SECONDS = 0.7


class XidCounts:
    """XIDs by GPU and code since the exporter started. Written by one thread, read by another."""

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
    """Waits for XIDs of these devices until it is stopped or the library is gone."""

    def __init__(self, library: Library, handles: Mapping[str, Any], counts: XidCounts) -> None:
        self._library = library
        self._counts = counts
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._uuids = {_address(handle): uuid for uuid, handle in handles.items()}
        self.watches = self._register(handles)
        if self.watches:
            self._thread = threading.Thread(target=self._listen, name="nvml-events", daemon=True)
            self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def covers(self, handles: Mapping[str, Any]) -> bool:
        """True when it waits for XIDs of all of these, or has tried to."""
        if self.watches and not self.running:
            return False
        return all(self._uuids.get(_address(handle)) == uuid for uuid, handle in handles.items())

    def stop(self) -> None:
        """Stops counting; the thread ends by itself."""
        self._stopping.set()

    def ended(self) -> bool:
        """Waits for the thread's end. False when it hangs in the driver: do not stop the library then."""
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        return not self.running

    def _register(self, handles: Mapping[str, Any]) -> frozenset[str]:
        """The GPUs that report XIDs."""
        nvml = self._library.nvml
        if self._library.function("nvmlEventSetWait_v2") is None:
            return frozenset()
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError as error:
            self._library.count(error.value, "xid_errors")
            return frozenset()
        registered = set()
        for uuid, handle in handles.items():
            try:
                if nvml.nvmlDeviceGetSupportedEventTypes(handle) & _XID_CRITICAL_ERROR:
                    nvml.nvmlDeviceRegisterEvents(handle, _XID_CRITICAL_ERROR, self._events)
                    registered.add(uuid)
            except nvml.NVMLError as error:
                self._library.count(error.value, "xid_errors")
        if not registered:
            self._free()
        return frozenset(registered)

    def _listen(self) -> None:
        nvml = self._library.nvml
        while not self._stopping.is_set():
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, _WAIT_MILLISECONDS)
            except nvml.NVMLError as error:
                if error.value == TIMEOUT:
                    continue
                if meaning_of(error.value) in (ErrorMeaning.GONE, ErrorMeaning.UNSUPPORTED):
                    break
                # With a lost GPU in the event set every wait fails at once: pause between two of them.
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            if event.eventType & _XID_CRITICAL_ERROR and not self._stopping.is_set():
                uuid = self._uuids.get(_address(event.device))
                if uuid is not None:
                    self._counts.add(uuid, int(event.eventData))
        self._free()

    def _free(self) -> None:
        with suppress(
            self._library.nvml.NVMLError
        ):  # the library may have gone first, and its event set with it
            self._library.nvml.nvmlEventSetFree(self._events)


def _address(handle: Any) -> int:
    """Two handles of one device are two Python objects with one address."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
