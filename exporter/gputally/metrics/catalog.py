"""Every metric once, from the declarations in the model.

The name of a metric is the prefix of its scope, the name of the field and, for a counter, `_total`. A
name ends in its unit (bytes, watts, hertz, celsius, ratio, seconds, joules). Dashboards, rules and docs
take their names from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any

from gputally.declarations import CORE, FULL, STANDARD, Declaration, Group, Labels, MetricSet
from gputally.metrics.own_process import ExporterFacts, MachineFacts
from gputally.model import (
    Charge,
    Gpu,
    GpuLedger,
    MigInstance,
    MigReading,
    PodInfo,
    ProcessCharge,
    Reading,
    Snapshot,
    SourceState,
    Use,
)

UNITS = ("bytes_per_second", "bytes", "watts", "joules", "celsius", "hertz", "ratio", "seconds")
EXACT_UNITS = {"millijoules": ("joules", 1000), "microseconds": ("seconds", 1_000_000)}
"""Unit of a field that is summed up -> its base unit, and how many of it that is."""


class Kind(StrEnum):
    """Prometheus metric types in use. An info metric is a gauge that is always 1."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Scope(StrEnum):
    """The subject of a sample; decides the leading labels."""

    GPU = "gpu"
    MIG = "mig"
    POD = "pod"
    HOST = "host"
    UNKNOWN = "unknown"
    POD_INFO = "pod_info"
    PROCESS = "process"
    SOURCE = "source"
    EXPORTER = "exporter"


SCOPE_LABELS: dict[Scope, Labels] = {
    Scope.GPU: ("gpu", "uuid"),
    Scope.MIG: ("gpu", "uuid"),
    Scope.POD: ("gpu", "uuid", "namespace", "pod", "container"),
    Scope.HOST: ("gpu", "uuid", "owner"),
    Scope.UNKNOWN: ("gpu", "uuid", "reason"),
    Scope.POD_INFO: ("namespace", "pod"),
    Scope.PROCESS: ("gpu", "uuid", "pid", "process_name", "namespace", "pod", "container", "owner"),
    Scope.SOURCE: ("source",),
    Scope.EXPORTER: (),
}


SCOPE_GROUPS: dict[Scope, Group] = {
    Scope.MIG: Group.MIG,
    Scope.POD: Group.PODS,
    Scope.HOST: Group.HOST,
    Scope.UNKNOWN: Group.UNATTRIBUTED,
    Scope.POD_INFO: Group.PODS,
    Scope.PROCESS: Group.PROCESSES,
    Scope.SOURCE: Group.SOURCES,
    Scope.EXPORTER: Group.EXPORTER,
}
"""The group of the metrics of a scope; those of a GPU declare theirs."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalogue."""

    name: str
    kind: Kind
    scope: Scope
    field: str
    """The field of the model that fills it; empty where it is no single field."""
    help: str
    extra_labels: Labels = ()
    per: int = 1
    """The field is divided by this."""
    group: Group = Group.EXPORTER
    set: MetricSet = FULL
    usual: tuple[str, ...] = ()
    view: Callable[[Any], Any] | None = None
    """These four are as in `Declaration`."""

    @property
    def labels(self) -> Labels:
        return SCOPE_LABELS[self.scope] + self.extra_labels

    @property
    def unit(self) -> str:
        base = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if base.endswith("_" + unit)), "")


def metrics_of(model: type, scope: Scope, prefix: str, owner: str = "") -> tuple[Metric, ...]:
    """The metrics that the fields of `model` declare, its own before those that it inherits."""
    own = set(model.__annotations__)
    ordered = sorted(fields(model), key=lambda one: one.name not in own)
    return tuple(
        _metric(one.name, declaration, scope, prefix, owner)
        for one in ordered
        for declaration in one.metadata.get("metrics", ())
    )


