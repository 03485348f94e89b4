"""One GPU: the values that are read once, those of every sample, and the `Reading` made of them."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputally.devices import Values
from gputally.devices.nvml import fabric, gpm, mig, nvlink, process_lists, xid
from gputally.devices.nvml.fields import DEVICE_SLOTS, FieldBatch
from gputally.devices.nvml.library import DeviceLost, Library, Query, address, some
from gputally.devices.nvml.scalars import (
    BAR1,
    ENGINES,
    FIXED,
    INSTEAD_OF_FIELDS,
    LIVE,
    MEMORY,
    as_flag,
    read_bar1,
    read_clocks,
    read_memory,
    read_mode,
    read_scalars,
)
from gputally.devices.rates import CounterRate
from gputally.model import (
    COMPUTE_MODES,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    AccountedProcess,
    Gpu,
    Labelled,
    Process,
    Reading,
    state_set,
)

if TYPE_CHECKING:
    from gputally.devices.nvml.ended_processes import Accounting

FILLS = frozenset(
    {
        *(scalar.field for scalar in (*FIXED, *LIVE, *INSTEAD_OF_FIELDS)),
        *(slot.field for slot in DEVICE_SLOTS),
        *(*ENGINES, *MEMORY, *BAR1, *gpm.METRICS),
        *(*fabric.FILLS, *mig.FILLS, *nvlink.FILLS, *process_lists.FILLS, *xid.FILLS),
        "accounted",
        "accounting_mode",
        "clock_application_hertz",
        "clock_hertz",
        "clock_max_hertz",
        "compute_mode",
        "fan_speed_ratio",
        "gpu_utilization_ratio",
        "memory_utilization_ratio",
        "mig_mode",
        "nvlink_bytes_per_second",
        gpm.THROUGHPUT,
        "persistence_mode",
        "power_max_limit_watts",
        "power_min_limit_watts",
        "remap_banks",
        "throttle_active",
    }
)
"""The fields that this reader can fill: see `readers_that_fill`."""

READ_TOGETHER: tuple[Collection[str], ...] = (
    (*MEMORY,),
    (*BAR1,),
    ("gpu_utilization_ratio", "memory_utilization_ratio"),
    ("power_min_limit_watts", "power_max_limit_watts"),
    (*fabric.FILLS,),
    ("nvlink_up", "nvlink_bytes"),  # the counters of a link that came up are read from then on
    ("temperature_margin_celsius", "temperature_slowdown_offset_celsius"),
)
"""Fields of which one that is needed needs the others."""

ASK_AGAIN_SECONDS = 3600.0
APART_SECONDS = 30.0
_TX, _RX = 0, 1  # nvmlPcieUtilCounter_t


_FLAGS = ("ecc_mode", "retired_pages_pending", "remapped_rows_pending", "remapped_rows_failure")
_UNKNOWN_STATE = 32  # NVML_PSTATE_UNKNOWN


@dataclass(frozen=True, slots=True)
class _Once:
    """Values that are read once per device."""

    values: Values
    throttle_reasons: dict[str, int]
    fans: int
    complete: bool
    """False when a value failed that may succeed next time."""


def not_to_read(skipped: frozenset[str]) -> frozenset[str]:
    """The fields that need not be read, where they are not read together with one that is needed."""
    needed = (together for together in READ_TOGETHER if not skipped.issuperset(together))
    return skipped.difference(*needed)


class NvmlDevice:
    """One GPU that responds."""

    def __init__(
        self,
        query: Query,
        gpu: Gpu,
        activity: gpm.Gpm | None,
        lists: process_lists.ProcessLists,
        accounting: "Accounting | None",
        *,
        pcie_throughput: bool,
    ) -> None:
        self.query = query
        self.gpu = gpu
        self._lists = lists
        self._link_rate = CounterRate()
        self._accounting = accounting
        self._pcie_throughput = pcie_throughput
        self._once = self._read_once()
        self._links = nvlink.NvLinks(query, gpu.compute_capability)
        self._batch = FieldBatch(query, (*DEVICE_SLOTS, *self._links.sum_slots()))
        self._mig = mig.MigDevices(query, gpu, activity, lists)
        self._activity = None if activity is None else gpm.whole_device(activity, query.handle)
        self._mig_mode: bool | None = None
        # GPUs ask at different times, so that no sample has the additional calls of all of them.
        self._ask_again_at = time.monotonic() + ASK_AGAIN_SECONDS + gpu.index * APART_SECONDS

    def read(self, extra: Values) -> Reading:
        """`extra` are fields from other sources. Raises DeviceLost and LibraryGone."""
        query = self.query
        mig_mode = read_mode(query, "mig_mode", "nvmlDeviceGetMigMode")
        if mig_mode is not self._mig_mode:
            # In MIG mode the driver supports other values, and earlier handles are invalid.
            self._mig_mode = mig_mode
            query.forget()
            self._batch.forget()
            self._links.forget()
            self._free_activity()
        if time.monotonic() >= self._ask_again_at:
            self._ask_again()
        if not self._once.complete:
            self._once = self._read_once()
        values = self._read_fields()
        # The time of the energy counter, which is among the fields: a later call may hang.
        read_at_us = time.monotonic_ns() // 1000
        link_rate = self._link_rate.per_second(values.get("nvlink_bytes"), read_at_us / 1_000_000)
        values |= self._once.values
        read_scalars(query, LIVE, values)
        if values.get("performance_state") == _UNKNOWN_STATE:
            del values["performance_state"]
        if "temperature_margin_celsius" in values:
            values["temperature_margin_celsius"] -= values.get("temperature_slowdown_offset_celsius", 0)
        activity = {} if self._activity is None else self._activity.read()
        memory = read_memory(query)
        accounting_mode = as_flag(query.number("accounting_mode", "nvmlDeviceGetAccountingMode"))
        processes = self._lists.processes(query)
        return Reading(
            gpu=self.gpu,
            read_at_us=read_at_us,
            mig_mode=mig_mode,
            clock_hertz=read_clocks(query, "clock_hertz", "nvmlDeviceGetClockInfo"),
            clock_application_hertz=read_clocks(
                query, "clock_application_hertz", "nvmlDeviceGetApplicationsClock"
            ),
            fan_speed_ratio=self._fans(),
            throttle_active=self._throttle(),
            compute_mode=self._state("compute_mode", COMPUTE_MODES),
            persistence_mode=as_flag(query.number("persistence_mode", "nvmlDeviceGetPersistenceMode")),
            accounting_mode=accounting_mode,
            remap_banks=self._remap_banks(),
            nvlink_bytes_per_second=link_rate,
            processes=processes,
            accounted=self._accounted(accounting_mode, processes),
            process_samples=self._lists.samples(
                query,
                self.gpu.uuid,
                [process.pid for process in processes or ()] if accounting_mode and not mig_mode else None,
            ),
            mig=self._mig.read(memory.get("memory_total_bytes")) if mig_mode else (),
            **extra,
            **values,
            **memory,
            **read_bar1(query),
            **fabric.read_fabric(query),
            **self._utilization(),
            **(self._throughput() | activity),
        )

    def _accounted(
        self, mode: bool | None, processes: tuple[Process, ...] | None
    ) -> tuple[AccountedProcess, ...] | None:
        if self._accounting is None:
            return None
        present = {process.pid for process in processes or ()}
        return self._accounting.ended(self.query, self.gpu.uuid, mode and not self._mig_mode, present)

    @property
    def hides_xids(self) -> bool:
        """Whether XIDs cannot arrive: MIG is on, and the exporter has not the right to monitor it."""
        return bool(self._mig_mode) and self.query.denied

    def _ask_again(self) -> None:
        """A new driver setting, license or permission may have made supported what was not."""
        self._ask_again_at = time.monotonic() + ASK_AGAIN_SECONDS
        self.query.forget()
        self._batch.forget()
        self._links.forget()
        self._mig.ask_again()
        if self._activity is not None:
            self._activity.ask_again()
        self._once = self._read_once()

    def still_is(self, handle: Any) -> bool:
        """Whether this handle (None if it is not known) is of this device, and still of the same GPU."""
        if handle is not None and address(handle) != address(self.query.handle):
            return False
        return bool(self.query.call("uuid", "nvmlDeviceGetUUID") == self.gpu.uuid)

    def free(self) -> None:
        """Frees the library's buffers, while the library still runs."""
        self._free_activity()

    def _free_activity(self) -> None:
        self._mig.forget()
        if self._activity is not None:
            self._activity.free()

    def _read_once(self) -> _Once:
        query = self.query
        errors = query.library.errors.total()
        values: Values = {
            "clock_max_hertz": read_clocks(query, "clock_max_hertz", "nvmlDeviceGetMaxClockInfo")
        }
        read_scalars(query, FIXED, values)
        limits = query.call("power_min_limit_watts", "nvmlDeviceGetPowerManagementLimitConstraints")
        if limits is not None:
            values["power_min_limit_watts"], values["power_max_limit_watts"] = (mw / 1000 for mw in limits)
        supported = query.first(
            "throttle_active",
            ("nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"),
        )
        return _Once(
            values=values,
            throttle_reasons={
                reason: 1 << bit
                for bit, reason in enumerate(THROTTLE_REASONS)
                if supported is None or supported & 1 << bit
            },
            fans=query.number("fan_speed_ratio", "nvmlDeviceGetNumFans") or 0,
            complete=query.library.errors.total() == errors,
        )

    def _read_fields(self) -> Values:
        links = self._links.read()
        if self._links.changed:
            self._batch.forget()
        values = self._batch.read() | links
        for flag in _FLAGS:
            if flag in values:
                values[flag] = values[flag] != 0
        if "recovery_action" in values:
            values["recovery_action"] = self._named(
                "recovery_action", RECOVERY_ACTIONS, int(values["recovery_action"])
            )
        read_scalars(self.query, [s for s in INSTEAD_OF_FIELDS if s.field not in values], values)
        return values

    def _utilization(self) -> Values:
        ratios = {}
        rates = self.query.call("gpu_utilization_ratio", "nvmlDeviceGetUtilizationRates")
        if rates is not None:
            ratios["gpu_utilization_ratio"] = rates.gpu / 100
            ratios["memory_utilization_ratio"] = rates.memory / 100
        for field, function in ENGINES.items():
            answer = self.query.call(field, function)
            if answer is not None:
                ratios[field] = answer[0] / 100  # [1] is the length of the sampling period
        return ratios

    def _throttle(self) -> Labelled | None:
        active = self.query.first(
            "throttle_active",
            ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        )
        if active is None:
            return None
        return {(reason,): float(active & bit != 0) for reason, bit in self._once.throttle_reasons.items()}

    def _fans(self) -> Labelled | None:
        speeds = {
            (str(fan),): self.query.number("fan_speed_ratio", "nvmlDeviceGetFanSpeed_v2", fan)
            for fan in range(self._once.fans)
        }
        return some({fan: None if percent is None else percent / 100 for fan, percent in speeds.items()})

    def _throughput(self) -> Values:
        field = gpm.THROUGHPUT
        if not self._pcie_throughput or (self._activity is not None and self._activity.tells(field)):
            return {}
        kilobytes = {
            (direction,): self.query.number(field, "nvmlDeviceGetPcieThroughput", counter)
            for direction, counter in (("tx", _TX), ("rx", _RX))
        }
        return {field: some({key: None if kb is None else kb * 1000 for key, kb in kilobytes.items()})}

    def _remap_banks(self) -> Labelled | None:
        banks = self.query.call("remap_banks", "nvmlDeviceGetRowRemapperHistogram")
        if banks is None:
            return None
        return {(name,): getattr(banks, name) for name in ("max", "high", "partial", "low", "none")}

    def _state(self, field: str, states: tuple[str, ...]) -> Labelled | None:
        number = self.query.number(field, "nvmlDeviceGetComputeMode")
        return None if number is None else self._named(field, states, number)

    def _named(self, field: str, states: tuple[str, ...], number: int) -> Labelled | None:
        if number < len(states):
            return state_set(states, states[number])
        self.query.library.errors[field, "implausible"] += 1
        return None


