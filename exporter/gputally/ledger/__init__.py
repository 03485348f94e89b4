"""The ledger: readings and owners over time -> what each owner used; exact, also over restarts.

For every GPU, always: the energy of all owners and the unattributed energy add up to its counter. `meter`
measures the energy of a window, `power` learns which part of it is idle power, `window` divides it among
owners, `accounts` keeps the totals of a GPU, and `state_file` stores them. There is no clock and, except in
`state_file`, no I/O: `sampling` feeds it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gputally.ledger.accounts import MOST_PROCESSES, DeviceSample, GpuAccounts
from gputally.ledger.meter import MeterSample
from gputally.model import (
    Charge,
    DeviceKey,
    GpuLedger,
    MigReading,
    Owner,
    ProcessCharge,
    Reading,
    Resident,
)

_SLICES = re.compile(r"(\d+)g\.")
_FINE = 1_000_000
MOST_OWNERS = 5000
"""Accounts of all GPUs: one for each device and owner. It bounds memory, the scrape and the state file."""


class Ledger:
    """All GPUs. `resume` is the `state()` of an exporter that ran before, on the same boot of this host."""

    def __init__(
        self,
        *,
        retention_seconds: float,
        max_window_seconds: float,
        process_accounts: bool = False,
        boot_id: str = "",
        resume: Mapping[str, Any] | None = None,
    ) -> None:
        self._retention_us = round(retention_seconds * 1_000_000)
        self._max_window_us = round(max_window_seconds * 1_000_000)
        self._process_accounts = process_accounts
        self._boot_id = boot_id
        self._gpus: dict[str, GpuAccounts] = {}
        self._resumable: dict[str, Any] = {}
        self._problems: Counter[tuple[str, str]] = Counter()
        if resume is not None and resume.get("boot_id") == boot_id:
            self._resumable = dict(resume["gpus"])

    def settle(
        self,
        *,
        at_us: int,
        suspended_us: int = 0,
        now_seconds: float,
        readings: Sequence[Reading],
        residents: Sequence[Resident],
        holders: Sequence[tuple[DeviceKey, Owner]],
    ) -> None:
        """Settles new readings, and the owners on the GPUs.

        `at_us` (monotonic) is the time of readings that have none of their own. `suspended_us` is the time
        for which the host was suspended since its boot: it was not observed.
        """
        on_device: dict[str, list[Resident]] = defaultdict(list)
        for resident in residents:
            on_device[resident.uuid].append(resident)
        held: dict[str, list[Owner]] = defaultdict(list)
        for (_, uuid), owner in holders:
            held[uuid].append(owner)
        uuids = {reading.gpu.uuid for reading in readings}
        room = self._make_room(len(residents) + len(holders))
        without_meter = [reading for reading in readings if reading.gpu.metered_by is not None]
        for reading in readings:
            # A GPU without a uuid was lost before the uuid could be read.
            if not reading.gpu.uuid or reading.gpu.metered_by in uuids:
                continue
            accounts = self._gpus.get(reading.gpu.uuid)
            if reading.up:
                read_at_us = at_us if reading.read_at_us is None else reading.read_at_us
                sample = _meter_sample(reading, read_at_us + suspended_us)
                accounts = accounts or self._open(reading.gpu.uuid, now_seconds)
                if self._resumable:
                    self._resume(accounts, sample)
                accounts.index = reading.gpu.index
                dies = [reading, *(one for one in without_meter if one.gpu.metered_by == reading.gpu.uuid)]
                others = sum(one.process_count for one in self._gpus.values() if one is not accounts)
                accounts.room_for_processes = MOST_PROCESSES - others
                room = accounts.settle(sample, _devices_of_dies(dies, on_device, held), room)
            elif accounts is not None:
                accounts.mark_inactive()

    def expire(self, at_us: int) -> None:
        """Closes the accounts of owners that have been gone for longer than the retention."""
        for accounts in self._gpus.values():
            accounts.expire_before(at_us - self._retention_us)

    def _make_room(self, wanted: int) -> int:
        """The number of accounts that can be opened; those of the longest gone owners are closed for it."""
        room = MOST_OWNERS - sum(gpu.owner_count for gpu in self._gpus.values())
        if room >= wanted:
            return room
        gone = sorted((seen_us, uuid) for uuid, gpu in self._gpus.items() for seen_us in gpu.gone_since_us())
        for seen_us, uuid in gone[: wanted - room]:
            closed = self._gpus[uuid].expire_before(seen_us + 1)
            self._problems["owners", "limit"] += closed
            room += closed
        return room

    def _open(self, uuid: str, now_seconds: float) -> GpuAccounts:
        accounts = self._gpus[uuid] = GpuAccounts(
            uuid, now_seconds, self._max_window_us, process_accounts=self._process_accounts
        )
        return accounts

    def _resume(self, accounts: GpuAccounts, sample: MeterSample) -> None:
        """Resumes if the state fits; a counter that cannot be read now may be readable at the next sample."""
        state = self._resumable.get(accounts.uuid)
        if state is None:
            return
        if accounts.meter.source is None:
            accounts.resume(state, sample)
        if accounts.meter.source is not None or sample.counter_millijoules is not None:
            del self._resumable[accounts.uuid]

    def gpu_ledgers(self) -> tuple[GpuLedger, ...]:
        return tuple(one for gpu in self._gpus.values() if (one := gpu.gpu_ledger()) is not None)

    def charges(self) -> tuple[Charge, ...]:
        return tuple(charge for gpu in self._gpus.values() for charge in gpu.charges())

    def processes(self) -> tuple[ProcessCharge, ...]:
        return tuple(charge for gpu in self._gpus.values() for charge in gpu.process_charges())

    def problems(self) -> Counter[tuple[str, str]]:
        """(field, error) -> how often an energy counter was implausible, or a limit was exceeded."""
        found = self._problems.copy()
        for gpu in self._gpus.values():
            found.update({("energy_millijoules", error): n for error, n in gpu.meter.problems.items()})
            found["owners", "limit"] += gpu.refused
            found["processes", "limit"] += gpu.processes_left_out
        return +found

    def state(self) -> dict[str, Any]:
        """The state to resume from, for JSON. It keeps GPUs that have not been seen since the last start."""
        gpus = {uuid: gpu.state() for uuid, gpu in self._gpus.items() if gpu.meter.settled}
        return {"boot_id": self._boot_id, "gpus": {**self._resumable, **gpus}}


def _meter_sample(reading: Reading, at_us: int) -> MeterSample:
    most_watts = max(
        reading.power_max_limit_watts or 0.0,
        reading.power_enforced_limit_watts or 0.0,
        reading.power_limit_watts or 0.0,
    )
    return MeterSample(
        at_us=at_us,
        counter_millijoules=reading.energy_millijoules,
        power_milliwatts=_milliwatts(reading.power_watts),
        most_milliwatts=_milliwatts(most_watts) or None,
    )


def _milliwatts(watts: float | None) -> int | None:
    return None if watts is None else round(watts * 1000)


def _devices_of_dies(
    dies: Sequence[Reading], on_device: Mapping[str, list[Resident]], held: Mapping[str, list[Owner]]
) -> list[DeviceSample]:
    """The devices that one meter measures. Several dies share its energy by their utilisation."""
    if len(dies) == 1:
        return _devices(dies[0], on_device, held)
    busy = [round(_FINE * (die.gpu_utilization_ratio or 0.0)) for die in dies]
    known = any(busy) and all(die.gpu_utilization_ratio is not None for die in dies)
    devices = [device for die in dies for device in _devices(replace(die, mig=()), on_device, held)]
    return [
        device._replace(weight=weight)
        for device, weight in zip(devices, busy if known else [1] * len(dies), strict=True)
    ]


def _devices(
    reading: Reading, on_device: Mapping[str, list[Resident]], held: Mapping[str, list[Owner]]
) -> list[DeviceSample]:
    if not reading.mig:
        uuid = reading.gpu.uuid
        return [
            DeviceSample(
                uuid,
                on_device.get(uuid, ()),
                held.get(uuid, ()),
                visible=reading.processes is not None,
                sampled=reading.process_samples is not None,
                active=_is_active(reading.gpu_utilization_ratio),
            )
        ]
    sizes = [_size(mig) for mig in reading.mig]
    known = all(mig.graphics_active_ratio is not None for mig in reading.mig)
    busy = [
        round(_FINE * (mig.graphics_active_ratio or 0.0)) * size
        for mig, size in zip(reading.mig, sizes, strict=True)
    ]
    return [
        DeviceSample(
            mig.instance.uuid,
            on_device.get(mig.instance.uuid, ()),
            held.get(mig.instance.uuid, ()),
            visible=mig.processes is not None,
            sampled=mig.process_samples is not None,
            weight=weight,
            size=size,
            active_ratio=mig.graphics_active_ratio,
            active=_is_active(mig.graphics_active_ratio),
        )
        for mig, weight, size in zip(reading.mig, busy if known and any(busy) else sizes, sizes, strict=True)
    ]


def _is_active(ratio: float | None) -> bool | None:
    return None if ratio is None else ratio > 0


def _size(mig: MigReading) -> int:
    """Its size, relative to the other MIG devices of the GPU."""
    slices = _SLICES.search(mig.instance.profile or "")
    return mig.multiprocessors or (int(slices[1]) if slices else 1)
