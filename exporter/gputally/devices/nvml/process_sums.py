"""Utilisation of each process from the running sums of the driver's accounting (driver 610 and later).

Once a second the driver adds its samples to the sums of the process that each was assigned to, and counts all
samples since the process started. The difference between two readings is a mean that is not rounded and that
no interval is too long for. Work of the last second before the end of a process is not in its sums.
"""

import ctypes
import struct
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from gputally.devices.nvml.library import SUCCESS, ErrorMeaning, Library, Query
from gputally.devices.nvml.process_samples import ClockTime
from gputally.model import ProcessSample

# nvmlAccountingStats_v2_t: pid, running, GPU, memory, peak bytes, samples, sum GPU, sum memory, time, start
SUMS = struct.Struct("=IIIIQI4xQQQQ")
_FUNCTION = "nvmlDeviceGetAccountingStats_v2"
_FIELD = "process_samples"
_WHOLE = 10_000  # the sums are of hundredths of a percent


class _Sums(NamedTuple):
    started_us: int
    samples: int
    gpu: int
    memory: int
    until_us: int
    """The end of the time that they cover, on the monotonic clock."""
    running: bool = True


class ProcessSums:
    """Reads the sums of all devices, and remembers them until the next sample."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: defaultdict[str, dict[int, _Sums]] = defaultdict(dict)
        self._read_at: dict[str, ClockTime] = {}

    def forget(self, uuid: str) -> None:
        """Starts anew: the device's accounting is off."""
        self._known.pop(uuid, None)
        self._read_at.pop(uuid, None)

    def prefer(
        self,
        query: Query,
        uuid: str,
        samples: list[ProcessSample] | None,
        listed: Collection[int],
        now: ClockTime,
    ) -> list[ProcessSample] | None:
        """The samples, with those from sums in place of those from means, where the driver has sums.

        `samples` is None where there are no means. `listed` are the processes on the device now.
        """
        if not query.can(_FUNCTION) or self._library.function(_FUNCTION) is None:
            return samples
        sampled = {sample.pid: sample for sample in samples or ()}
        before, last = self._known[uuid], self._read_at.get(uuid)
        after: dict[int, _Sums] = {}
        result = []
        for pid in dict.fromkeys([*listed, *sampled, *before]):
            sample = sampled.get(pid)
            sums, failed = self._read(query, pid, now)
            base = before.get(pid)
            if sums is None:
                if failed and base is not None:
                    after[pid] = base
                    sample = _without_time(sample)
            else:
                if base is None or base.started_us != sums.started_us:
                    base = _at_start(sums, last, now)
                sample, after[pid] = self._difference(pid, base, sums, sample, now)
                if not sums.running and pid not in listed:
                    del after[pid]
            if sample is not None:
                result.append(sample)
        self._known[uuid], self._read_at[uuid] = after, now
        return result if query.can(_FUNCTION) else samples

    def _difference(
        self, pid: int, base: _Sums | None, sums: _Sums, sample: ProcessSample | None, now: ClockTime
    ) -> tuple[ProcessSample | None, _Sums]:
        """The sample of this process, and what the next difference begins with."""
        if base is None or sums.samples < base.samples or sums.gpu < base.gpu or sums.memory < base.memory:
            return sample, sums
        count, us = sums.samples - base.samples, sums.until_us - base.until_us
        if count == 0 or us <= 0:
            # The driver has added nothing yet. What it adds later is in the difference to the same base.
            return (_without_time(sample), base) if sums.running else (sample, base)
        gpu, memory = (sums.gpu - base.gpu) / count / _WHOLE, (sums.memory - base.memory) / count / _WHOLE
        if gpu > 1 or memory > 1:
            self._library.errors[_FIELD, "implausible"] += 1
            return sample, sums
        if gpu == memory == 0:
            return _without_time(sample), sums
        video = (sample.encoder_ratio, sample.decoder_ratio) if sample else (0.0, 0.0)
        stamp_us = sample.timestamp_us if sample else now.clock_us - (now.uptime_us - sums.until_us)
        return ProcessSample(pid, stamp_us, gpu, memory, *video, covers_us=us), sums

    def _read(self, query: Query, pid: int, now: ClockTime) -> tuple[_Sums | None, bool]:
        """The sums of one process, and whether they could not be read although there may be some."""
        function = self._library.function(_FUNCTION)
        buffer = ctypes.create_string_buffer(SUMS.pack(pid, *[0] * 9), SUMS.size)
        code = int(function(query.handle, buffer))
        if code != SUCCESS:
            return None, query.judge(code, _FIELD, (_FUNCTION,)) is ErrorMeaning.FAILED
        _, running, _, _, _, samples, gpu, memory, ran_ms, started_us = SUMS.unpack(buffer)
        until_us = now.uptime_us
        if not running:
            until_us -= max(0, now.clock_us - started_us - ran_ms * 1000)
        return _Sums(started_us, samples, gpu, memory, until_us, bool(running)), False


def _at_start(sums: _Sums, last: ClockTime | None, now: ClockTime) -> _Sums | None:
    """The sums of a process when it started, if that was since the last sample."""
    if last is None or sums.started_us < last.clock_us:
        return None
    return _Sums(sums.started_us, 0, 0, 0, now.uptime_us - max(0, now.clock_us - sums.started_us))


def _without_time(sample: ProcessSample | None) -> ProcessSample | None:
    """The same activity, to be shown and not counted."""
    return None if sample is None else replace(sample, covers_us=0)
