"""Snapshot -> metric families: pure, driven by the catalog; None gives no sample."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from gputally.metrics.catalog import (
    BOOK_METRICS,
    EXPORTER_INFO,
    EXPORTER_METRICS,
    GPU_INFO,
    GPU_METRICS,
    HOST_CHARGES,
    HOST_METRICS,
    MIG_INFO,
    MIG_METRICS,
    NODE_INFO,
    POD_CHARGES,
    POD_INFO,
    POD_METRICS,
    PROCESS_METRICS,
    SNAPSHOT_METRICS,
    SOURCE_METRICS,
    UNKNOWN_METRICS,
    Metric,
    Scope,
    info_labels,
)
from gputally.metrics.own_process import ExporterFacts
from gputally.model import (
    Charge,
    Labelled,
    Labels,
    MigReading,
    Owner,
    PodInfo,
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


Holders = Sequence[tuple[Labels, Any]]
"""Objects whose fields fill metrics, each after the leading labels of its samples."""
ValueOf = Callable[[Any], Any]
FamiliesOf = Callable[[Snapshot], Sequence[Family]]


def build_families(snapshot: Snapshot, exporter: ExporterFacts) -> list[Family]:
    """Every metric that has at least one sample."""
    readings = [((str(reading.gpu.index), reading.gpu.uuid), reading) for reading in snapshot.readings]
    books = [((str(book.gpu_index), book.uuid), book) for book in snapshot.gpu_ledgers]
    migs = [
        ((str(mig.instance.parent_index), mig.instance.uuid), mig)
        for reading in snapshot.readings
        for mig in reading.mig
    ]
    book_of = dict(books)
    uses, charges = _by_scope(snapshot.uses), _by_scope(snapshot.charges)
    processes = [(_process_labels(process), process) for process in snapshot.processes]
    sources = [((source.name,), source) for source in snapshot.sources]
    families = [
        _info(GPU_INFO, ((labels, (reading.gpu, book_of.get(labels))) for labels, reading in readings)),
        *fill(GPU_METRICS, readings, processes=_count_by_kind),
        *fill(BOOK_METRICS, books),
        _info(MIG_INFO, ((labels, (mig.instance,)) for labels, mig in migs)),
        *fill(MIG_METRICS, migs, processes=_count_by_kind),
        *fill(POD_METRICS, uses.get(Scope.POD, ())),
        *fill(POD_CHARGES, charges.get(Scope.POD, ())),
        *fill(HOST_METRICS, uses.get(Scope.HOST, ())),
        *fill(HOST_CHARGES, charges.get(Scope.HOST, ())),
        *fill(UNKNOWN_METRICS, uses.get(Scope.UNKNOWN, ())),
        _pod_info(snapshot.pods),
        _node_info(snapshot.node_labels),
        *fill(PROCESS_METRICS, processes),
        *fill(SOURCE_METRICS, sources),
        _info(EXPORTER_INFO, [((), (exporter,))]),
        *fill(SNAPSHOT_METRICS, [((), snapshot)]),
        *fill(EXPORTER_METRICS, [((), exporter)]),
    ]
    return [family for family in families if family.samples]


def merge_families(families: Iterable[Family]) -> list[Family]:
    """One family per name: the first, with the samples that others of the same labels add."""
    by_name: dict[str, Family] = {}
    for family in families:
        first = by_name.setdefault(family.metric.name, family)
        if first is not family and first.metric.labels == family.metric.labels:
            samples = {**dict(family.samples), **dict(first.samples)}
            by_name[family.metric.name] = Family(first.metric, list(samples.items()))
    return list(by_name.values())


def fill(metrics: Iterable[Metric], holders: Holders, **computed: ValueOf) -> Iterator[Family]:
    """The metrics that have a sample. `computed` replaces the value of a field."""
    if not holders:
        return
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


def _info(metric: Metric, holders: Iterable[tuple[Labels, Iterable[object]]]) -> Family:
    """One sample per tuple of objects, whose fields together fill the labels."""
    samples: list[Sample] = []
    for scope, objects in holders:
        values = dict.fromkeys(metric.extra_labels, "")
        for one in objects:
            values |= _label_values(one)
        samples.append(((*scope, *map(values.__getitem__, metric.extra_labels)), 1))
    return Family(metric, samples)


def _label_values(holder: Any) -> dict[str, str]:
    """Label -> value; empty where it is not known."""
    if holder is None:
        return {}
    return {
        label: value if (value := getattr(holder, name)).__class__ is str else _text(value)
        for label, name in info_labels(holder.__class__).items()
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


_IF_ANY = ("node", "claim", "claim_request")


def _pod_info(pods: Sequence[PodInfo]) -> Family:
    """The allowed labels of all pods become label names; a pod without one of them has it empty."""
    columns = _columns(name for pod in pods for name, _ in pod.labels)
    labels = (*POD_INFO.extra_labels, *columns)
    # With honor_labels, an empty `node` would remove the target's own; few clusters have claims.
    unused = {name for name in _IF_ANY if not any(getattr(pod, name) for pod in pods)}
    labels = tuple(name for name in labels if name not in unused)
    samples: list[Sample] = []
    for pod in pods:
        allowed = dict(pod.labels)
        values = _label_values(pod) | {label: allowed.get(name, "") for label, name in columns.items()}
        samples.append(((pod.namespace, pod.pod, *[values[name] for name in labels]), 1))
    return Family(replace(POD_INFO, extra_labels=labels), samples)


def _node_info(labels: tuple[tuple[str, str], ...]) -> Family:
    columns, values = _columns(name for name, _ in labels), dict(labels)
    metric = replace(NODE_INFO, extra_labels=tuple(columns))
    return Family(metric, [(tuple(values[name] for name in columns.values()), 1)] if labels else [])


def _columns(names: Iterable[str]) -> dict[str, str]:
    """Prometheus label -> Kubernetes label; the first where two would have the same name."""
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


def _count_by_kind(holder: Reading | MigReading) -> Labelled | None:
    """Processes of each kind; compute is always included, so that a GPU without processes has a 0."""
    if holder.processes is None:
        return None
    counts: dict[Labels, float] = {("compute",): 0}
    for process in holder.processes:
        counts[(process.kind,)] = counts.get((process.kind,), 0) + 1
    return counts