@dataclass(frozen=True, slots=True)
class Driver:
    """The versions common to all devices."""

    version: str | None
    cuda_version: str | None


def read_driver(library: Library) -> Driver:
    cuda = library.call("cuda_version", "nvmlSystemGetCudaDriverVersion_v2")
    return Driver(
        version=library.call("driver_version", "nvmlSystemGetDriverVersion") or None,
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def read_uuid(query: Query) -> str:
    """Raises DeviceLost when the device has no uuid."""
    uuid = query.call("uuid", "nvmlDeviceGetUUID")
    if not uuid:
        raise DeviceLost
    return str(uuid)


def read_identity(query: Query, index: int, driver: Driver) -> Gpu:
    pci = query.call("pci_bus_id", "nvmlDeviceGetPciInfo_v3")
    capability = query.call("compute_capability", "nvmlDeviceGetCudaComputeCapability")
    return Gpu(
        uuid=read_uuid(query),
        index=index,
        vendor="nvidia",
        model=_text(query, "model", "nvmlDeviceGetName") or "",
        pci_bus_id=None if pci is None else _decode(pci.busId) or None,
        serial=_text(query, "serial", "nvmlDeviceGetSerial"),
        vbios_version=_text(query, "vbios_version", "nvmlDeviceGetVbiosVersion"),
        driver_version=driver.version,
        cuda_version=driver.cuda_version,
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        minor_number=query.number("minor_number", "nvmlDeviceGetMinorNumber"),
    )


def _text(query: Query, field: str, function: str) -> str | None:
    return query.call(field, function) or None


def _decode(text: Any) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
