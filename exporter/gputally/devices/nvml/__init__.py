"""Reader `nvml`: NVIDIA GPUs through the driver's own library, libnvidia-ml.so.1, by way of pynvml.

`library` starts NVML and classifies its errors, `device` reads one GPU, and each other module reads one kind
of value. The functions are documented at https://docs.nvidia.com/deploy/nvml-api/
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gputally.devices import Errors, Report, Values
from gputally.devices.nvml import xid
from gputally.devices.nvml.device import (
    FILLS,
    Driver,
    NvmlDevice,
    not_to_read,
    read_driver,
    read_identity,
)
from gputally.devices.nvml.gpm import Gpm, GpmRequest
from gputally.devices.nvml.library import DeviceLost, Library, LibraryGone, Query
from gputally.devices.nvml.process_lists import ProcessLists
from gputally.devices.nvml.runner import Runner
from gputally.devices.nvml.xid import XidCounts, XidWatch
from gputally.model import Gpu, Reading

if TYPE_CHECKING:
    from gputally.devices.nvml.ended_processes import Accounting

__all__ = ["FILLS", "NvmlReader"]

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 0.9
_END_SECONDS = 0.5


class _GpuSlot:
    """One NVML index: the GPU there, and all that is needed to read it independently of the others.

    It belongs to the thread that reads it while `reading` is true, otherwise to the reader.
    """

    def __init__(self, index: int, library: Library, *, accounting: bool) -> None:
        self.index = index
        self.library = library.for_one_gpu()
        self.lists = ProcessLists(self.library)
        self.accounting = _accounting(self.library) if accounting else None
        self.gpu: Gpu | None = None
        self.device: NvmlDevice | None = None
        """While it responds."""
        self.start = 0
        """The start of the library in which the device was opened."""
        self.reading = False
        self.result: Reading | Exception | None = None
        """Of the last read, until it is taken. None when the GPU is lost."""


class NvmlReader:
    """Reads NVIDIA GPUs through NVML.

    `pcie_throughput`: read PCIe throughput also of GPUs without GPM, which blocks 40 ms per GPU.
    `accounting`: read ended processes, where the accounting mode is on. `release_driver`: release the driver
    after every sample, so that it can be unloaded in between, unless persistence mode is off; then there are
    no XIDs and no GPM activity, which need it all the time.
    `gpu_seconds`: the time after which a GPU that does not respond is late. `retry_lost_seconds`: the
    interval at which the library is started again while a GPU is lost; some drivers show a GPU that came back
    only then. `skipped`: the fields that need not be read.
    """

    name = "nvml"

    def __init__(
        self,
        *,
        pcie_throughput: bool = False,
        accounting: bool = False,
        release_driver: bool = False,
        gpu_seconds: float = 3.2,
        retry_lost_seconds: float = 300.0,
        skipped: frozenset[str] = frozenset(),
    ) -> None:
        self._skipped = not_to_read(skipped)
        self._pcie_throughput = pcie_throughput
        self._use_accounting = accounting
        self._release_driver = release_driver
        self._gpu_seconds = gpu_seconds
        self._retry_lost_seconds = retry_lost_seconds
        self._library = Library()
        self._starts = 0
        self._runner = Runner("nvml-gpus")
        self._responded = threading.Event()
        self._xids = XidCounts()
        self._watches: dict[str, XidWatch] = {}
        self._gpm_request: GpmRequest | None = None
        self._driver = Driver(None, None)
        self._slots: list[_GpuSlot] = []
        """By index; those beyond the number of GPUs are not in use."""
        self._known: dict[str, Gpu] = {}
        self._lost: set[str] = set()
        self._late: set[str] = set()
        self._all_up_at = 0.0
        self._kept = False
        """Whether the driver is not released although it should be."""

    def read(self) -> Report:
        try:
            readings = self._read()
        except LibraryGone:
            self._release()
            try:
                readings = self._read()
            except LibraryGone as error:
                self._release()
                raise self._library.unavailable(error.code) from error
        if self._release_driver and not self._hangs and self._releasable(readings):
            self._release()
        return Report(readings, self._errors())

    def close(self) -> None:
        """Returns in time even when the driver hangs."""
        thread = threading.Thread(target=self._release, name="nvml-close", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)
        self._runner.close()

    def _releasable(self, readings: Sequence[Reading]) -> bool:
        """False while persistence mode is off: each sample would initialise the GPUs and reset counters."""
        off = any(reading.persistence_mode is False for reading in readings)
        if off and not self._kept:
            log.warning(
                "--release-driver has no effect while persistence mode is off: a GPU would lose its counters "
                "with every sample (nvidia-smi -pm 1)"
            )
        self._kept = off
        return not off

    @property
    def _hangs(self) -> bool:
        return any(slot.reading for slot in self._slots)

    def _errors(self) -> Errors:
        errors = Counter(self._library.errors)
        for slot in self._slots:
            errors.update(dict(slot.library.errors))  # of a copy: a late thread may be counting
        return errors

    def _read(self) -> tuple[Reading, ...]:
        retry = time.monotonic() - self._all_up_at > self._retry_lost_seconds
        if self._library.running and retry and not self._hangs:
            self._release()
        if not self._library.running:
            self._library.start()
            self._starts += 1
            self._driver = read_driver(self._library)
            self._all_up_at = time.monotonic()
        slots = self._in_use()
        # What a GPU returned after the last sample is reported now: it has activity that is reported once.
        self._runner.run(
            [self._task(slot) for slot in slots if not slot.reading and slot.result is None],
            self._gpu_seconds,
        )
        self._wait_for_any(slots)
        readings = [self._take(slot, slots) for slot in slots]
        self._known |= {slot.gpu.uuid: slot.gpu for slot in slots if slot.gpu is not None}
        here = {reading.gpu.uuid for reading in readings}
        readings += [self._down(gpu) for uuid, gpu in self._known.items() if uuid not in here]
        self._note_missing(readings)
        return tuple(sorted(readings, key=lambda reading: (reading.gpu.index, not reading.up)))

    def _in_use(self) -> list[_GpuSlot]:
        try:
            count = self._library.call("gpus", "nvmlDeviceGetCount")
        except DeviceLost:
            count = 0
        if count is None:
            count = len(self._slots)
        for index in range(len(self._slots), int(count)):
            self._slots.append(_GpuSlot(index, self._library, accounting=self._use_accounting))
        return self._slots[: int(count)]

    def _task(self, slot: _GpuSlot) -> Callable[[], None]:
        slot.reading = True
        start = self._starts

        def read() -> None:
            try:
                slot.result = self._read_slot(slot, start)
            except Exception as error:  # noqa: BLE001  # raised again by `_take`
                slot.result = error
            slot.reading = False
            self._responded.set()

        return read

    def _wait_for_any(self, slots: Sequence[_GpuSlot]) -> None:
        """When no GPU responds, the driver hangs, and so does this read: `sampling` reports it as a whole."""
        while True:
            self._responded.clear()
            if not slots or not all(slot.reading for slot in slots):
                return
            self._responded.wait()

    def _take(self, slot: _GpuSlot, slots: Sequence[_GpuSlot]) -> Reading:
        """Raises what the read of this GPU raised."""
        if slot.reading:
            self._library.errors["gpus", "timeout"] += 1
            return self._down(slot.gpu or self._last_known(slot.index, slots), late=True)
        result, slot.result = slot.result, None
        if isinstance(result, Exception):
            raise result
        return result or self._down(slot.gpu or self._last_known(slot.index, slots))

    def _note_missing(self, readings: Sequence[Reading]) -> None:
        lost = {reading.gpu.uuid for reading in readings if not reading.up and not reading.late}
        late = {reading.gpu.uuid for reading in readings if reading.late}
        if not lost:
            self._all_up_at = time.monotonic()
        for uuid in lost - self._lost:
            log.warning("GPU %s is lost", uuid or "of unknown uuid")
        for uuid in late - self._late:
            log.warning("GPU %s does not respond within %g s", uuid or "of unknown uuid", self._gpu_seconds)
        for uuid in (self._lost | self._late) - lost - late:
            log.info("GPU %s is back", uuid)
        self._lost, self._late = lost, late

    def _down(self, gpu: Gpu, *, late: bool = False) -> Reading:
        """The reading of a GPU that is lost or late: only its XID errors are known."""
        errors, moments = self._xids.read(gpu.uuid)
        return Reading(
            gpu=gpu,
            up=False,
            late=late,
            xid_errors=errors or None,
            xid_last_timestamp_seconds=moments or None,
        )

    def _last_known(self, index: int, slots: Sequence[_GpuSlot]) -> Gpu:
        """The last known GPU at this index; a GPU may be lost before its identity was read."""
        taken = {slot.gpu.uuid for slot in slots if slot.gpu is not None}
        for uuid, gpu in self._known.items():
            if gpu.index == index and uuid not in taken:
                return gpu
        return Gpu(uuid="", index=index, vendor="nvidia", model="")

    def _release(self) -> None:
        """Stops the library; the next read starts it again."""
        for watch in self._watches.values():
            watch.stop()
        deadline = time.monotonic() + xid.WAIT_SECONDS + _END_SECONDS
        # Those that hang are kept, so that their GPUs do not get another thread.
        self._watches = {
            uuid: watch
            for uuid, watch in self._watches.items()
            if not watch.ended(max(0.0, deadline - time.monotonic()))
        }
        if self._watches or self._hangs:
            self._library.abandon()
        else:
            for slot in self._slots:
                _drop_device(slot)
            self._library.stop()
        for slot in self._slots:
            if not slot.reading:
                slot.gpu = slot.device = slot.result = None

    # The methods below run in the thread that reads the GPU.

    def _read_slot(self, slot: _GpuSlot, start: int) -> Reading | None:
        """None when the GPU is lost."""
        if slot.start != start:
            slot.start, slot.device = start, None
        try:
            device = self._open(slot)
            if device is None:
                return None
            if not self._release_driver:
                self._watch_xids(device)
            reading = device.read(self._xid_values(device))
            if device.hides_xids and not reading.xid_errors:
                return replace(reading, xid_errors=None, xid_last_timestamp_seconds=None)
            return reading
        except DeviceLost:
            _drop_device(slot)
            return None
        finally:
            slot.lists.end_of_round()

    def _open(self, slot: _GpuSlot) -> NvmlDevice | None:
        """The device that is at the index now: the indices change when a GPU goes or comes."""
        handle = slot.library.call("gpus", "nvmlDeviceGetHandleByIndex", slot.index)
        if slot.device is not None and slot.device.still_is(handle):
            return slot.device
        _drop_device(slot)
        if handle is None:
            return None
        query = Query(slot.library, handle, self._skipped)
        slot.gpu = read_identity(query, slot.index, self._driver)
        slot.device = NvmlDevice(
            query,
            slot.gpu,
            self._gpm_for(query),
            slot.lists,
            slot.accounting,
            pcie_throughput=self._pcie_throughput,
        )
        return slot.device

    def _gpm_for(self, query: Query) -> Gpm | None:
        if self._release_driver:
            return None  # it takes two samples, and the first is lost with the driver
        support = query.call("gpm", "nvmlGpmQueryDeviceSupport")
        if support is None or not support.isSupportedDevice:
            return None
        if query.library.function("nvmlGpmMetricsGet") is None:
            return None
        if self._gpm_request is None:
            self._gpm_request = GpmRequest(query.library.nvml)
        return Gpm(query.library, self._gpm_request)

    def _watch_xids(self, device: NvmlDevice) -> None:
        """A lost GPU is watched on: its last XID may still arrive."""
        uuid, query = device.gpu.uuid, device.query
        watch = self._watches.get(uuid)
        if watch is not None:
            if watch.covers(query.handle):
                return
            watch.stop()
            if not watch.ended(_END_SECONDS):
                return
        self._watches[uuid] = XidWatch(query.library, uuid, query.handle, self._xids)

    def _xid_values(self, device: NvmlDevice) -> Values:
        uuid = device.gpu.uuid
        errors, moments = self._xids.read(uuid)
        watch = self._watches.get(uuid)
        if errors or (watch is not None and watch.registered):
            return {"xid_errors": errors, "xid_last_timestamp_seconds": moments}
        return {}


def _accounting(library: Library) -> "Accounting":
    from gputally.devices.nvml.ended_processes import Accounting  # noqa: PLC0415  # only for --accounting

    return Accounting(library)


def _drop_device(slot: _GpuSlot) -> None:
    if slot.device is not None:
        device, slot.device = slot.device, None
        with suppress(DeviceLost, LibraryGone):  # the library may have gone first
            device.free()
