"""Snapshot -> metric families: pure, driven by the catalog, and silent where the model says None."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gputally.metrics.catalog import (
    BOOK_METRICS,
    EXPORTER_METRICS,
    GPU_METRICS,
    HOST_CHARGES,
    HOST_METRICS,
    MIG_METRICS,
    NODE_INFO,
    POD_CHARGES,
    POD_INFO,
    POD_METRICS,
    PROCESS_METRICS,
    SOURCE_METRICS,
    UNKNOWN_METRICS,
    Metric,
    Scope,
)
from gputally.model import (
    Charge,
    Gpu,
    GpuBook,
    Labelled,
    Labels,
    MigReading,
    Owner,
    PodOnGpu,
    ProcessCharge,
    Reading,
    Snapshot,
    Unknown,
    Use,
)

Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples: label values in the order of `metric.labels`."""

    metric: Metric
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterFacts:
    """What the exporter says of itself."""

    version: str
    python: str
    hostname: str
    cpu_seconds: float | None = None
    resident_memory_bytes: int | None = None
    open_fds: int | None = None
    start_time_seconds: float | None = None


def build_families(snapshot: Snapshot, exporter: ExporterFacts) -> list[Family]:
    """Every metric that has at least one sample."""
    sources_of_energy = {book.uuid: book.energy_source for book in snapshot.books}
    families = [
        *(
            _family(metric, _gpu_samples(metric, snapshot.readings, sources_of_energy))
            for metric in GPU_METRICS
        ),
        *(_family(metric, _book_samples(metric, snapshot.books)) for metric in BOOK_METRICS),
        *(_family(metric, _mig_samples(metric, snapshot.readings)) for metric in MIG_METRICS),
    ]
    uses, charges = _by_scope(snapshot.uses), _by_scope(snapshot.charges)
    for uses_of, charges_of in (
        (POD_METRICS, POD_CHARGES),
        (HOST_METRICS, HOST_CHARGES),
        (UNKNOWN_METRICS, ()),
    ):
        families += (_family(metric, _owner_samples(metric, uses)) for metric in uses_of)
        families += (_family(metric, _owner_samples(metric, charges)) for metric in charges_of)
    families += (_pod_info(snapshot.pods), _node_info(snapshot.node_labels))
    processes = [(_process_labels(process), process) for process in snapshot.processes]
    families += (_family(metric, _process_samples(metric, processes)) for metric in PROCESS_METRICS)
    families += (_family(metric, _source_samples(metric, snapshot)) for metric in SOURCE_METRICS)
    families += (
        _family(metric, _exporter_samples(metric, snapshot, exporter)) for metric in EXPORTER_METRICS
    )
    return [family for family in families if family.samples]


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = Family(metric, list(samples))
    width = len(metric.labels)
    if any(len(labels) != width for labels, _ in family.samples):
        raise ValueError(f"{metric.name}: a sample does not have the labels {metric.labels}")
    return family


def _expand(metric: Metric, scope: Labels, value: Any) -> Iterator[Sample]:
    if value is None:
        return
    if isinstance(value, Mapping):
        for labels, number in value.items():
            yield scope + labels, number / metric.per
    else:
        yield scope, value / metric.per if metric.per != 1 else value


def _gpu_samples(
    metric: Metric, readings: Sequence[Reading], sources_of_energy: Mapping[str, str]
) -> Iterator[Sample]:
    value_of = _GPU_VALUES.get(metric.field) or _attribute(metric.field)
    for reading in readings:
        scope = (str(reading.gpu.index), reading.gpu.uuid)
        if metric.field == "info":
            yield scope + _gpu_facts(reading.gpu, sources_of_energy.get(reading.gpu.uuid, "")), 1
        else:
            yield from _expand(metric, scope, value_of(reading))


def _book_samples(metric: Metric, books: Sequence[GpuBook]) -> Iterator[Sample]:
    for book in books:
        yield from _expand(metric, (str(book.gpu_index), book.uuid), getattr(book, metric.field))


def _mig_samples(metric: Metric, readings: Sequence[Reading]) -> Iterator[Sample]:
    value_of = _MIG_VALUES.get(metric.field) or _attribute(metric.field)
    for reading in readings:
        for mig in reading.mig:
            scope = (str(mig.instance.parent_index), mig.instance.uuid)
            yield from _expand(metric, scope, value_of(mig))


_ByScope = Mapping[Scope, Sequence[tuple[Labels, Use | Charge]]]


def _by_scope(entries: Iterable[Use | Charge]) -> _ByScope:
    found: dict[Scope, list[tuple[Labels, Use | Charge]]] = {}
    for entry in entries:
        scope, labels = _owner_scope(entry.owner)
        found.setdefault(scope, []).append(((str(entry.gpu_index), entry.uuid, *labels), entry))
    return found


