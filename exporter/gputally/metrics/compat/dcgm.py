"""Profile `dcgm`: the names of dcgm-exporter up to 4.8; `build` serves both spellings of DCGM's fields."""

from collections.abc import Sequence
from dataclasses import dataclass

from gputally.metrics.catalog import Kind, Metric
from gputally.metrics.compat import ProfileInput, Row
from gputally.metrics.compat.columns import Scale
from gputally.metrics.compat.dcgm_fields import FIELDS, Field
from gputally.metrics.compat.device_views import DeviceView, PodUse, list_devices
from gputally.metrics.families import Family, Sample
from gputally.model import Labels


@dataclass(frozen=True, slots=True)
class Spelling:
    """A field in one spelling."""

    row: Row
    metric: Metric
    field: Field
    scale: Scale | None


@dataclass(frozen=True, slots=True)
class _LabelledDevice:
    """A device with the labels of its samples, for all fields."""

    device: DeviceView
    whole: Labels
    pods: tuple[tuple[PodUse, Labels], ...]
    instances: tuple["_LabelledDevice", ...]


def _old(field: Field) -> Spelling:
    row = Row(field.old, field.kind, _help(field, field.unit.old), field.ours)
    return Spelling(row, row.metric((*OLD_LABELS, *field.value_labels)), field, field.unit.to_old)


def _new(field: Field) -> Spelling:
    row = Row(field.new, field.new_kind or field.kind, _help(field, field.unit.new), field.ours)
    return Spelling(row, row.metric((*NEW_LABELS, *field.value_labels)), field, field.unit.to_new)


def _help(field: Field, unit: str) -> str:
    return f"{field.help} ({unit})." if unit else f"{field.help}."


_IDENTITY = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID")
_POD = ("container", "namespace", "pod")
# In dcgm-exporter's order. It omits empty ones, which is the same to Prometheus.
OLD_LABELS: Labels = (*_IDENTITY, "Hostname", "DCGM_FI_DRIVER_VERSION", *_POD)
NEW_LABELS: Labels = (*_IDENTITY, "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION", *_POD)

OLD = tuple(_old(field) for field in FIELDS if field.old)
NEW = tuple(_new(field) for field in FIELDS if field.new)

ROWS = tuple(one.row for one in OLD)


def families(inputs: ProfileInput) -> list[Family]:
    return build(inputs, OLD)


def build(inputs: ProfileInput, spellings: Sequence[Spelling]) -> list[Family]:
    """The families of these fields that have samples."""
    values = inputs.once(_DcgmValues)
    families = []
    for one in spellings:
        samples, scale = values.of(one.field), one.scale
        if samples:
            written = [(labels, scale(value)) for labels, value in samples] if scale else samples
            families.append(Family(one.metric, written))
    return families


class _DcgmValues:
    """Samples in the model's units, for both spellings: a field has the same label values in both."""

    def __init__(self, inputs: ProfileInput) -> None:
        self._gpus = [_with_labels(device, inputs.options.hostname) for device in inputs.once(list_devices)]
        self._known: dict[Field, list[Sample]] = {}

    def of(self, field: Field) -> list[Sample]:
        if field not in self._known:
            samples = [sample for gpu in self._gpus for sample in _samples(field, gpu)]
            if field.label_values is not None:
                samples = [((*labels, *field.label_values(value)), value) for labels, value in samples]
            self._known[field] = samples
        return self._known[field]


def _with_labels(device: DeviceView, hostname: str) -> _LabelledDevice:
    gpu = device.reading.gpu
    head = (
        str(gpu.index),
        gpu.uuid,
        gpu.pci_bus_id or "",
        f"{gpu.vendor}{gpu.index}",
        gpu.model,
        device.profile,
        device.instance_id,
        hostname,
        gpu.driver_version or "",
    )

    def labels(owner: Labels) -> Labels:
        namespace, pod, container = owner
        return (*head, container, namespace, pod)

    return _LabelledDevice(
        device,
        labels(device.only_pod),
        tuple((use, labels(use.pod)) for use in device.pods),
        tuple(_with_labels(instance, hostname) for instance in device.instances),
    )


def _samples(field: Field, gpu: _LabelledDevice) -> list[Sample]:
    found: list[Sample] = []
    for instance in gpu.instances:
        found += _of_pods(field, instance) or _of_device(field, instance)
    found += _of_pods(field, gpu)
    return found or _of_device(field, gpu)


def _of_pods(field: Field, labelled: _LabelledDevice) -> list[Sample]:
    of_pod = field.of_pod
    if of_pod is None:
        return []
    return [
        (labels, value)
        for use, labels in labelled.pods
        if (value := of_pod(labelled.device, use)) is not None
    ]


def _of_device(field: Field, labelled: _LabelledDevice) -> list[Sample]:
    device = labelled.device
    if device.pods and field.of_pod and field.kind is Kind.COUNTER:
        # A pod that has just started or ended has no count: the whole GPU's would be a jump in its series.
        return []
    if not device.mig:
        value = field.of_gpu(device)
    else:
        value = device.of_instance(field.of_instance) if field.of_instance else None
    return [] if value is None else [(labelled.whole, value)]
