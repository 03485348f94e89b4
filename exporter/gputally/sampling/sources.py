"""The guarded sources of a snapshot: GPU readers and pod sources."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gputally.attribution import PodReport, PodSource
from gputally.devices import Reader, Report
from gputally.devices.plausible import drop_implausible
from gputally.devices.vendors import VENDORS
from gputally.model import Reading
from gputally.sampling.guard import Attempt, Guarded, Record

_DRIVER_MESSAGES = "|".join(vendor.kernel_log for vendor in VENDORS)


class GuardedReaders(Guarded):
    """Readers of the same GPUs, best first. The last good readings stay until they are too old."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        super().__init__(readers, f"check for driver errors: dmesg | grep -iE '{_DRIVER_MESSAGES}'")
        self._readings: tuple[Reading, ...] = ()
        self._read_at = time.monotonic()

    @property
    def read_at_us(self) -> int:
        """When the readings were taken, by the monotonic clock."""
        return round(self._read_at * 1_000_000)

    @property
    def up(self) -> bool:
        return any(record.up for record in self._records.values())

    @property
    def age_seconds(self) -> float:
        """The age of the readings while a read hangs; otherwise 0."""
        hanging = not self.up and self._worker.busy
        return time.monotonic() - self._read_at if hanging else 0.0

    def readings(self, max_age_seconds: float) -> tuple[Reading, ...]:
        """The last good readings; only the GPUs' identities once these are too old, or the source failed."""
        if not self.up and not 0 < self.age_seconds <= max_age_seconds:
            return tuple(reading.lost() for reading in self._readings)
        oldest_us = (time.monotonic() - max_age_seconds) * 1_000_000
        return tuple(
            reading if reading.read_at_us is None or reading.read_at_us >= oldest_us else reading.lost()
            for reading in self._readings
        )

    def _take_in(self, one: Attempt, record: Record) -> None:
        if one.result is None:
            record.fail(one)
            return
        report: Report = one.result
        self._read_at = one.ended_at
        record.succeed(one, f"{len(report.readings)} GPUs")
        record.gpus = len(report.readings)
        record.exit_code = report.exit_code
        record.read_errors = dict(report.errors)
        readings = tuple(_plausible(reading, record) for reading in _each_once(report.readings))
        self._readings = self._with_missing(self._with_late(readings))

    def _with_late(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """The last reading of a GPU that did not respond in time, with its new XID errors."""
        if not any(reading.late for reading in readings):
            return readings
        last = {old.gpu.uuid: old for old in self._readings if old.up}
        return tuple(
            replace(
                last[reading.gpu.uuid],
                late=True,
                xid_errors=reading.xid_errors,
                xid_last_timestamp_seconds=reading.xid_last_timestamp_seconds,
            )
            if reading.late and reading.gpu.uuid in last
            else reading
            for reading in readings
        )

    def _with_missing(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """A GPU that any of the readers saw before does not vanish: it is down."""
        present = {reading.gpu.uuid for reading in readings}
        # A GPU that was lost before its uuid could be read comes back as another GPU.
        missing = (old for old in self._readings if old.gpu.uuid and old.gpu.uuid not in present)
        return readings + tuple(old.lost() for old in missing)


def _each_once(readings: Sequence[Reading]) -> Iterable[Reading]:
    """A GPU has two readings if the driver's list changed while it was read: the better one counts."""
    by_uuid: dict[str | int, Reading] = {}
    for reading in readings:
        key = reading.gpu.uuid or reading.gpu.index
        other = by_uuid.get(key)
        if other is None or (reading.up, not reading.late) > (other.up, not other.late):
            by_uuid[key] = reading
    return by_uuid.values()


def _plausible(reading: Reading, record: Record) -> Reading:
    reading, dropped = drop_implausible(reading)
    record.dropped.update((name, "implausible") for name in dropped)
    return reading


class GuardedPodSource(Guarded):
    """A pod source. Its last report stays valid while it cannot be read."""

    def __init__(self, source: PodSource) -> None:
        super().__init__([source], "check the kubelet: systemctl status kubelet")
        self.name = source.name
        self.report = PodReport()

    def _take_in(self, one: Attempt, record: Record) -> None:
        if one.result is None:
            record.fail(one)
            return
        self.report = one.result
        record.leave_out(self.report.left_out)
        if self.report.stale:
            record.mark_down(*self.report.stale)
        else:
            record.succeed(one, f"{len(self.report.pods)} pods")
