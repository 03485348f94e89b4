"""The last hour of each GPU, in memory of a fixed size: 6 KiB for a GPU."""

import math
import threading
from array import array
from collections.abc import Iterable

from gputally.model import Reading
from gputally.printable import printable

HOUR_SECONDS = 3600
STEP_SECONDS = 10
"""A screen has no pixels for more."""
MOST_GPUS = 256
_FORMATS = {
    "utilization_ratio": "%.3f,",
    "memory_used_ratio": "%.3f,",
    "power_watts": "%.1f,",
    "temperature_celsius": "%.1f,",
}
FIELDS = tuple(_FORMATS)


class History:
    """A ring of means over fixed steps; NaN where there was no value."""

    def __init__(self, interval_seconds: float) -> None:
        """`interval_seconds`: between two samples, so that each step has one."""
        self.step_seconds = max(STEP_SECONDS, math.ceil(interval_seconds))
        self.steps = max(1, HOUR_SECONDS // self.step_seconds)
        self._gpus: dict[str, _GpuRing] = {}
        self._began: int | None = None
        self._step = 0
        self._until_seconds = 0.0
        self._lock = threading.Lock()

    def add(self, readings: Iterable[Reading], taken_at_seconds: float, since_boot_seconds: float) -> None:
        """Steps are counted by the time since boot: the other clock can be set."""
        with self._lock:
            self._add(readings, taken_at_seconds, since_boot_seconds)

    def json(self) -> bytes:
        """The document. Oldest first; all lists have the same length."""
        with self._lock:
            return self._json().encode()

    def _add(self, readings: Iterable[Reading], taken_at_seconds: float, since_boot_seconds: float) -> None:
        self._step = int(since_boot_seconds // self.step_seconds)
        self._until_seconds = taken_at_seconds + (self._step + 1) * self.step_seconds - since_boot_seconds
        if self._began is None:
            self._began = self._step
        for reading in readings:
            ring = self._gpus.get(reading.gpu.uuid)
            if ring is None:
                ring = self._open(reading.gpu.uuid)
            if ring is not None:
                ring.index = reading.gpu.index
                ring.add(self._step, reading)

    def _json(self) -> str:
        from json import dumps  # noqa: PLC0415  # only for an open page

        began = self._step if self._began is None else self._began
        first = max(began, self._step - self.steps + 1)
        gpus = [
            f'{{"index":{ring.index},"uuid":{dumps(printable(uuid))},{ring.json(first, self._step)}}}'
            for uuid, ring in self._gpus.items()
            if ring.newest >= first
        ]
        return (
            f'{{"version":1,"step_seconds":{self.step_seconds},"until_seconds":{self._until_seconds:.3f},'
            f'"gpus":[{",".join(gpus)}]}}'
        )

    def _open(self, uuid: str) -> "_GpuRing | None":
        if len(self._gpus) >= MOST_GPUS:
            oldest = min(self._gpus, key=lambda one: self._gpus[one].newest)
            if self._gpus[oldest].newest > self._step - self.steps:
                return None
            del self._gpus[oldest]
        ring = self._gpus[uuid] = _GpuRing(self.steps, self._step)
        return ring


class _GpuRing:
    """The values of one GPU; the newest step is the mean so far."""

    def __init__(self, steps: int, step: int) -> None:
        self.index = 0
        self.newest = step
        self._values = tuple(array("f", [math.nan]) * steps for _ in FIELDS)
        self._sums = [0.0] * len(FIELDS)
        self._counts = [0] * len(FIELDS)

    def add(self, step: int, reading: Reading) -> None:
        if step != self.newest:
            self._begin(step)
        steps = len(self._values[0])
        for place, value in enumerate(_values_of(reading)):
            if value is not None:
                self._sums[place] += value
                self._counts[place] += 1
                self._values[place][step % steps] = self._sums[place] / self._counts[place]

    def json(self, first: int, last: int) -> str:
        """Each list is formatted as a whole: that is five times as fast as value by value."""
        lists = zip(_FORMATS.items(), self._values, strict=True)
        return ",".join(
            f'"{field}":[{_formatted(form, self._between(ring, first, last))}]'
            for (field, form), ring in lists
        )

    def _between(self, ring: "array[float]", first: int, last: int) -> "array[float]":
        begin, count = first % len(ring), min(last, self.newest) - first + 1
        values = (ring[begin:] + ring[:begin])[:count]
        return values + array("f", [math.nan]) * (last - first + 1 - count)

    def _begin(self, step: int) -> None:
        steps = len(self._values[0])
        for skipped in range(max(self.newest + 1, step - steps + 1), step + 1):
            for ring in self._values:
                ring[skipped % steps] = math.nan
        self.newest = step
        self._sums = [0.0] * len(FIELDS)
        self._counts = [0] * len(FIELDS)


def _formatted(form: str, values: "array[float]") -> str:
    text = form * len(values) % tuple(values)
    return text[:-1].replace("nan", "null")


def _values_of(reading: Reading) -> tuple[float | None, ...]:
    """In the order of `FIELDS`."""
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    return (
        reading.gpu_utilization_ratio,
        used / total if used is not None and total else None,
        reading.power_watts,
        reading.temperature_celsius,
    )
