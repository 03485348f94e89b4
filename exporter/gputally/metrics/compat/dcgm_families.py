"""Families of DCGM's fields in one of their two spellings."""

from collections.abc import Sequence
from dataclasses import dataclass

from gputally.metrics.catalog import Kind, Metric
from gputally.metrics.compat import Row, Scene
from gputally.metrics.compat.columns import Scale
from gputally.metrics.compat.dcgm_fields import FIELDS, Field
from gputally.metrics.compat.devices import Part, Place, list_places
from gputally.metrics.families import Family, Sample
from gputally.model import Labels


@dataclass(frozen=True, slots=True)
class Column:
    """A field in one spelling."""

    row: Row
    metric: Metric
    field: Field
    scale: Scale | None


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


def build(scene: Scene, columns: Sequence[Column]) -> list[Family]:
    """The families of these columns that have samples."""
    values = scene.once(_Values)
    families = []
    for column in columns:
        samples, scale = values.of(column.field), column.scale
        if samples:
            written = [(labels, scale(value)) for labels, value in samples] if scale else samples
            families.append(Family(column.metric, written))
    return families


class _Values:
    """Samples in the model's units, for both spellings: those of a field have the same labels in both."""

    def __init__(self, scene: Scene) -> None:
        self._gpus = [_spot(place, scene.options.hostname) for place in scene.once(list_places)]
        self._known: dict[Field, list[Sample]] = {}

    def of(self, field: Field) -> list[Sample]:
        if field not in self._known:
            self._known[field] = [sample for gpu in self._gpus for sample in _samples(field, gpu)]
        return self._known[field]


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


def _samples(field: Field, gpu: _Spot) -> list[Sample]:
    told: list[Sample] = []
    for instance in gpu.instances:
        told += _of_pods(field, instance) or _of_place(field, instance)
    told += _of_pods(field, gpu)
    return told or _of_place(field, gpu)


def _of_pods(field: Field, spot: _Spot) -> list[Sample]:
    of_pod = field.of_pod
    if of_pod is None:
        return []
    return [(labels, value) for part, labels in spot.pods if (value := of_pod(spot.place, part)) is not None]


def _of_place(field: Field, spot: _Spot) -> list[Sample]:
    place = spot.place
    if place.pods and field.of_pod and field.kind is Kind.COUNTER:
        # A pod that has just come or gone has no count now: the whole GPU's would be a jump in its series.
        return []
    if not place.mig:
        value = field.of_gpu(place)
    else:
        value = place.of_instance(field.of_instance) if field.of_instance else None
    return [] if value is None else [(spot.whole, value)]
