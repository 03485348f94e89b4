"""The GPUs of a snapshot and their GPU instances, each with the use of it by every container.

On a GPU with pods, a value that is known per pod is exported per pod, without a sample of the whole GPU. A
value that is not known per pod is exported once, with the pod's name if it is the only one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from gputally.metrics.compat import ProfileInput
from gputally.model import THROTTLE_REASONS, Charge, Labels, MigReading, Owner, Reading, Unknown, Use

_OfOwner = TypeVar("_OfOwner", Use, Charge)

NO_POD: Labels = ("", "", "")
Number = float | None


@dataclass(frozen=True, slots=True)
class PodUse:
    """Use of a device by one container of a pod."""

    pod: Labels
    """namespace, pod, container"""
    memory_used_bytes: int | None = None
    sm_ratio: float | None = None
    memory_ratio: float | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None
    energy_millijoules: int | None = None


_USE_FIELDS = ("memory_used_bytes", "sm_ratio", "memory_ratio", "encoder_ratio", "decoder_ratio")
_USE_VALUES = attrgetter(*_USE_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """A GPU, or one GPU instance of it (of an AMD GPU: one partition)."""

    reading: Reading
    mig: tuple[MigReading, ...] = ()
    """The MIG devices of the instance: one for each of its compute instances. Empty for a whole GPU."""
    instances: tuple["DeviceView", ...] = ()
    pods: tuple[PodUse, ...] = ()
    only_pod: Labels = NO_POD
    """The pod on the samples of values that are not known per pod."""
    alone: bool = False
    """Whether that pod is the only owner of processes as well."""
    energy_millijoules: int | None = None
    """By the GPU's own meter; None where pods on another die are charged for energy of that meter."""

    @property
    def profile(self) -> str:
        """Without the compute instance's share: 3g.20gb for 1c.3g.20gb."""
        name = next((mig.instance.profile for mig in self.mig if mig.instance.profile), "")
        share, _, rest = name.partition(".")
        return rest if share.endswith("c") and share[:-1].isdigit() else name

    @property
    def instance_id(self) -> str:
        return str(self.mig[0].instance.gpu_instance_id) if self.mig else ""

    def of_instance(self, field: str) -> Any:
        """A field of the MIG device. All compute instances of one GPU instance have the same value."""
        return next((value for mig in self.mig if (value := getattr(mig, field)) is not None), None)

    def engine_ratio(self, use: PodUse) -> float | None:
        """Share of time in which the engines were busy with the pod, 0 to 1.

        A sole owner has the value of the whole device. Otherwise it is the pod's SM utilisation; None
        on an AMD GPU whose driver does not sample processes.
        """
        ratio = use.sm_ratio
        if self.alone and use.pod == self.only_pod:
            gpu = self.reading
            measured = self.of_instance("graphics_active_ratio") if self.mig else gpu.graphics_active_ratio
            whole = None if self.mig else gpu.gpu_utilization_ratio
            ratio = next((one for one in (measured, ratio, whole) if one is not None), None)
        return None if ratio is None else min(ratio, 1.0)


OfGpu = Callable[[DeviceView], Number]
OfPod = Callable[[DeviceView, PodUse], Number]


def list_devices(inputs: ProfileInput) -> list[DeviceView]:
    """Every GPU, with its GPU instances in it."""
    snapshot = inputs.snapshot
    uses = _by_device(snapshot.uses)
    charges = _by_device(charge for charge in snapshot.charges if charge.active)
    ledgers = {ledger.uuid: ledger.energy_millijoules for ledger in snapshot.gpu_ledgers}
    charged_elsewhere = {
        reading.gpu.metered_by
        for reading in snapshot.readings
        for uuid in (reading.gpu.uuid, *(mig.instance.uuid for mig in reading.mig))
        if any(_pod_of(charge.owner) != NO_POD for charge in charges.get(uuid, ()))
    }

    def view(
        reading: Reading, mig: tuple[MigReading, ...], instances: tuple[DeviceView, ...] = ()
    ) -> DeviceView:
        gpu = reading.gpu
        uuids = [one.instance.uuid for one in mig] or [gpu.uuid]
        there = [use for uuid in uuids for use in uses.get(uuid, ())]
        owners = {_pod_of(use.owner) for use in there}
        pods = owners - {NO_POD}
        return DeviceView(
            reading=reading,
            mig=mig,
            instances=instances,
            pods=_pod_uses(there, (charge for uuid in uuids for charge in charges.get(uuid, ()))),
            only_pod=next(iter(pods)) if len(pods) == 1 else NO_POD,
            alone=len(owners) == len(pods) == 1,
            energy_millijoules=None
            if mig or gpu.uuid in charged_elsewhere
            else ledgers.get(gpu.uuid, reading.energy_millijoules),
        )

    found = []
    for reading in snapshot.readings:
        devices: dict[int, list[MigReading]] = {}
        for mig in reading.mig:
            devices.setdefault(mig.instance.gpu_instance_id, []).append(mig)
        found.append(view(reading, (), tuple(view(reading, tuple(some)) for some in devices.values())))
    return found


