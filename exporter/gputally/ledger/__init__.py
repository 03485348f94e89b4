"""The ledger: readings and owners over time -> who used what, kept exact, over restarts.

For every GPU, always: owners and unattributed together are what its counter says. `meter` measures a window,
`window` says whose it was, `books` keeps the totals of a GPU and `state_file` writes them down. No clock and,
but for `state_file`, no I/O: whoever samples feeds it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gputally.ledger.books import GpuBooks, Part
from gputally.ledger.meter import Look
from gputally.model import Charge, GpuBook, MigReading, Owner, ProcessCharge, Reading, Resident

Device = tuple[int, str]  # index of the GPU, uuid of the GPU or MIG device
_SLICES = re.compile(r"(\d+)g\.")
_FINE = 1_000_000


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
        self._gpus: dict[str, GpuBooks] = {}
        self._resumable: dict[str, Any] = {}
        if resume is not None and resume.get("boot_id") == boot_id:
            self._resumable = dict(resume["gpus"])

    def settle(
        self,
        *,
        at_us: int,
        now_seconds: float,
        readings: Sequence[Reading],
        residents: Sequence[Resident],
        holders: Sequence[tuple[Device, Owner]],
    ) -> None:
        """Take in fresh readings, all of one moment (`at_us` is monotonic), and who was on the GPUs."""
        on_device: dict[str, list[Resident]] = defaultdict(list)
        for resident in residents:
            on_device[resident.uuid].append(resident)
        held: dict[str, list[Owner]] = defaultdict(list)
        for (_, uuid), owner in holders:
            held[uuid].append(owner)
        uuids = {reading.gpu.uuid for reading in readings}
        without_meter = [reading for reading in readings if reading.gpu.metered_by is not None]
        for reading in readings:
            # One without a uuid was lost before it said who it is.
            if not reading.gpu.uuid or reading.gpu.metered_by in uuids:
                continue
            books = self._gpus.get(reading.gpu.uuid)
            if reading.up:
                look = _look(reading, at_us)
                books = books or self._open(reading.gpu.uuid, now_seconds)
                if self._resumable:
                    self._resume(books, look)
                books.index = reading.gpu.index
                dies = [reading, *(one for one in without_meter if one.gpu.metered_by == reading.gpu.uuid)]
                books.settle(look, _parts_of_dies(dies, on_device, held))
            elif books is not None:
                books.rest()

    def retire(self, at_us: int) -> None:
        """Close the accounts of those who have been gone for longer than is to be remembered."""
        for books in self._gpus.values():
            books.retire(at_us, self._retention_us)

    def _open(self, uuid: str, now_seconds: float) -> GpuBooks:
        books = self._gpus[uuid] = GpuBooks(
            uuid, now_seconds, self._max_window_us, process_accounts=self._process_accounts
        )
        return books

    def _resume(self, books: GpuBooks, look: Look) -> None:
        """Unless the state does not fit; what cannot be read at the first look may be there at the next."""
        state = self._resumable.get(books.uuid)
        if state is None:
            return
        if books.meter.source is None:
            books.resume(state, look)
        if books.meter.source is not None or look.counter_millijoules is not None:
            del self._resumable[books.uuid]

    def books(self) -> tuple[GpuBook, ...]:
        return tuple(book for gpu in self._gpus.values() if (book := gpu.book()) is not None)

    def charges(self) -> tuple[Charge, ...]:
        return tuple(charge for gpu in self._gpus.values() for charge in gpu.charges())

    def processes(self) -> tuple[ProcessCharge, ...]:
        return tuple(charge for gpu in self._gpus.values() for charge in gpu.process_charges())

    def problems(self) -> Counter[tuple[str, str]]:
        """(field, error) -> how often a counter did what it must not."""
        found: Counter[tuple[str, str]] = Counter()
        for gpu in self._gpus.values():
            found.update({("energy_millijoules", error): n for error, n in gpu.meter.problems.items()})
        return found

    def state(self) -> dict[str, Any]:
        """What to go on from, for JSON. A GPU that has not been seen since the last start is kept in it."""
        gpus = {uuid: gpu.state() for uuid, gpu in self._gpus.items() if gpu.meter.settled}
        return {"boot_id": self._boot_id, "gpus": {**self._resumable, **gpus}}


def _look(reading: Reading, at_us: int) -> Look:
    most_watts = max(
        reading.power_max_limit_watts or 0.0,
        reading.power_enforced_limit_watts or 0.0,
        reading.power_limit_watts or 0.0,
    )
    return Look(
        at_us=at_us,
        counter_millijoules=reading.energy_millijoules,
        power_milliwatts=_milliwatts(reading.power_watts),
        most_milliwatts=_milliwatts(most_watts) or None,
    )


def _milliwatts(watts: float | None) -> int | None:
    return None if watts is None else round(watts * 1000)


def _parts_of_dies(
    dies: Sequence[Reading], on_device: Mapping[str, list[Resident]], held: Mapping[str, list[Owner]]
) -> list[Part]:
    """The parts of all that one meter measures. Several dies share its energy by how busy they were."""
    if len(dies) == 1:
        return _parts(dies[0], on_device, held)
    busy = [round(_FINE * (die.gpu_utilization_ratio or 0.0)) for die in dies]
    told = any(busy) and all(die.gpu_utilization_ratio is not None for die in dies)
    parts = [part for die in dies for part in _parts(replace(die, mig=()), on_device, held)]
    return [
        part._replace(weight=weight)
        for part, weight in zip(parts, busy if told else [1] * len(dies), strict=True)
    ]


def _parts(
    reading: Reading, on_device: Mapping[str, list[Resident]], held: Mapping[str, list[Owner]]
) -> list[Part]:
    if not reading.mig:
        uuid = reading.gpu.uuid
        return [
            Part(
                uuid,
                on_device.get(uuid, ()),
                held.get(uuid, ()),
                visible=reading.processes is not None,
                sampled=reading.process_samples is not None,
            )
        ]
    sizes = [_size(mig) for mig in reading.mig]
    told = all(mig.graphics_active_ratio is not None for mig in reading.mig)
    worked = [
        round(_FINE * (mig.graphics_active_ratio or 0.0)) * size
        for mig, size in zip(reading.mig, sizes, strict=True)
    ]
    return [
        Part(
            mig.instance.uuid,
            on_device.get(mig.instance.uuid, ()),
            held.get(mig.instance.uuid, ()),
            visible=mig.processes is not None,
            sampled=mig.process_samples is not None,
            weight=weight,
            active_ratio=mig.graphics_active_ratio,
        )
        for mig, weight in zip(reading.mig, worked if told and any(worked) else sizes, strict=True)
    ]


def _size(mig: MigReading) -> int:
    """How big a piece of its GPU it is, compared with the others."""
    slices = _SLICES.search(mig.instance.profile or "")
    return mig.multiprocessors or (int(slices[1]) if slices else 1)
