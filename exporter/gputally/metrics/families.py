"""Snapshot -> metric families: pure, driven by the catalogue; None gives no sample."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from gputally.metrics.catalog import (
    EXPORTER_INFO,
    EXPORTER_METRICS,
    GPU_INFO,
    GPU_METRICS,
    HOST_CHARGES,
    HOST_METRICS,
    LEDGER_METRICS,
    MACHINE_METRICS,
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
from gputally.metrics.sets import EVERYTHING, Chosen
from gputally.model import (
    Charge,
    Labels,
    Owner,
    PodInfo,
    ProcessCharge,
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
    profile: str = ""
    """The compatibility profile that it is from; empty for a metric of ours."""
    also: tuple[str, ...] = ()
    """Other groups, whose samples it has too."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The names by which a scrape selects it."""
        return (self.profile or self.metric.group, *self.also)


Holders = Sequence[tuple[Labels, Any]]
"""Objects whose fields fill metrics, each after the leading labels of its samples."""
FamiliesOf = Callable[[Snapshot], Sequence[Family]]


def build_families(snapshot: Snapshot, exporter: ExporterFacts, chosen: Chosen = EVERYTHING) -> list[Family]:
    """The chosen metrics that have at least one sample."""
    readings = [((str(reading.gpu.index), reading.gpu.uuid), reading) for reading in snapshot.readings]
    ledgers = [((str(ledger.gpu_index), ledger.uuid), ledger) for ledger in snapshot.gpu_ledgers]
    migs = [
        ((str(mig.instance.parent_index), mig.instance.uuid), mig)
        for reading in snapshot.readings
        for mig in reading.mig
    ]
    ledger_of = dict(ledgers)
    uses, charges = _by_scope(snapshot.uses), _by_scope(snapshot.charges)
    processes = [(_process_labels(process), process) for process in snapshot.processes]
    sources = [((source.name,), source) for source in snapshot.sources]

    def filled(metrics: Iterable[Metric], holders: Holders) -> Iterator[Family]:
        return fill([chosen[one.name] for one in metrics if one.name in chosen], holders)

    families = [
        _info(GPU_INFO, ((labels, (reading.gpu, ledger_of.get(labels))) for labels, reading in readings)),
        *filled(GPU_METRICS, readings),
        *filled(LEDGER_METRICS, ledgers),
        _info(MIG_INFO, ((labels, (mig.instance,)) for labels, mig in migs)),
        *filled(MIG_METRICS, migs),
        *filled(POD_METRICS, uses.get(Scope.POD, ())),
        *filled(POD_CHARGES, charges.get(Scope.POD, ())),
        *filled(HOST_METRICS, uses.get(Scope.HOST, ())),
        *filled(HOST_CHARGES, charges.get(Scope.HOST, ())),
        *filled(UNKNOWN_METRICS, uses.get(Scope.UNKNOWN, ())),
        _pod_info(snapshot.pods),
        _node_info(snapshot.node_labels),
        *filled(PROCESS_METRICS, processes),
        *filled(SOURCE_METRICS, sources),
        _info(EXPORTER_INFO, [((), (exporter,))]),
        *filled(SNAPSHOT_METRICS, [((), snapshot)]),
        *filled(EXPORTER_METRICS, [((), exporter)]),
        *filled(MACHINE_METRICS, [((), exporter.machine)]),
    ]
    return [family for family in families if family.samples and family.metric.name in chosen]


def merge_families(families: Iterable[Family]) -> list[Family]:
    """One family per name: the first, with the samples that others of the same labels add."""
    by_name: dict[str, Family] = {}
    for family in families:
        first = by_name.setdefault(family.metric.name, family)
        if first is not family and first.metric.labels == family.metric.labels:
            samples = {**dict(family.samples), **dict(first.samples)}
            by_name[family.metric.name] = replace(
                first, samples=list(samples.items()), also=(*first.also, *family.groups)
            )
    return list(by_name.values())


def fill(metrics: Iterable[Metric], holders: Holders) -> Iterator[Family]:
    """The metrics that have a sample."""
    if not holders:
        return
    for metric in metrics:
        samples = _samples(metric, holders)
        if samples:
            yield Family(metric, samples)


def _samples(metric: Metric, holders: Holders) -> list[Sample]:
    value_of, view, usual, per = attrgetter(metric.field), metric.view, metric.usual, metric.per
    samples: list[Sample] = []
    for scope, holder in holders:
        value = value_of(holder)
        if value is None:
            continue
        if view is not None:
            value = view(value)
        if isinstance(value, (int, float)):
            samples.append((scope, value / per if per != 1 else value))
            continue
        labelled = value.items()
        if usual:
            labelled = [(labels, number) for labels, number in labelled if labels[0] in usual]
        samples += [(scope + labels, number / per) for labels, number in labelled]
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
    allowed = [_by_label_name(pod.labels) for pod in pods]
    columns = sorted(set().union(*allowed))
    labels = (*POD_INFO.extra_labels, *columns)
    # With honor_labels, an empty `node` would remove the target's own; few clusters have claims.
    unused = {name for name in _IF_ANY if not any(getattr(pod, name) for pod in pods)}
    labels = tuple(name for name in labels if name not in unused)
    samples: list[Sample] = []
    for pod, own in zip(pods, allowed, strict=True):
        values = _label_values(pod) | dict.fromkeys(columns, "") | own
        samples.append(((pod.namespace, pod.pod, *[values[name] for name in labels]), 1))
    return Family(replace(POD_INFO, extra_labels=labels), samples)


def _node_info(labels: tuple[tuple[str, str], ...]) -> Family:
    columns = dict(sorted(_by_label_name(labels).items()))
    metric = replace(NODE_INFO, extra_labels=tuple(columns))
    return Family(metric, [(tuple(columns.values()), 1)] if labels else [])


def _by_label_name(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Prometheus label -> value of one object; the first where two of its labels would have the same name."""
    values: dict[str, str] = {}
    for name, value in labels:
        values.setdefault(_label_name(name), value)
    return values


def _label_name(name: str) -> str:
    """A pod label as a Prometheus label, as kube-state-metrics writes it."""
    return "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _process_labels(process: ProcessCharge) -> Labels:
    scope, labels = _owner_scope(process.owner)
    owner = {Scope.POD: (*labels, ""), Scope.HOST: ("", "", "", *labels)}.get(scope, ("", "", "", ""))
    return (str(process.gpu_index), process.uuid, str(process.pid), process.name, *owner)
