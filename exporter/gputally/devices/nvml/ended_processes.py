"""The driver's accounting: statistics of ended processes, even of those that lived between two samples.

The driver lists ended processes first, in the order in which they ended. Of a reused pid it keeps only the
last process, which then moves to the end.
"""

import ctypes
import struct
import time
from collections.abc import Set
from typing import NamedTuple

from gputally.devices.nvml.library import SUCCESS, Library, Query
from gputally.devices.nvml.process_lists import HIGHEST_PID, Entries
from gputally.devices.nvml.process_samples import FUTURE_US
from gputally.model import AccountedProcess

PID = struct.Struct("=I")
# nvmlAccountingStats_t
STATS = struct.Struct("=IIQQQI20x")
_FIELD = "accounted"
_NO_MEMORY = 2**64 - 1
_UNREADABLE = -1  # in place of a start


class _Stats(NamedTuple):
    """STATS, field by field. While the process runs, `ran_ms` is 0."""

    gpu_percent: int
    memory_percent: int
    peak_bytes: int
    ran_ms: int
    started_us: int
    is_running: int


class Accounting:
    """Reads the ended processes of all devices, each process once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._pids = Entries(PID)
        self._stats = ctypes.create_string_buffer(STATS.size)
        self._reported: dict[str, dict[int, int]] = {}  # uuid -> pid -> start, in the driver's order

    def ended(
        self, query: Query, uuid: str, mode: bool | None, present: Set[int]
    ) -> tuple[AccountedProcess, ...] | None:
        """The processes that ended since the last sample; None while the device's accounting is off.

        `present` are the pids on the device now, which need no query.
        """
        if not mode:
            if mode is False:
                self._reported[uuid] = {}  # turning the mode off deletes the driver's list
            return None
        pids = self._list(query)
        if pids is None:
            return None
        reported = self._reported.get(uuid)
        now_reported = _still_in_order(reported or {}, pids)
        ended = []
        for pid in dict.fromkeys(pids):
            # A pid that is listed twice has ended, and is used again.
            if pid in now_reported or (pid in present and pids.count(pid) == 1):
                continue
            stats = self._read_stats(query, pid)
            if stats is None and reported is None:
                now_reported[pid] = _UNREADABLE
            if stats is None or stats.is_running:
                continue
            now_reported[pid] = stats.started_us
            if reported is not None and reported.get(pid) != stats.started_us:
                ended.append((pid, stats))
        self._reported[uuid] = now_reported
        return tuple(process for pid, stats in ended if (process := self._process(pid, stats)) is not None)

    def _list(self, query: Query) -> list[int] | None:
        function = self._library.function("nvmlDeviceGetAccountingPids")
        if function is None:
            return None
        code, entries = self._pids.fill(lambda count: function(query.handle, count, self._pids.buffer))
        if code != SUCCESS:
            self._library.judge(code, _FIELD)
            return None
        if entries is None:
            self._drop()
            return None
        pids = []
        for (pid,) in entries:
            if 0 < pid <= HIGHEST_PID:
                pids.append(pid)
            else:
                self._drop()
        return pids

    def _read_stats(self, query: Query, pid: int) -> _Stats | None:
        """The statistics of one process; None when they are gone or cannot be read."""
        function = self._library.function("nvmlDeviceGetAccountingStats")
        if function is None:
            return None
        code = int(function(query.handle, pid, self._stats))
        if code != SUCCESS:
            self._library.judge(code, _FIELD)
            return None
        return _Stats(*STATS.unpack(self._stats))

    def _process(self, pid: int, stats: _Stats) -> AccountedProcess | None:
        """None when it is implausible."""
        ran_us = stats.ran_ms * 1000
        latest_us = time.time_ns() // 1000 + FUTURE_US
        if stats.gpu_percent > 100 or stats.started_us == 0 or stats.started_us + ran_us > latest_us:
            self._drop()
            return None
        peak_bytes = None if stats.peak_bytes == _NO_MEMORY else stats.peak_bytes
        return AccountedProcess(pid, stats.started_us, ran_us, stats.gpu_percent / 100, peak_bytes)

    def _drop(self) -> None:
        self._library.errors[_FIELD, "implausible"] += 1


def _still_in_order(reported: dict[int, int], pids: list[int]) -> dict[int, int]:
    """The reported processes that the driver lists in the same order: a moved pid is another process."""
    in_order = iter(reported)  # a search in an iterator consumes all before the match
    return {pid: reported[pid] for pid in pids if pid in reported and pid in in_order}
