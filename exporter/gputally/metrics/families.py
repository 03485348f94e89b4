"""Snapshot -> metric families: pure, driven by the catalog, and silent where the model says None."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
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


Holders = Sequence[tuple[Labels, Any]]
"""What has the fields that fill a metric, after the leading labels of its samples."""
ValueOf = Callable[[Any], Any]


def build_families(snapshot: Snapshot, exporter: ExporterFacts) -> list[Family]:
    """Every metric that has at least one sample."""
    sources_of_energy = {book.uuid: book.energy_source for book in snapshot.books}
    readings = [((str(reading.gpu.index), reading.gpu.uuid), reading) for reading in snapshot.readings]
    books = [((str(book.gpu_index), book.uuid), book) for book in snapshot.books]
    migs = [
        ((str(mig.instance.parent_index), mig.instance.uuid), mig)
        for reading in snapshot.readings
        for mig in reading.mig
    ]
    families = [
        *_families(
            GPU_METRICS,
            readings,
            info=lambda reading: {_gpu_facts(reading.gpu, sources_of_energy.get(reading.gpu.uuid, "")): 1},
            process_count=_process_count,
        ),
        *_families(BOOK_METRICS, books),
        *_families(MIG_METRICS, migs, info=_mig_info, process_count=_process_count),
    ]
    uses, charges = _by_scope(snapshot.uses), _by_scope(snapshot.charges)
    families += _families(POD_METRICS, uses.get(Scope.POD, ()))
    families += _families(POD_CHARGES, charges.get(Scope.POD, ()))
    families += _families(HOST_METRICS, uses.get(Scope.HOST, ()))
    families += _families(HOST_CHARGES, charges.get(Scope.HOST, ()))
    families += _families(UNKNOWN_METRICS, uses.get(Scope.UNKNOWN, ()))
    families += (_pod_info(snapshot.pods), _node_info(snapshot.node_labels))
    families += _families(
        PROCESS_METRICS, [(_process_labels(process), process) for process in snapshot.processes]
    )
    families += _families(SOURCE_METRICS, [((source.name,), source) for source in snapshot.sources])
    for metric in EXPORTER_METRICS:
        holder = snapshot if hasattr(snapshot, metric.field) else exporter
        families += _families((metric,), [((), holder)], info=_exporter_info)
    return [family for family in families if family.samples]


def _families(metrics: Iterable[Metric], holders: Holders, **computed: ValueOf) -> Iterator[Family]:
    """Those that have a sample. `computed` are the values of fields that the holders do not have."""
    for metric in metrics:
        samples = _samples(holders, computed.get(metric.field) or attrgetter(metric.field), metric.per)
        if samples:
            yield Family(metric, samples)


def _samples(holders: Holders, value_of: ValueOf, per: int) -> list[Sample]:
    samples: list[Sample] = []
    for scope, holder in holders:
        value = value_of(holder)
        if value is None:
            continue
        if isinstance(value, (int, float)):
            samples.append((scope, value / per if per != 1 else value))
        else:
            samples += [(scope + labels, number / per) for labels, number in value.items()]
    return samples


def _by_scope(entries: Iterable[Use | Charge]) -> Mapping[Scope, Holders]:
    found: dict[Scope, list[tuple[Labels, Use | Charge]]] = {}
    for entry in entries:
        scope, labels = _owner_scope(entry.owner)
        found.setdefault(scope, []).append(((str(entry.gpu_index), entry.uuid, *labels), entry))
    return found


def _owner_scope(owner: Owner | Unknown) -> tuple[Scope, Labels]:
    if isinstance(owner, Unknown):
        return Scope.UNKNOWN, (owner.reason,)
    if owner.kind == "pod":
        return Scope.POD, (owner.namespace, owner.pod, owner.container)
    return Scope.HOST, (owner.name,)


def _pod_info(pods: Sequence[PodOnGpu]) -> Family:
    """The allowed labels of all pods become label names; a pod without one of them has it empty."""
    columns = _columns(name for pod in pods for name, _ in pod.labels)
    # Where nobody knows the node its label is left out: with honor_labels, an empty one would take the
    # target's own away.
    node_known = any(pod.node for pod in pods)
    named = tuple(name for name in POD_INFO.extra_labels if name != "node" or node_known)
    metric = replace(POD_INFO, extra_labels=(*named, *columns))
    samples: list[Sample] = []
    for pod in pods:
        requested = {None: "", True: "true", False: "false"}[pod.requested]
        node = (pod.node,) if node_known else ()
        facts = (pod.namespace, pod.pod, pod.pod_uid, *node, pod.workload, requested)
        labels = dict(pod.labels)
        samples.append(((*facts, *(labels.get(name, "") for name in columns.values())), 1))
    return Family(metric, samples)


def _node_info(labels: tuple[tuple[str, str], ...]) -> Family:
    columns, values = _columns(name for name, _ in labels), dict(labels)
    metric = replace(NODE_INFO, extra_labels=tuple(columns))
    return Family(metric, [(tuple(values[name] for name in columns.values()), 1)] if labels else [])


def _columns(names: Iterable[str]) -> dict[str, str]:
    """Prometheus label -> Kubernetes label; of two that would be called the same, the first."""
    columns: dict[str, str] = {}
    for name in sorted(set(names)):
        columns.setdefault(_label_name(name), name)
    return columns


def _label_name(name: str) -> str:
    """A pod label as a Prometheus label, as kube-state-metrics writes it."""
    return "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _process_labels(process: ProcessCharge) -> Labels:
    scope, labels = _owner_scope(process.owner)
    owner = {Scope.POD: (*labels, ""), Scope.HOST: ("", "", "", *labels)}.get(scope, ("", "", "", ""))
    return (str(process.gpu_index), process.uuid, str(process.pid), process.name, *owner)


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


def _exporter_info(exporter: ExporterFacts) -> Labelled:
    return {(exporter.version, exporter.python, exporter.hostname): 1}


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
