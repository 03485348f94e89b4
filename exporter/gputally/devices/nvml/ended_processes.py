"""The driver's accounting: what each process used in its life, also one that came and went between two looks.

The driver lists those that have ended first, the one that ended last at the end of them. Of a pid that is
used again it keeps only the last process, which then moves to the end.
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
    """Reads who ended on any device; remembers, of what its driver still keeps, whom it has told."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._pids = Entries(PID)
        self._stats = ctypes.create_string_buffer(STATS.size)
        self._told: dict[str, dict[int, int]] = {}  # uuid -> pid -> start, in the driver's order

    def ended(
        self, query: Query, uuid: str, mode: bool | None, present: Set[int]
    ) -> tuple[AccountedProcess, ...] | None:
        """The processes that ended since the last look; None when the device does not account now.

        `present` are on the device now: there is no need to ask about them.
        """
        if not mode:
            if mode is False:
                self._told[uuid] = {}  # with the mode the driver drops what it has kept
            return None
        pids = self._list(query)
        if pids is None:
            return None
        told = self._told.get(uuid)
        now_told = _still_in_order(told or {}, pids)
        ended = []
        for pid in dict.fromkeys(pids):
            # One that is listed twice has ended before, and come back.
            if pid in now_told or (pid in present and pids.count(pid) == 1):
                continue
            stats = self._ask(query, pid)
            if stats is None and told is None:
                now_told[pid] = _UNREADABLE
            if stats is None or stats.is_running:
                continue
            now_told[pid] = stats.started_us
            if told is not None and told.get(pid) != stats.started_us:
                ended.append((pid, stats))
        self._told[uuid] = now_told
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

    def _ask(self, query: Query, pid: int) -> _Stats | None:
        """The statistics of one process; None when there are none any more, or they cannot be read."""
        function = self._library.function("nvmlDeviceGetAccountingStats")
        if function is None:
            return None
        code = int(function(query.handle, pid, self._stats))
        if code != SUCCESS:
            self._library.judge(code, _FIELD)
            return None
        return _Stats(*STATS.unpack(self._stats))

    def _process(self, pid: int, stats: _Stats) -> AccountedProcess | None:
        """None when it cannot be true."""
        ran_us = stats.ran_ms * 1000
        latest_us = time.time_ns() // 1000 + FUTURE_US
        if stats.gpu_percent > 100 or stats.started_us == 0 or stats.started_us + ran_us > latest_us:
            self._drop()
            return None
        peak_bytes = None if stats.peak_bytes == _NO_MEMORY else stats.peak_bytes
        return AccountedProcess(pid, stats.started_us, ran_us, stats.gpu_percent / 100, peak_bytes)

    def _drop(self) -> None:
        self._library.errors[_FIELD, "implausible"] += 1


def _still_in_order(told: dict[int, int], pids: list[int]) -> dict[int, int]:
    """Those of the told that the driver still lists, and has not moved: a moved pid is another process."""
    in_order = iter(told)  # looking for one in it takes all before it out
    return {pid: told[pid] for pid in pids if pid in told and pid in in_order}