def _owner_samples(metric: Metric, entries: _ByScope) -> Iterator[Sample]:
    for labels, entry in entries.get(metric.scope, ()):
        yield from _expand(metric, labels, getattr(entry, metric.field))


def _owner_scope(owner: Owner | Unknown) -> tuple[Scope, Labels]:
    if isinstance(owner, Unknown):
        return Scope.UNKNOWN, (owner.reason,)
    if owner.kind == "pod":
        return Scope.POD, (owner.namespace, owner.pod, owner.container)
    return Scope.HOST, (owner.name,)


def _pod_info(pods: Sequence[PodOnGpu]) -> Family:
    """The allowed labels of all pods become label names; a pod without one of them has it empty."""
    columns = _columns(name for pod in pods for name, _ in pod.labels)
    metric = replace(POD_INFO, extra_labels=(*POD_INFO.extra_labels, *columns))
    samples: list[Sample] = []
    for pod in pods:
        requested = {None: "", True: "true", False: "false"}[pod.requested]
        facts = (pod.namespace, pod.pod, pod.pod_uid, pod.node, pod.workload, requested)
        labels = dict(pod.labels)
        samples.append(((*facts, *(labels.get(name, "") for name in columns.values())), 1))
    return _family(metric, samples)


def _node_info(labels: tuple[tuple[str, str], ...]) -> Family:
    columns, values = _columns(name for name, _ in labels), dict(labels)
    metric = replace(NODE_INFO, extra_labels=tuple(columns))
    return _family(metric, [(tuple(values[name] for name in columns.values()), 1)] if labels else [])


def _columns(names: Iterable[str]) -> dict[str, str]:
    """Prometheus label -> Kubernetes label; of two that would be called the same, the first."""
    columns: dict[str, str] = {}
    for name in sorted(set(names)):
        columns.setdefault(_label_name(name), name)
    return columns


def _label_name(name: str) -> str:
    """A pod label as a Prometheus label, as kube-state-metrics writes it."""
    return "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _source_samples(metric: Metric, snapshot: Snapshot) -> Iterator[Sample]:
    for source in snapshot.sources:
        yield from _expand(metric, (source.name,), getattr(source, metric.field))


def _exporter_samples(metric: Metric, snapshot: Snapshot, exporter: ExporterFacts) -> Iterator[Sample]:
    if metric.field == "info":
        yield (exporter.version, exporter.python, exporter.hostname), 1
        return
    holder = snapshot if hasattr(snapshot, metric.field) else exporter
    yield from _expand(metric, (), getattr(holder, metric.field))


def _process_labels(process: ProcessCharge) -> Labels:
    scope, labels = _owner_scope(process.owner)
    owner = {Scope.POD: (*labels, ""), Scope.HOST: ("", "", "", *labels)}.get(scope, ("", "", "", ""))
    return (str(process.gpu_index), process.uuid, str(process.pid), process.name, *owner)


def _process_samples(metric: Metric, processes: Sequence[tuple[Labels, ProcessCharge]]) -> Iterator[Sample]:
    for labels, process in processes:
        yield from _expand(metric, labels, getattr(process, metric.field))


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda holder: getattr(holder, name)


def _gpu_facts(gpu: Gpu, energy_source: str) -> Labels:
    facts = (
        gpu.vendor,
        gpu.model,
        gpu.pci_bus_id,
        gpu.serial,
        gpu.vbios_version,
        gpu.driver_version,
        gpu.cuda_version,
        gpu.compute_capability,
        gpu.minor_number,
        "true" if gpu.simulated else "false",
        energy_source,
    )
    return tuple("" if fact is None else str(fact) for fact in facts)


def _mig_info(mig: MigReading) -> Labelled:
    instance = mig.instance
    labels = (
        instance.parent_uuid,
        instance.profile or "",
        str(instance.gpu_instance_id),
        str(instance.compute_instance_id),
    )
    return {labels: 1}


def _process_count(holder: Reading | MigReading) -> Labelled | None:
    """How many processes of each kind; plain compute is always there, so that no process reads 0."""
    if holder.processes is None:
        return None
    counts: dict[Labels, float] = {("compute",): 0}
    for process in holder.processes:
        counts[(process.kind,)] = counts.get((process.kind,), 0) + 1
    return counts


_GPU_VALUES: dict[str, Callable[[Any], Any]] = {"process_count": _process_count}
_MIG_VALUES: dict[str, Callable[[Any], Any]] = {"info": _mig_info, "process_count": _process_count}
