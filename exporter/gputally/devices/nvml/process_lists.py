"""Processes on a device: the driver's process lists, their names and timestamped utilisation samples.

The lists are read into own buffers: pynvml's wrappers allocate the count that the driver returns, which can
be garbage.
"""

import ctypes
import struct
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from gputally.devices.nvml.library import INSUFFICIENT_SIZE, SUCCESS, ErrorMeaning, Library, Query
from gputally.devices.nvml.process_samples import FUTURE_US, BusyLimit, ClockTime, Entry, SampleTimeline
from gputally.devices.nvml.process_sums import ProcessSums
from gputally.model import Process, ProcessSample

# nvmlProcessInfo_t (v2, v3): pid, memory, GPU instance, compute instance
PROCESS = struct.Struct("=I4xQII")
# nvmlProcessUtilizationSample_t: pid, timestamp, SM, memory, encoder, decoder
SAMPLE = struct.Struct("=I4xQIIII")
MOST_ENTRIES = 65536  # no GPU has as many processes: a higher count is garbage
_LISTS = {
    "compute": ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    "graphics": ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
    "mps": ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
}
FILLS = frozenset(
    {
        "processes",
        "Process.name",
        "Process.memory_used_bytes",
        "Process.gpu_instance_id",
        "Process.compute_instance_id",
        "process_samples",
        "ProcessSample.sm_ratio",
        "ProcessSample.memory_ratio",
        "ProcessSample.encoder_ratio",
        "ProcessSample.decoder_ratio",
    }
)
_SAMPLES = "nvmlDeviceGetProcessUtilization"
_NAME_BYTES = 1024
HIGHEST_PID = 4194304  # the kernel's PID_MAX_LIMIT
_NO_INSTANCE = 2**32 - 1
_NO_MEMORY = 2**64 - 1


_ListedProcess = tuple[str, int | None, int, int]  # lists, memory, GPU instance, compute instance


class _ListUnreadable(Exception):
    """The device supports this list, but it cannot be read now."""


class Entries:
    """A buffer for arrays of one struct that grows as needed."""

    def __init__(self, layout: struct.Struct) -> None:
        self._layout = layout
        self._resize(64)

    def _resize(self, entries: int) -> None:
        self._capacity = entries
        self.buffer = ctypes.create_string_buffer(entries * self._layout.size)

    def fill(self, call: Any) -> tuple[int, list[tuple[int, ...]] | None]:
        """The code that `call(count)` returns, and the entries; None when their count is implausible."""
        for _ in range(4):  # processes may start between two calls
            # A driver may count more than it fills in: the last call's entries must not show up.
            ctypes.memset(self.buffer, 0, len(self.buffer))
            count = ctypes.c_uint(self._capacity)
            code = int(call(ctypes.byref(count)))
            if code == SUCCESS:
                if count.value > self._capacity:
                    return code, None
                used = memoryview(self.buffer)[: count.value * self._layout.size]
                return code, list(self._layout.iter_unpack(used))
            if code != INSUFFICIENT_SIZE:
                return code, []
            if not self._capacity < count.value <= MOST_ENTRIES:
                return SUCCESS, None
            self._resize(min(count.value * 2, MOST_ENTRIES))
        return code, []


