"""What the screen asks of a source, and what a source answers.

Numbers are base units; `None` is "not supported" or "not known".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

NODES, GPUS, OWNERS = "nodes", "gpus", "owners"
VIEWS = (NODES, GPUS, OWNERS)

OK, WARNING, CRITICAL = "ok", "warning", "critical"
SEVERITIES = (OK, WARNING, CRITICAL)

PodName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Query:
    """What the screen shows: rows `offset` to `offset + limit` of a view, and a graph of `points` values."""

    view: str = GPUS
    sort: str = ""
    """One of SORTS of the view; empty for its first one."""
    reverse: bool = False
    namespace: str = ""
    node: str = ""
    pod: PodName | None = None
    """Only this pod, which is followed."""
    owners: bool = True
    """Whether the view of GPUs has the owners below each GPU."""
    offset: int = 0
    limit: int = 20
    points: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    node: str
    cluster: str = ""
    severity: str = OK
    state: str = OK
    reason: str = ""
    fix: str = ""
    gpus: int | None = None
    gpus_up: int | None = None
    allocated: float | None = None
    idle: float | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    node: str
    index: str
    uuid: str
    cluster: str = ""
    model: str = ""
    severity: str = OK
    state: str = OK
    """One word or a few: `ok`, or the worst fault."""
    reason: str = ""
    fix: str = ""
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    energy_joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRow:
    """A pod's container, a job or a service: on one GPU, or on all of a node."""

    node: str
    name: str
    """namespace/pod, the name of a host owner, or `unknown`."""
    cluster: str = ""
    container: str = ""
    namespace: str = ""
    pod: str = ""
    gpus: tuple[str, ...] = ()
    """The indexes of its GPUs; empty below a GPU."""
    gpu_count: float | None = None
    active: bool = True
    allocated: bool | None = None
    """False: it uses a GPU that it did not request."""
    reason: str = ""
    processes: int | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    energy_joules: float | None = None


Row = NodeRow | GpuRow | OwnerRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of everything that the source knows, whatever is shown of it."""

    nodes: int = 0
    gpus: int = 0
    gpus_up: int = 0
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something cannot be read or has failed, and what to do."""

    severity: str
    subject: str
    reason: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Values of the last minutes, oldest first, at equal distances; `top` is the value of a full column."""

    title: str
    values: tuple[float | None, ...]
    top: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    title: str
    view: str
    taken_at_seconds: float
    totals: Totals
    rows: tuple[Row, ...]
    row_count: int
    """Of the view; `rows` begins at `offset`."""
    offset: int = 0
    problems: tuple[Problem, ...] = ()
    utilization_graph: Graph | None = None
    power_graph: Graph | None = None
    graph_seconds: float = 0
    """The time that the graphs cover."""
    simulated: bool = False


class Source(Protocol):
    """Where the values come from. All methods raise Unavailable."""

    views: tuple[str, ...]
    """The first is shown first."""

    def refresh(self) -> None:
        """Reads new values."""

    def page(self, query: Query) -> Page:
        """The answer, from the values of the last `refresh`."""

    def close(self) -> None: ...


SortKey = Callable[[Row], tuple[float | str | int, ...]]


def _name(row: Row) -> tuple[str | int, ...]:
    if isinstance(row, GpuRow):
        return (row.node, int(row.index) if row.index.isdigit() else 0, row.uuid)
    return (row.node,) if isinstance(row, NodeRow) else (row.name, row.node)


def _severity(row: Row) -> tuple[float]:
    return (0.0 if isinstance(row, OwnerRow) else -float(SEVERITIES.index(row.severity)),)


def _largest(field: str) -> SortKey:
    """Largest first; what is not known comes last."""

    def key(row: Row) -> tuple[float]:
        value = getattr(row, field)
        return (float("inf") if value is None else -value,)

    return key


SORTS: Mapping[str, Mapping[str, SortKey]] = {
    NODES: {
        "name": _name,
        "state": _severity,
        "utilization": _largest("utilization_ratio"),
        "memory": _largest("memory_used_bytes"),
        "power": _largest("power_watts"),
        "idle": _largest("idle"),
    },
    GPUS: {
        "name": _name,
        "state": _severity,
        "utilization": _largest("utilization_ratio"),
        "memory": _largest("memory_used_bytes"),
        "power": _largest("power_watts"),
        "temperature": _largest("temperature_celsius"),
    },
    OWNERS: {
        "utilization": _largest("utilization_ratio"),
        "name": _name,
        "memory": _largest("memory_used_bytes"),
        "power": _largest("power_watts"),
        "energy": _largest("energy_joules"),
    },
}
"""The orders of each view. The first is that of a query without one."""


def in_order(rows: list[Row], query: Query) -> list[Row]:
    """In the order of the query; rows with the same value by name."""
    sorts = SORTS[query.view]
    key = sorts.get(query.sort) or next(iter(sorts.values()))
    return sorted(sorted(rows, key=_name), key=key, reverse=query.reverse)