def _metric(field: str, declaration: Declaration, scope: Scope, prefix: str, owner: str) -> Metric:
    stem, _, unit = field.rpartition("_")
    base_unit, per = EXACT_UNITS.get(unit, (unit, 1))
    name = f"{prefix}_{declaration.name or '_'.join(filter(None, (stem, base_unit)))}"
    return Metric(
        f"{name}_total" if declaration.counter else name,
        Kind.COUNTER if declaration.counter else Kind.GAUGE,
        scope,
        field,
        declaration.help.format(owner=owner),
        declaration.labels,
        per,
        SCOPE_GROUPS.get(scope) or declaration.group or Group.GPU,
        declaration.set,
        declaration.usual,
        declaration.view,
    )


@cache
def info_labels(*models: type) -> Mapping[str, str]:
    """The label that each field fills on the info metric -> the field."""
    return {
        one.metadata["label"] or one.name: one.name
        for model in models
        for one in fields(model)
        if "label" in one.metadata
    }


def _info(name: str, scope: Scope, help: str, *models: type, set: MetricSet = CORE) -> Metric:
    group = SCOPE_GROUPS.get(scope, Group.GPU)
    return Metric(name, Kind.INFO, scope, "", help, tuple(info_labels(*models)), group=group, set=set)


_POD, _HOST, _UNKNOWN = "the container", "the non-pod owner", "an unknown owner"

GPU_INFO = _info(
    "gputally_gpu_info",
    Scope.GPU,
    "GPU identity; simulated is true for the simulator's GPUs, energy_source is counter where the hardware "
    "counts its energy and integrated where it is power over time.",
    Gpu,
    GpuLedger,
)
GPU_METRICS = metrics_of(Reading, Scope.GPU, "gputally_gpu")
LEDGER_METRICS = metrics_of(GpuLedger, Scope.GPU, "gputally_gpu")
MIG_INFO = _info(
    "gputally_mig_info",
    Scope.MIG,
    "Identity of the MIG device or AMD partition; gpu is the index of its parent, uuid its own.",
    MigInstance,
)
MIG_METRICS = metrics_of(MigReading, Scope.MIG, "gputally_mig")
POD_METRICS = metrics_of(Use, Scope.POD, "gputally_pod", _POD)
POD_CHARGES = metrics_of(Charge, Scope.POD, "gputally_pod", _POD)
POD_INFO = _info(
    "gputally_pod_info",
    Scope.POD_INFO,
    "A pod that holds a GPU; requested is false when the kubelet allocated none to it (unrequested use). "
    "With --pod-labels, the allowed labels of the pod.",
    PodInfo,
)
HOST_METRICS = metrics_of(Use, Scope.HOST, "gputally_host", _HOST)
HOST_CHARGES = metrics_of(Charge, Scope.HOST, "gputally_host", _HOST)
UNKNOWN_METRICS = metrics_of(Use, Scope.UNKNOWN, "gputally_gpu_unattributed", _UNKNOWN)
PROCESS_METRICS = metrics_of(ProcessCharge, Scope.PROCESS, "gputally_process")
"""Only with --process-metrics."""
SOURCE_METRICS = metrics_of(SourceState, Scope.SOURCE, "gputally_source")
NODE_INFO = _info(
    "gputally_node_labels_info",
    Scope.EXPORTER,
    "The Kubernetes labels of this node that --node-labels allows.",
    set=STANDARD,
)
EXPORTER_INFO = _info("gputally_exporter_info", Scope.EXPORTER, "Version of the exporter.", ExporterFacts)
SNAPSHOT_METRICS = metrics_of(Snapshot, Scope.EXPORTER, "gputally_snapshot")
EXPORTER_METRICS = metrics_of(ExporterFacts, Scope.EXPORTER, "process")
MACHINE_METRICS = metrics_of(MachineFacts, Scope.EXPORTER, "gputally_machine")

CATALOG: tuple[Metric, ...] = (
    GPU_INFO,
    *GPU_METRICS,
    *LEDGER_METRICS,
    MIG_INFO,
    *MIG_METRICS,
    *POD_METRICS,
    *POD_CHARGES,
    POD_INFO,
    *HOST_METRICS,
    *HOST_CHARGES,
    *UNKNOWN_METRICS,
    *PROCESS_METRICS,
    *SOURCE_METRICS,
    NODE_INFO,
    EXPORTER_INFO,
    *SNAPSHOT_METRICS,
    *EXPORTER_METRICS,
    *MACHINE_METRICS,
)