def _by_device(entries: Iterable[_OfOwner]) -> dict[str, list[_OfOwner]]:
    found: dict[str, list[_OfOwner]] = {}
    for entry in entries:
        found.setdefault(entry.uuid, []).append(entry)
    return found


def _pod_of(owner: Owner | Unknown) -> Labels:
    if isinstance(owner, Owner) and owner.kind == "pod":
        return (owner.namespace, owner.pod, owner.container)
    return NO_POD


def _pod_uses(uses: Iterable[Use], charges: Iterable[Charge]) -> tuple[PodUse, ...]:
    """One entry for each container of a pod, also where it is on several compute instances."""
    sums: dict[Labels, dict[str, float]] = {}
    for use in uses:
        _add(sums, use.owner, zip(_USE_FIELDS, _USE_VALUES(use), strict=True))
    for charge in charges:
        if charge.energy_millijoules is not None:
            _add(sums, charge.owner, [("energy_millijoules", sum(charge.energy_millijoules.values()))])
    return tuple(PodUse(pod, **values) for pod, values in sums.items())  # type: ignore[arg-type]


def _add(
    sums: dict[Labels, dict[str, float]], owner: Owner | Unknown, values: Iterable[tuple[str, float | None]]
) -> None:
    pod = _pod_of(owner)
    if pod == NO_POD:
        return
    total = sums.setdefault(pod, {})
    for name, value in values:
        if value is not None:
            total[name] = total.get(name, 0) + value


def last_xid(reading: Reading) -> int | None:
    """The code of the last XID error, the highest of simultaneous ones; 0 before the first.

    None where the reader does not report XID errors.
    """
    if reading.xid_errors is None:
        return None
    moments = reading.xid_last_timestamp_seconds or {}
    newest = max(reading.xid_errors, key=lambda key: (moments.get(key, 0.0), int(key[0])), default=("0",))
    return int(newest[0])


def reasons_mask(device: DeviceView) -> int | None:
    """NVML's bits, in the order of THROTTLE_REASONS."""
    active = device.reading.throttle_active
    if active is None:
        return None
    return sum(1 << bit for bit, reason in enumerate(THROTTLE_REASONS) if active.get((reason,)))


def used_ratio(device: DeviceView) -> float | None:
    """As in DCGM: used memory as a share of total without reserved memory."""
    reading = device.reading
    if reading.memory_used_bytes is None or reading.memory_total_bytes is None:
        return None
    usable = reading.memory_total_bytes - (reading.memory_reserved_bytes or 0)
    return reading.memory_used_bytes / usable if usable > 0 else None


def sum_link_errors(reading: Reading, kind: str) -> float | None:
    """Over all NVLinks."""
    counts = [count for (_, one), count in (reading.nvlink_errors or {}).items() if one == kind]
    return sum(counts) if counts else None


def one_of(field: str, *keys: Labels) -> OfGpu:
    """The value of the first of the keys that is present."""

    def value(device: DeviceView) -> Number:
        values = getattr(device.reading, field) or {}
        for key in keys:
            if key in values:
                found: float = values[key]
                return found
        return None

    return value


def pod_value(field: str) -> OfPod:
    return lambda _, use: getattr(use, field)
