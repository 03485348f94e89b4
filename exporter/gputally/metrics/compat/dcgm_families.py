"""Families of DCGM's fields in one of their two spellings."""

from collections.abc import Sequence
from dataclasses import dataclass

from gputally.metrics.catalog import Metric
from gputally.metrics.compat import Options, Row
from gputally.metrics.compat.columns import Scale
from gputally.metrics.compat.dcgm_fields import FIELDS, Field
from gputally.metrics.compat.devices import Part, Place, list_places
from gputally.metrics.families import Family, Sample
from gputally.model import Labels, Snapshot


@dataclass(frozen=True, slots=True)
class Column:
    """A field in one spelling."""

    row: Row
    metric: Metric
    field: Field
    scale: Scale | None

    def write(self, value: float) -> float:
        return value if self.scale is None else self.scale(value)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place with the labels of its samples, made once for all columns."""

    place: Place
    whole: Labels
    pods: tuple[tuple[Part, Labels], ...]
    instances: tuple["_Spot", ...]


def _column(labels: Labels, field: Field, name: str, unit: str, scale: Scale | None) -> Column:
    help = f"{field.help} ({unit})." if unit else f"{field.help}."
    row = Row(name, field.kind, help, field.ours)
    return Column(row, row.metric(labels), field, scale)


_IDENTITY = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID")
_POD = ("container", "namespace", "pod")
# In dcgm-exporter's order. It leaves out those that are empty, which is the same to Prometheus.
OLD_LABELS: Labels = (*_IDENTITY, "Hostname", "DCGM_FI_DRIVER_VERSION", *_POD)
NEW_LABELS: Labels = (*_IDENTITY, "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION", *_POD)

OLD = tuple(_column(OLD_LABELS, f, f.old, f.unit.old, f.unit.to_old) for f in FIELDS if f.old)
NEW = tuple(_column(NEW_LABELS, f, f.new, f.unit.new, f.unit.to_new) for f in FIELDS if f.new)


def build(snapshot: Snapshot, options: Options, columns: Sequence[Column]) -> list[Family]:
    """The families of these columns that have samples."""
    gpus = [_spot(place, options.hostname) for place in list_places(snapshot)]
    families = (
        Family(column.metric, [sample for gpu in gpus for sample in _samples(column, gpu)])
        for column in columns
    )
    return [family for family in families if family.samples]


def _spot(place: Place, hostname: str) -> _Spot:
    gpu = place.reading.gpu
    head = (
        str(gpu.index),
        gpu.uuid,
        gpu.pci_bus_id or "",
        f"{gpu.vendor}{gpu.index}",
        gpu.model,
        place.profile,
        place.instance_id,
        hostname,
        gpu.driver_version or "",
    )

    def labels(owner: Labels) -> Labels:
        namespace, pod, container = owner
        return (*head, container, namespace, pod)

    return _Spot(
        place,
        labels(place.only_pod),
        tuple((part, labels(part.pod)) for part in place.pods),
        tuple(_spot(instance, hostname) for instance in place.instances),
    )


def _samples(column: Column, gpu: _Spot) -> list[Sample]:
    told: list[Sample] = []
    for instance in gpu.instances:
        told += _of_pods(column, instance) or _of_place(column, instance)
    told += _of_pods(column, gpu)
    return told or _of_place(column, gpu)


def _of_pods(column: Column, spot: _Spot) -> list[Sample]:
    of_pod = column.field.of_pod
    if of_pod is None:
        return []
    return [
        (labels, column.write(value))
        for part, labels in spot.pods
        if (value := of_pod(spot.place, part)) is not None
    ]


def _of_place(column: Column, spot: _Spot) -> list[Sample]:
    field, place = column.field, spot.place
    if not place.mig:
        value = field.of_gpu(place)
    else:
        value = place.of_instance(field.of_instance) if field.of_instance else None
    return [] if value is None else [(spot.whole, column.write(value))]
