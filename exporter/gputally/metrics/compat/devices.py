"""The GPUs of a snapshot and their GPU instances, each with what every container of a pod does on it.

Of a GPU with pods, whatever can be told of a pod is told of the pod, and the whole GPU's value is not
added on top. What cannot be told of a pod is said once: with the pod's name if it is the only one there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from gputally.metrics.compat import Scene
from gputally.model import Charge, Labels, MigReading, Owner, Reading, Unknown, Use

Whose = Owner | Unknown
_Entry = TypeVar("_Entry", Use, Charge)

NO_POD: Labels = ("", "", "")


@dataclass(frozen=True, slots=True)
class Part:
    """What one container of a pod does on a place."""

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
class Place:
    """A GPU, or one GPU instance of it (of an AMD GPU: one partition)."""

    reading: Reading
    mig: tuple[MigReading, ...] = ()
    """The MIG devices of the instance: one for each of its compute instances. Empty for a whole GPU."""
    instances: tuple["Place", ...] = ()
    pods: tuple[Part, ...] = ()
    only_pod: Labels = NO_POD
    """The pod that what cannot be told of a pod is labelled with."""
    alone: bool = False
    """Whether that pod is the only owner there, too."""
    energy_millijoules: int | None = None
    """By the GPU's own meter; None where pods on another die are charged for what that meter counts."""

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
        """A field of the MIG device. Compute instances of one GPU instance all read the same."""
        return next((value for mig in self.mig if (value := getattr(mig, field)) is not None), None)

    def engine_ratio(self, part: Part) -> float | None:
        """Share of time for which the pod had the engines, 0 to 1.

        Whoever is alone has all that was measured of the device. Otherwise its SM use, which is the
        driver's count of the same; of an AMD GPU whose driver does not sample processes, nothing.
        """
        ratio = part.sm_ratio
        if self.alone and part.pod == self.only_pod:
            gpu = self.reading
            measured = self.of_instance("graphics_active_ratio") if self.mig else gpu.graphics_active_ratio
            whole = None if self.mig else gpu.gpu_utilization_ratio
            ratio = next((one for one in (measured, ratio, whole) if one is not None), None)
        return None if ratio is None else min(ratio, 1.0)


def list_places(scene: Scene) -> list[Place]:
    """Every GPU, with its GPU instances in it."""
    snapshot = scene.snapshot
    uses = _by_device(snapshot.uses)
    charges = _by_device(charge for charge in snapshot.charges if charge.active)
    books = {book.uuid: book.energy_millijoules for book in snapshot.books}
    dealt = {
        reading.gpu.metered_by
        for reading in snapshot.readings
        for uuid in (reading.gpu.uuid, *(mig.instance.uuid for mig in reading.mig))
        if any(_pod_of(charge.owner) != NO_POD for charge in charges.get(uuid, ()))
    }

    def place(reading: Reading, mig: tuple[MigReading, ...], instances: tuple[Place, ...] = ()) -> Place:
        gpu = reading.gpu
        uuids = [one.instance.uuid for one in mig] or [gpu.uuid]
        there = [use for uuid in uuids for use in uses.get(uuid, ())]
        owners = {_pod_of(use.owner) for use in there}
        pods = owners - {NO_POD}
        return Place(
            reading=reading,
            mig=mig,
            instances=instances,
            pods=_parts(there, (charge for uuid in uuids for charge in charges.get(uuid, ()))),
            only_pod=next(iter(pods)) if len(pods) == 1 else NO_POD,
            alone=len(owners) == len(pods) == 1,
            energy_millijoules=None
            if mig or gpu.uuid in dealt
            else books.get(gpu.uuid, reading.energy_millijoules),
        )

    found = []
    for reading in snapshot.readings:
        devices: dict[int, list[MigReading]] = {}
        for mig in reading.mig:
            devices.setdefault(mig.instance.gpu_instance_id, []).append(mig)
        found.append(place(reading, (), tuple(place(reading, tuple(some)) for some in devices.values())))
    return found


def _by_device(entries: Iterable[_Entry]) -> dict[str, list[_Entry]]:
    found: dict[str, list[_Entry]] = {}
    for entry in entries:
        found.setdefault(entry.uuid, []).append(entry)
    return found


def _pod_of(owner: Whose) -> Labels:
    if isinstance(owner, Owner) and owner.kind == "pod":
        return (owner.namespace, owner.pod, owner.container)
    return NO_POD


def _parts(uses: Iterable[Use], charges: Iterable[Charge]) -> tuple[Part, ...]:
    """One part for each container of a pod, also where it is on several compute instances."""
    sums: dict[Labels, dict[str, float]] = {}
    for use in uses:
        _add(sums, use.owner, zip(_USE_FIELDS, _USE_VALUES(use), strict=True))
    for charge in charges:
        if charge.energy_millijoules is not None:
            _add(sums, charge.owner, [("energy_millijoules", sum(charge.energy_millijoules.values()))])
    return tuple(Part(pod, **values) for pod, values in sums.items())  # type: ignore[arg-type]


def _add(
    sums: dict[Labels, dict[str, float]], owner: Whose, values: Iterable[tuple[str, float | None]]
) -> None:
    pod = _pod_of(owner)
    if pod == NO_POD:
        return
    part = sums.setdefault(pod, {})
    for name, value in values:
        if value is not None:
            part[name] = part.get(name, 0) + value
