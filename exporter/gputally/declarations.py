"""How the model declares metrics: a field names its metric, the metric's group, and the sets that have it.

`metrics.catalog` makes the metrics from the declarations, `metrics.sets` chooses among them. A metric is in
`full` only, until a dashboard, a rule or a bill uses it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Labels = tuple[str, ...]
Labelled = Mapping[Labels, float]
Metadata = Mapping[str, Any]


class Group(StrEnum):
    """What a metric is about. Users include, exclude and collect whole groups."""

    GPU = "gpu"
    UTILIZATION = "utilization"
    MEMORY = "memory"
    POWER = "power"
    TEMPERATURE = "temperature"
    CLOCKS = "clocks"
    ECC = "ecc"
    PCIE = "pcie"
    NVLINK = "nvlink"
    XGMI = "xgmi"
    XID = "xid"
    MODES = "modes"
    ENERGY = "energy"
    MIG = "mig"
    PODS = "pods"
    HOST = "host"
    UNATTRIBUTED = "unattributed"
    PROCESSES = "processes"
    SOURCES = "sources"
    EXPORTER = "exporter"


class MetricSet(StrEnum):
    """Each set has all metrics of those before it."""

    CORE = "core"
    STANDARD = "standard"
    FULL = "full"


CORE, STANDARD, FULL = MetricSet


@dataclass(frozen=True, slots=True)
class Declaration:
    """A metric that a field fills."""

    help: str
    """`{owner}` stands for the owner's kind where several scopes share the field."""
    labels: Labels = ()
    name: str = ""
    """Without prefix and `_total`; empty where it is the field's name."""
    counter: bool = False
    group: Group | None = None
    """None where it follows from the scope."""
    set: MetricSet = FULL
    """The smallest set that has it."""
    usual: tuple[str, ...] = ()
    """The values of its first label that `core` and `standard` have; empty where that is all of them."""
    view: Callable[[Any], Any] | None = None
    """Makes its value of the field's, which is not None."""


def metric(help: str, *labels: str, **more: Any) -> Metadata:
    """For a field that is never None."""
    return {"metrics": (Declaration(help, labels, **more),)}


def gauge(help: str, *labels: str, **more: Any) -> Any:
    """An optional field."""
    return field(default=None, metadata=metric(help, *labels, **more))


def counter(help: str, *labels: str, **more: Any) -> Any:
    """An optional field."""
    return gauge(help, *labels, counter=True, **more)


def several(*declared: Metadata) -> Any:
    """An optional field that fills several metrics."""
    return field(
        default=None, metadata={"metrics": tuple(one for each in declared for one in each["metrics"])}
    )


def info_label(name: str = "") -> Metadata:
    """The label is called as the field unless it has a name."""
    return {"label": name}


LABEL = info_label()


def total(values: Labelled) -> float:
    return sum(values.values())


def over_first(values: Labelled) -> Labelled:
    """The sums over the first label."""
    sums: dict[Labels, float] = {}
    for labels, value in values.items():
        sums[labels[1:]] = sums.get(labels[1:], 0) + value
    return sums


def active(values: Labelled) -> Labelled:
    """Those that are not 0, of a set of states."""
    return {labels: value for labels, value in values.items() if value}


def active_or_none(values: Labelled) -> Labelled:
    """Those that are not 0; the label is `none` while all of them are."""
    return active(values) or {("none",): 1.0}


def up_and_down(values: Labelled) -> Labelled:
    """The number of links in each state."""
    up = sum(map(bool, values.values()))
    return {("up",): up, ("down",): len(values) - up}
