"""my-gpu-exporter's names: what each process of a pod does and has used.

Like that tool, it tells of processes in pods only: the sum over all series is the sum over all pods.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import Options, Row, Scene
from gputally.metrics.families import Family
from gputally.model import Labels, Owner, ProcessCharge, Unknown

_LABELS = ("pid", "gpu", "process_name", "pod", "namespace", "container", "pod_uid", "container_id")


@dataclass(frozen=True, slots=True)
class _Part:
    """One metric, without the prefix of its name."""

    name: str
    kind: Kind
    help: str
    ours: str
    value: Callable[[ProcessCharge], float | None]
    join: Callable[[list[float]], float]
    """A process may be on several slices of one GPU, and the labels do not tell those apart."""

    def row(self, prefix: str) -> Row:
        return Row(f"{prefix}_{self.name}", self.kind, self.help, self.ours)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_PARTS = (
    _Part(
        "energy_joules",
        Kind.COUNTER,
        "Energy that the process is charged for. The processes of a GPU do not add up to more than it used.",
        "gputally_process_energy_joules_total",
        lambda process: process.energy_millijoules,
        lambda millijoules: sum(millijoules) / 1000,
    ),
    _Part(
        "sm_utilization_ratio",
        Kind.GAUGE,
        "SM use of the process.",
        "gputally_process_sm_utilization_ratio",
        lambda process: process.sm_ratio,
        _mean,
    ),
    _Part(
        "memory_utilization_ratio",
        Kind.GAUGE,
        "Memory bandwidth use of the process.",
        "",
        lambda process: process.memory_ratio,
        _mean,
    ),
    _Part(
        "memory_used_bytes",
        Kind.GAUGE,
        "Device memory of the process.",
        "gputally_process_memory_used_bytes",
        lambda process: process.memory_used_bytes,
        sum,
    ),
    _Part(
        "start_time_seconds",
        Kind.GAUGE,
        "When the process started.",
        "gputally_process_start_time_seconds",
        lambda process: process.started_at_seconds,
        min,
    ),
    _Part(
        "active",
        Kind.GAUGE,
        "1 while the process is on the GPU; 0 once it has gone, for --retention.",
        "gputally_process_active",
        lambda process: process.active,
        max,
    ),
)

ROWS: tuple[Row, ...] = tuple(part.row(Options(hostname="").metric_prefix) for part in _PARTS)


def families(scene: Scene) -> list[Family]:
    """Every metric that has a sample."""
    processes: dict[Labels, list[ProcessCharge]] = {}
    for process in scene.snapshot.processes:
        if _in_pod(process.owner):
            processes.setdefault(_labels(process), []).append(process)
    found = (
        Family(part.row(scene.options.metric_prefix).metric(_LABELS), list(_samples(part, processes)))
        for part in _PARTS
    )
    return [family for family in found if family.samples]


def _in_pod(owner: Owner | Unknown) -> bool:
    """Also of a pod whose name is not known."""
    return owner.kind == "pod" if isinstance(owner, Owner) else bool(owner.pod_uid)


def _labels(process: ProcessCharge) -> Labels:
    owner = process.owner
    names = (owner.pod, owner.namespace, owner.container) if isinstance(owner, Owner) else ("", "", "")
    known = (owner.pod_uid, owner.container_id)
    return (str(process.pid), str(process.gpu_index), process.name, *names, *known)


def _samples(part: _Part, processes: dict[Labels, list[ProcessCharge]]) -> Iterable[tuple[Labels, float]]:
    for labels, charges in processes.items():
        values = [value for charge in charges if (value := part.value(charge)) is not None]
        if values:
            yield labels, part.join(values)