class ProcessLists:
    """Reads the processes of all devices. Remembers names, and the last sample of each device."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._processes = Entries(PROCESS)
        self._samples = Entries(SAMPLE)
        self._name = ctypes.create_string_buffer(_NAME_BYTES)
        self._names: dict[int, str | None] = {}
        self._names_in_use: dict[int, str | None] = {}
        self._timelines: defaultdict[str, SampleTimeline] = defaultdict(SampleTimeline)
        self._sums = ProcessSums(library)
        self._limits: defaultdict[str, BusyLimit] = defaultdict(BusyLimit)

    def end_of_round(self) -> None:
        """Forgets the names of processes that were on no device since the last call."""
        self._names, self._names_in_use = self._names_in_use, {}

    def processes(self, query: Query) -> tuple[Process, ...] | None:
        """The processes on a device, by pid; None when a list that the device supports failed."""
        found: dict[int, _ListedProcess] = {}
        answered = False
        for kind in _LISTS:
            try:
                entries = self._list(query, kind)
            except _ListUnreadable:
                return None
            if entries is None:
                continue
            answered = True
            for pid, memory, gpu_instance, compute_instance in entries:
                if not 0 < pid <= HIGHEST_PID:
                    self._drop("processes")
                    continue
                one = (kind, None if memory == _NO_MEMORY else memory, gpu_instance, compute_instance)
                found[pid] = _merge(found[pid], one) if pid in found else one
        if not answered:
            return None
        return tuple(
            Process(
                pid,
                kind,
                self._process_name(pid),
                memory,
                None if gpu_instance == _NO_INSTANCE else gpu_instance,
                None if compute_instance == _NO_INSTANCE else compute_instance,
            )
            for pid, (kind, memory, gpu_instance, compute_instance) in sorted(found.items())
        )

    def _list(self, query: Query, kind: str) -> list[tuple[int, ...]] | None:
        """One of the driver's lists; None when the device does not support it."""
        if not query.can(kind):
            return None
        function = self._library.function(*_LISTS[kind])
        if function is None:
            return None
        code, entries = self._processes.fill(
            lambda count: function(query.handle, count, self._processes.buffer)
        )
        if code != SUCCESS:
            verdict = query.judge(code, "processes", (kind,))
            if verdict is ErrorMeaning.FAILED:
                raise _ListUnreadable
            return [] if verdict is ErrorMeaning.ABSENT else None
        if entries is None:
            self._drop("processes")
            raise _ListUnreadable
        return entries

    def samples(
        self, query: Query, uuid: str, accounted: Collection[int] | None = None
    ) -> tuple[ProcessSample, ...] | None:
        """What each process of this device did since the last call; empty when no process ran.

        `accounted` are the pids on the device while its accounting is on.
        """
        now = ClockTime(time.time_ns() // 1000, time.monotonic_ns() // 1000)
        samples = self._since_the_last_call(query, uuid, now)
        if accounted is None:
            self._sums.forget(uuid)
        else:
            samples = self._sums.prefer(query, uuid, samples, accounted, now)
        return None if samples is None else self._limits[uuid].hold(samples, now)

    def _since_the_last_call(self, query: Query, uuid: str, now: ClockTime) -> list[ProcessSample] | None:
        function = self._library.function(_SAMPLES)
        if function is None or not query.can(_SAMPLES):
            return None
        timeline = self._timelines[uuid]
        since = timeline.since_us(now)
        moment = ctypes.c_ulonglong(since)
        code, entries = self._samples.fill(
            lambda count: function(query.handle, self._samples.buffer, count, moment)
        )
        if code != SUCCESS:
            if query.judge(code, "process_samples", (_SAMPLES,)) is not ErrorMeaning.ABSENT:
                return None
            entries = []
        if entries is None:
            self._drop("process_samples")
            return None
        plausible = []
        for entry in map(Entry._make, entries):
            if entry.pid == entry.timestamp_us == 0:
                continue  # counted by the driver, and not written
            if (
                0 < entry.pid <= HIGHEST_PID
                and max(entry.sm, entry.memory, entry.encoder, entry.decoder) <= 100
                and since <= entry.timestamp_us <= now.clock_us + FUTURE_US
            ):
                plausible.append(entry)
            else:
                self._drop("process_samples")
        return timeline.samples(plausible, now)

    def _process_name(self, pid: int) -> str | None:
        name = self._names.get(pid) or self._names_in_use.get(pid)
        if name is None:
            function = self._library.function("nvmlSystemGetProcessName")
            if function is not None:
                code = int(function(pid, self._name, _NAME_BYTES))
                if code == SUCCESS:
                    name = short_name(self._name.value.decode(errors="replace"))
                else:
                    self._library.judge(code, "process_name")
        self._names_in_use[pid] = name
        return name

    def _drop(self, field: str) -> None:
        self._library.errors[field, "implausible"] += 1


def _merge(known: _ListedProcess, other: _ListedProcess) -> _ListedProcess:
    """One process that is on several lists, each with all of its memory."""
    kinds, memory, *instances = known
    kind, used, *_ = other
    if used is not None and (memory is None or used > memory):
        memory = used
    return (kinds if kind in kinds else f"{kinds}+{kind}", memory, instances[0], instances[1])


def short_name(command: str) -> str | None:
    """The program's name without directory and arguments; a title that is no path stays whole."""
    first, _, _ = command.partition(" ")
    return (first.rpartition("/")[2] if "/" in first else command) or None
