"""Snapshot -> metric families: pure, driven by the catalog, and silent where the model says None."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputally.metrics.catalog import (
    EXPORTER_METRICS,
    GPU_METRICS,
    MIG_METRICS,
    PROCESS_METRICS,
    SOURCE_METRICS,
    Metric,
)
from gputally.model import Gpu, Labelled, Labels, MigReading, Process, ProcessSample, Reading, Snapshot

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


def build_families(
    snapshot: Snapshot, exporter: ExporterFacts, *, process_metrics: bool = False
) -> list[Family]:
    """Every metric that has at least one sample."""
    families = [
        *(_family(metric, _gpu_samples(metric, snapshot.readings)) for metric in GPU_METRICS),
        *(_family(metric, _mig_samples(metric, snapshot.readings)) for metric in MIG_METRICS),
    ]
    if process_metrics:
        rows = list(_process_rows(snapshot.readings))
        families += (_family(metric, _row_samples(metric, rows)) for metric in PROCESS_METRICS)
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


def _gpu_samples(metric: Metric, readings: Sequence[Reading]) -> Iterator[Sample]:
    value_of = _GPU_VALUES.get(metric.field) or _attribute(metric.field)
    for reading in readings:
        yield from _expand(metric, (str(reading.gpu.index), reading.gpu.uuid), value_of(reading))


def _mig_samples(metric: Metric, readings: Sequence[Reading]) -> Iterator[Sample]:
    value_of = _MIG_VALUES.get(metric.field) or _attribute(metric.field)
    for reading in readings:
        for mig in reading.mig:
            scope = (str(mig.instance.parent_index), mig.instance.uuid)
            yield from _expand(metric, scope, value_of(mig))


def _source_samples(metric: Metric, snapshot: Snapshot) -> Iterator[Sample]:
    for source in snapshot.sources:
        yield from _expand(metric, (source.name,), getattr(source, metric.field))


def _exporter_samples(metric: Metric, snapshot: Snapshot, exporter: ExporterFacts) -> Iterator[Sample]:
    if metric.field == "info":
        yield (exporter.version, exporter.python, exporter.hostname), 1
        return
    holder = snapshot if hasattr(snapshot, metric.field) else exporter
    yield from _expand(metric, (), getattr(holder, metric.field))


@dataclass(frozen=True, slots=True)
class _ProcessRow:
    scope: Labels
    memory_used_bytes: int | None
    sm_ratio: float | None


def _process_rows(readings: Sequence[Reading]) -> Iterator[_ProcessRow]:
    for reading in readings:
        sm_ratios = _mean_sm_ratios(reading.process_samples)
        for uuid, process in _processes_by_device(reading):
            scope = (str(reading.gpu.index), uuid, str(process.pid), process.name or "")
            sm_ratio = None if sm_ratios is None else sm_ratios.get(process.pid, 0.0)
            yield _ProcessRow(scope, process.memory_used_bytes, sm_ratio)


def _processes_by_device(reading: Reading) -> Iterator[tuple[str, Process]]:
    """Each process once, under the MIG device it runs on where there is one."""
    in_instance: set[int] = set()
    for mig in reading.mig:
        for process in mig.processes or ():
            in_instance.add(process.pid)
            yield mig.instance.uuid, process
    for process in reading.processes or ():
        if process.pid not in in_instance:
            yield reading.gpu.uuid, process


def _mean_sm_ratios(samples: tuple[ProcessSample, ...] | None) -> dict[int, float] | None:
    if samples is None:
        return None
    by_pid: defaultdict[int, list[float]] = defaultdict(list)
    for sample in samples:
        by_pid[sample.pid].append(sample.sm_ratio)
    return {pid: sum(ratios) / len(ratios) for pid, ratios in by_pid.items()}


def _row_samples(metric: Metric, rows: Iterable[_ProcessRow]) -> Iterator[Sample]:
    for row in rows:
        yield from _expand(metric, row.scope, getattr(row, metric.field))


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda holder: getattr(holder, name)


def _gpu_info(reading: Reading) -> Labelled:
    gpu: Gpu = reading.gpu
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
    )
    return {(*("" if fact is None else str(fact) for fact in facts), "true" if gpu.simulated else "false"): 1}


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


_GPU_VALUES: dict[str, Callable[[Any], Any]] = {"info": _gpu_info, "process_count": _process_count}
_MIG_VALUES: dict[str, Callable[[Any], Any]] = {"info": _mig_info, "process_count": _process_count}
