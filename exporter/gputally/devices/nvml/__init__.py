"""Reader `nvml`: NVIDIA GPUs through the driver's own library, libnvidia-ml.so.1, by way of pynvml.

`library` starts NVML and classifies its errors, `device` reads one GPU, and each other module reads one kind
of value. The functions are documented at https://docs.nvidia.com/deploy/nvml-api/
"""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from gputally.devices import Report, Values
from gputally.devices.nvml.device import FILLS, Driver, NvmlDevice, read_driver, read_identity
from gputally.devices.nvml.ended_processes import Accounting
from gputally.devices.nvml.gpm import Gpm
from gputally.devices.nvml.library import DeviceLost, Library, LibraryGone, Query
from gputally.devices.nvml.process_lists import ProcessLists
from gputally.devices.nvml.xid import XidCounts, XidWatch
from gputally.model import Gpu, Reading

__all__ = ["FILLS", "NvmlReader"]

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 0.9


@dataclass(slots=True)
class _Slot:
    """One NVML index: the GPU there, and its device while it responds."""

    index: int
    gpu: Gpu | None = None
    device: NvmlDevice | None = None


class NvmlReader:
    """Reads NVIDIA GPUs through NVML.

    `pcie_throughput`: read PCIe throughput also of GPUs without GPM, which blocks 40 ms per GPU.
    `accounting`: read ended processes, where the accounting mode is on. `release_driver`: release the driver
    after every sample, so that it can be unloaded in between; then there are no XIDs and no GPM activity,
    which need it all the time.
    `retry_lost_seconds`: the interval at which the library is started again while a GPU is lost; some drivers
    show a GPU that came back only then.
    """

    name = "nvml"

    def __init__(
        self,
        *,
        pcie_throughput: bool = False,
        accounting: bool = False,
        release_driver: bool = False,
        retry_lost_seconds: float = 300.0,
    ) -> None:
        self._pcie_throughput = pcie_throughput
        self._release_driver = release_driver
        self._retry_lost_seconds = retry_lost_seconds
        self._library = Library()
        self._lists = ProcessLists(self._library)
        self._accounting = Accounting(self._library) if accounting else None
        self._xids = XidCounts()
        self._watches: list[XidWatch] = []
        self._gpm: Gpm | None = None
        self._driver = Driver(None, None)
        self._slots: list[_Slot] = []
        self._known: dict[str, Gpu] = {}
        self._lost: set[str] = set()
        self._all_up_at = 0.0

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
        if self._release_driver:
            self._release()
        return Report(readings, dict(self._library.errors))

    def close(self) -> None:
        """Returns in time even when the driver hangs."""
        thread = threading.Thread(target=self._release, name="nvml-close", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)

    def _read(self) -> tuple[Reading, ...]:
        if self._library.running and time.monotonic() - self._all_up_at > self._retry_lost_seconds:
            self._release()
        if not self._library.running:
            self._library.start()
            self._driver = read_driver(self._library)
            self._all_up_at = time.monotonic()
        count = self._count()
        if count != len(self._slots):
            self._free_devices()
            self._slots = [_Slot(index) for index in range(count)]
        for slot in self._slots:
            self._open(slot)
        if not self._release_driver:
            self._watch_xids()
        readings = [self._read_slot(slot) for slot in self._slots]
        self._lists.end_of_round()
        here = {reading.gpu.uuid for reading in readings}
        readings += [self._down(gpu) for uuid, gpu in self._known.items() if uuid not in here]
        self._note_lost({reading.gpu.uuid for reading in readings if not reading.up})
        return tuple(sorted(readings, key=lambda reading: (reading.gpu.index, not reading.up)))

    def _note_lost(self, lost: set[str]) -> None:
        if not lost:
            self._all_up_at = time.monotonic()
        for uuid in lost - self._lost:
            log.warning("GPU %s is lost", uuid or "of unknown uuid")
        for uuid in self._lost - lost:
            log.info("GPU %s is back", uuid)
        self._lost = lost

    def _count(self) -> int:
        try:
            count = self._library.call("gpus", "nvmlDeviceGetCount")
        except DeviceLost:
            return 0
        return len(self._slots) if count is None else int(count)

    def _open(self, slot: _Slot) -> None:
        """Opens the device that is at the index now, if it responds."""
        try:
            if slot.device is not None and slot.device.still_is():
                return
            self._drop_device(slot)
            handle = self._library.call("gpus", "nvmlDeviceGetHandleByIndex", slot.index)
            if handle is None:
                return
            query = Query(self._library, handle)
            gpu = read_identity(query, slot.index, self._driver)
            slot.gpu = self._known[gpu.uuid] = gpu
            slot.device = NvmlDevice(
                query,
                gpu,
                self._gpm_for(query),
                self._lists,
                self._accounting,
                pcie_throughput=self._pcie_throughput,
            )
        except DeviceLost:
            self._drop_device(slot)

    def _gpm_for(self, query: Query) -> Gpm | None:
        if self._release_driver:
            return None  # it takes two samples, and the first is lost with the driver
        support = query.call("gpm", "nvmlGpmQueryDeviceSupport")
        if support is None or not support.isSupportedDevice:
            return None
        if self._library.function("nvmlGpmMetricsGet") is None:
            return None
        if self._gpm is None:
            self._gpm = Gpm(self._library)
        return self._gpm

    def _read_slot(self, slot: _Slot) -> Reading:
        if slot.device is not None:
            try:
                return slot.device.read(self._xid_values(slot.device.gpu.uuid))
            except DeviceLost:
                self._drop_device(slot)
        return self._down(slot.gpu or self._last_known(slot.index))

    def _down(self, gpu: Gpu) -> Reading:
        """The reading of a lost GPU: only its XID errors are known."""
        errors, moments = self._xids.read(gpu.uuid)
        return Reading(
            gpu=gpu, up=False, xid_errors=errors or None, xid_last_timestamp_seconds=moments or None
        )

    def _last_known(self, index: int) -> Gpu:
        """The last known GPU at this index; a GPU may be lost before its identity was read."""
        taken = {slot.gpu.uuid for slot in self._slots if slot.gpu is not None}
        for uuid, gpu in self._known.items():
            if gpu.index == index and uuid not in taken:
                return gpu
        return Gpu(uuid="", index=index, vendor="nvidia", model="")

    def _xid_values(self, uuid: str) -> Values:
        errors, moments = self._xids.read(uuid)
        if errors or (self._watches and uuid in self._watches[-1].watches):
            return {"xid_errors": errors, "xid_last_timestamp_seconds": moments}
        return {}

    def _watch_xids(self) -> None:
        """Waits for XIDs of all devices, lost ones included: their last XID may still arrive."""
        handles = {slot.device.gpu.uuid: slot.device.query.handle for slot in self._slots if slot.device}
        if self._watches and self._watches[-1].covers(handles):
            return
        for watch in self._watches:
            watch.stop()
        self._watches = [watch for watch in self._watches if watch.running]
        self._watches.append(XidWatch(self._library, handles, self._xids))

    def _drop_device(self, slot: _Slot) -> None:
        if slot.device is not None:
            device, slot.device = slot.device, None
            _free(device)

    def _free_devices(self) -> None:
        for slot in self._slots:
            self._drop_device(slot)

    def _release(self) -> None:
        """Stops the library; the next read starts it again."""
        for watch in self._watches:
            watch.stop()
        hanging = [watch for watch in self._watches if not watch.ended()]
        self._watches = []
        if hanging:
            self._library.abandon()
        else:
            self._free_devices()
            self._library.stop()
        self._slots = []
        self._gpm = None


def _free(device: NvmlDevice) -> None:
    with suppress(DeviceLost, LibraryGone):  # the library may have gone first
        device.free()
