"""The JSON document of a snapshot (docs/live.md): `/api/v1/snapshot`, and each message of the stream."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputally.devices.vendors import vendor_of
from gputally.model import (
    BASES,
    SLOWDOWNS,
    UNATTRIBUTED,
    Charge,
    GpuLedger,
    MigReading,
    Owner,
    ProcessCharge,
    Reading,
    Snapshot,
    SourceState,
    Unknown,
)
from gputally.pages.about import About as About  # noqa: PLC0414  # for those who build documents
from gputally.pages.faults import CRITICAL, WARNING, Fault, faults_of
from gputally.printable import printable

VERSION = 1
MOST_OWNERS = 64
"""On one GPU; the rest are counted."""
MOST_PROCESSES = 64
"""Of one owner on one device."""
OK, WAITING = "ok", "waiting"

Json = dict[str, Any]
OwnerKey = tuple[str, ...]
"""Device, kind and names: as in the labels of a series."""


def build_document(snapshot: Snapshot, previous: Snapshot | None, about: About) -> Json:
    """For JSON. `previous` is the snapshot before: the power of an owner is its energy since then."""
    now = snapshot.taken_at_seconds
    owners = _Owners(snapshot, previous, about)
    ledgers = {ledger.uuid: ledger for ledger in snapshot.gpu_ledgers}
    readings = sorted(snapshot.readings, key=lambda one: (one.gpu.vendor, one.gpu.index))
    gpus = [
        _gpu(reading, faults_of(reading, snapshot.sources, now), ledgers.get(reading.gpu.uuid), owners)
        for reading in readings
    ]
    return {
        "version": VERSION,
        "taken_at_seconds": round(now, 3),
        "age_seconds": round(snapshot.age_seconds, 3),
        "exporter": {
            "version": about.version,
            "hostname": printable(about.hostname),
            "interval_seconds": about.interval_seconds,
            "simulated": any(reading.gpu.simulated for reading in readings),
        },
        "severity": _severity(snapshot, gpus),
        "summary": _summary(snapshot, gpus),
        "gpus": gpus,
        "sources": [_source(source) for source in snapshot.sources],
        "links": [{"title": title, "url": url} for title, url in about.links],
    }


def _severity(snapshot: Snapshot, gpus: Sequence[Json]) -> str:
    if not snapshot.sources:
        return WAITING
    found = {gpu["severity"] for gpu in gpus}
    if CRITICAL in found or (not gpus and not all(source.up for source in snapshot.sources)):
        return CRITICAL
    healthy = all(source.up for source in snapshot.sources) and found == {OK}
    return OK if healthy else WARNING


def _summary(snapshot: Snapshot, gpus: Sequence[Json]) -> str:
    if not snapshot.sources:
        return "waiting for the first sample"
    if not gpus:
        return "no GPU found"
    lost = sum(not gpu["up"] for gpu in gpus)
    ill = sum(gpu["severity"] != OK for gpu in gpus) - lost
    down = sum(not source.up for source in snapshot.sources)
    parts = [
        f"{lost} of {_count(len(gpus), 'GPU')} lost" if lost else f"{_count(len(gpus), 'GPU')} up",
        f"{ill} with a fault" if ill else "",
        f"{_count(down, 'source')} down" if down else "",
    ]
    return ", ".join(filter(None, parts))


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _gpu(reading: Reading, faults: Sequence[Fault], ledger: GpuLedger | None, owners: "_Owners") -> Json:
    gpu = reading.gpu
    devices = (gpu.uuid, *(mig.instance.uuid for mig in reading.mig))
    listed, left_out = owners.on(devices)
    clocks, throttled = reading.clock_hertz or {}, reading.throttle_active
    limit = reading.power_enforced_limit_watts
    return {
        "index": gpu.index,
        "uuid": printable(gpu.uuid),
        "vendor": gpu.vendor,
        "model": printable(gpu.model),
        "pci_bus_id": _printable(gpu.pci_bus_id),
        "driver_version": _printable(gpu.driver_version),
        "simulated": gpu.simulated,
        "up": reading.up,
        "severity": faults[0].severity if faults else OK,
        "faults": [
            {**fault._asdict(), "reason": printable(fault.reason), "fix": printable(fault.fix)}
            for fault in faults
        ],
        "utilization_ratio": reading.gpu_utilization_ratio,
        "sm_active_ratio": _rounded(reading.sm_active_ratio, 4),
        "tensor_active_ratio": _rounded(reading.tensor_active_ratio, 4),
        "dram_active_ratio": _rounded(reading.dram_active_ratio, 4),
        "memory_used_bytes": reading.memory_used_bytes,
        "memory_total_bytes": reading.memory_total_bytes,
        "power_watts": reading.power_watts,
        "power_limit_watts": reading.power_limit_watts if limit is None else limit,
        "temperature_celsius": reading.temperature_celsius,
        "memory_temperature_celsius": reading.memory_temperature_celsius,
        "temperature_slowdown_celsius": reading.temperature_slowdown_celsius,
        "graphics_clock_hertz": clocks.get(("graphics",)),
        "memory_clock_hertz": clocks.get(("memory",)),
        "throttle_reasons": None
        if throttled is None
        else [reason for (reason,), active in throttled.items() if active and reason in SLOWDOWNS],
        "energy_joules": ledger and ledger.energy_millijoules / 1000,
        "energy_source": ledger and ledger.energy_source,
        "unattributed_joules": ledger
        and {reason: ledger.unattributed_millijoules.get((reason,), 0) / 1000 for reason in UNATTRIBUTED},
        "mig": [_partition(gpu.vendor, mig) for mig in reading.mig],
        "owners": listed,
        "owners_left_out": left_out,
    }


def _partition(vendor: str, reading: MigReading) -> Json:
    instance = reading.instance
    name = vendor_of(vendor).partition_label.format(
        number=instance.gpu_instance_id, profile=instance.profile or ""
    )
    busy = reading.graphics_active_ratio if reading.sm_active_ratio is None else reading.sm_active_ratio
    return {
        "uuid": printable(instance.uuid),
        "name": printable(name.strip()),
        "profile": _printable(instance.profile),
        "utilization_ratio": _rounded(busy, 4),
        "memory_used_bytes": reading.memory_used_bytes,
        "memory_total_bytes": reading.memory_total_bytes,
    }


def _source(source: SourceState) -> Json:
    return {
        "name": printable(source.name),
        "up": source.up,
        "reason": printable(source.reason),
        "fix": printable(source.fix),
        "gpus": source.gpus,
        "duration_seconds": _rounded(source.duration_seconds, 6),
        "last_success_seconds": _rounded(source.last_success_seconds, 3),
        "failures": source.failures,
        "overruns": source.overruns,
    }


class _Owners:
    """The owners on each device: their use now, what they have been charged, and their processes."""

    def __init__(self, snapshot: Snapshot, previous: Snapshot | None, about: About) -> None:
        self._about = about
        self._uses = {_key(use.uuid, use.owner): use for use in snapshot.uses}
        self._charges = {_key(charge.uuid, charge.owner): charge for charge in snapshot.charges}
        self._pods = {(pod.namespace, pod.pod): pod for pod in snapshot.pods}
        self._processes: dict[OwnerKey, list[ProcessCharge]] = defaultdict(list)
        if about.processes:
            for process in snapshot.processes:
                if process.active:
                    self._processes[_key(process.uuid, process.owner)].append(process)
        self._before = _Before(previous, snapshot)
        self._on_device: dict[str, list[OwnerKey]] = defaultdict(list)
        for key in {**self._uses, **self._charges}:
            if self._is_shown(key):
                self._on_device[key[0]].append(key)

    def on(self, devices: Iterable[str]) -> tuple[list[Json], int]:
        """The owners on a GPU, those that hold it first, then by energy; and how many are left out."""
        found = [self._owner(key) for device in devices for key in self._on_device[device]]
        found.sort(key=lambda one: (not one["active"], -(one["energy_joules"] or 0)))
        return found[:MOST_OWNERS], max(0, len(found) - MOST_OWNERS)

    def _is_shown(self, key: OwnerKey) -> bool:
        kind = key[1]
        if kind == "pod":
            return self._about.pods
        return self._about.unattributed if kind == "unknown" else self._about.hosts

    def _owner(self, key: OwnerKey) -> Json:
        use, charge = self._uses.get(key), self._charges.get(key)
        owner = (use or charge).owner  # type: ignore[union-attr]  # the key is of one of them
        energy = charge.energy_millijoules if charge else None
        return {
            "uuid": printable(key[0]),
            **self._names(owner),
            "active": use is not None if charge is None else charge.active,
            "processes": use and use.processes,
            "memory_used_bytes": use and use.memory_used_bytes,
            "sm_utilization_ratio": use and _rounded(use.sm_ratio, 4),
            "power_watts": self._before.watts(key, None if energy is None else sum(energy.values())),
            "energy_joules": None if energy is None else sum(energy.values()) / 1000,
            "energy_basis_joules": None
            if energy is None
            else {basis: energy.get((basis,), 0) / 1000 for basis in BASES},
            "held_seconds": charge and charge.held_microseconds / 1e6,
            "busy_seconds": None
            if charge is None or charge.busy_microseconds is None
            else charge.busy_microseconds / 1e6,
            "process_list": self._process_list(key) if self._about.processes else None,
        }

    def _names(self, owner: Owner | Unknown) -> Json:
        if isinstance(owner, Unknown):
            return {**_NAMES, "kind": "unknown", "reason": owner.reason}
        if owner.kind != "pod":
            return {**_NAMES, "kind": owner.kind, "owner": printable(owner.name)}
        pod = self._pods.get((owner.namespace, owner.pod))
        return {
            **_NAMES,
            "kind": "pod",
            "namespace": printable(owner.namespace),
            "pod": printable(owner.pod),
            "container": printable(owner.container),
            "workload": printable(pod.workload) if pod else "",
            "allocated": pod.requested if pod else None,
        }

    def _process_list(self, key: OwnerKey) -> list[Json]:
        processes = sorted(self._processes[key], key=lambda one: -(one.energy_millijoules or 0))
        return [
            {
                "pid": one.pid,
                "name": printable(one.name),
                "memory_used_bytes": one.memory_used_bytes,
                "sm_utilization_ratio": _rounded(one.sm_ratio, 4),
                "power_watts": self._before.process_watts(one),
                "energy_joules": None if one.energy_millijoules is None else one.energy_millijoules / 1000,
                "started_at_seconds": one.started_at_seconds,
            }
            for one in processes[:MOST_PROCESSES]
        ]


_NAMES: Json = {
    "kind": "",
    "namespace": "",
    "pod": "",
    "container": "",
    "owner": "",
    "reason": "",
    "workload": "",
    "allocated": None,
}


class _Before:
    """The energy of owners and processes at the snapshot before, and so their power.

    An owner's part of the GPU's energy since then is its part of the GPU's power: unlike energy by time, that
    is exact however unevenly the samples were taken.
    """

    def __init__(self, previous: Snapshot | None, snapshot: Snapshot) -> None:
        self._seconds = 0.0
        self._energy: Mapping[OwnerKey, int] = {}
        self._processes: Mapping[tuple[str, int], int] = {}
        self._used: dict[str, int] = {}
        self._meter_of: dict[str, str] = {}
        self._power_of: dict[str, float | None] = {}
        if previous is None:
            return
        self._seconds = snapshot.taken_at_seconds - previous.taken_at_seconds
        self._energy = {_key(one.uuid, one.owner): _millijoules(one) for one in previous.charges}
        self._processes = {(one.uuid, one.pid): one.energy_millijoules or 0 for one in previous.processes}
        before = {ledger.uuid: ledger.energy_millijoules for ledger in previous.gpu_ledgers}
        for ledger in snapshot.gpu_ledgers:
            self._used[ledger.uuid] = ledger.energy_millijoules - before.get(
                ledger.uuid, ledger.energy_millijoules
            )
        for reading in snapshot.readings:
            meter = reading.gpu.metered_by or reading.gpu.uuid
            self._power_of[reading.gpu.uuid] = reading.power_watts
            for uuid in (reading.gpu.uuid, *(mig.instance.uuid for mig in reading.mig)):
                self._meter_of[uuid] = meter

    def watts(self, key: OwnerKey, millijoules: float | None) -> float | None:
        return self._watts(key[0], millijoules, self._energy.get(key, 0))

    def process_watts(self, process: ProcessCharge) -> float | None:
        before = self._processes.get((process.uuid, process.pid), 0)
        return self._watts(process.uuid, process.energy_millijoules, before)

    def _watts(self, device: str, now: float | None, before: int) -> float | None:
        meter = self._meter_of.get(device, "")
        used = self._used.get(meter, 0)
        # Without a new reading of the GPU nothing was charged, which is not 0 W.
        if now is None or now < before or used <= 0 or self._seconds <= 0:
            return None
        power = self._power_of.get(meter)
        if power is None:
            return round((now - before) / 1000 / self._seconds, 1)
        return round(power * min(1.0, (now - before) / used), 1)


def _key(uuid: str, owner: Owner | Unknown) -> OwnerKey:
    if isinstance(owner, Unknown):
        return uuid, "unknown", owner.reason
    if owner.kind == "pod":
        return uuid, "pod", owner.namespace, owner.pod, owner.container
    return uuid, owner.kind, owner.name


def _millijoules(charge: Charge) -> int:
    return round(sum((charge.energy_millijoules or {}).values()))


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)
