"""Profile `process-energy`: my-gpu-exporter's names for the energy and use of each process in a pod.

Like that tool, it has processes in pods only: the sum over all series is the sum over all pods.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import Options, ProfileInput, Row
from gputally.metrics.families import Family
from gputally.model import Labels, Owner, ProcessCharge, Unknown

_LABELS = ("pid", "gpu", "process_name", "pod", "namespace", "container", "pod_uid", "container_id")


@dataclass(frozen=True, slots=True)
class _ProcessMetric:
    """One metric, without the prefix of its name."""

    name: str
    kind: Kind
    help: str
    ours: str
    value: Callable[[ProcessCharge], float | None]
    join: Callable[[list[float]], float]
    """Joins the values of a process on several instances of one GPU, which have the same labels."""

    def row(self, prefix: str) -> Row:
        return Row(f"{prefix}_{self.name}", self.kind, self.help, self.ours)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_METRICS = (
    _ProcessMetric(
        "energy_joules",
        Kind.COUNTER,
        "Energy charged to the process; the sum over the processes of a GPU is at most the GPU's energy.",
        "gputally_process_energy_joules_total",
        lambda process: process.energy_millijoules,
        lambda millijoules: sum(millijoules) / 1000,
    ),
    _ProcessMetric(
        "sm_utilization_ratio",
        Kind.GAUGE,
        "SM utilisation of the process.",
        "gputally_process_sm_utilization_ratio",
        lambda process: process.sm_ratio,
        _mean,
    ),
    _ProcessMetric(
        "memory_utilization_ratio",
        Kind.GAUGE,
        "Memory bandwidth utilisation of the process.",
        "",
        lambda process: process.memory_ratio,
        _mean,
    ),
    _ProcessMetric(
        "memory_used_bytes",
        Kind.GAUGE,
        "Device memory allocated by the process.",
        "gputally_process_memory_used_bytes",
        lambda process: process.memory_used_bytes,
        sum,
    ),
    _ProcessMetric(
        "start_time_seconds",
        Kind.GAUGE,
        "Unix time at which the process started.",
        "gputally_process_start_time_seconds",
        lambda process: process.started_at_seconds,
        min,
    ),
    _ProcessMetric(
        "active",
        Kind.GAUGE,
        "1 while the process is on the GPU, 0 from then until --retention has passed.",
        "gputally_process_active",
        lambda process: process.active,
        max,
    ),
)

ROWS: tuple[Row, ...] = tuple(one.row(Options(hostname="").metric_prefix) for one in _METRICS)


def families(inputs: ProfileInput) -> list[Family]:
    """Every metric that has a sample."""
    processes: dict[Labels, list[ProcessCharge]] = {}
    for process in inputs.snapshot.processes:
        if _in_pod(process.owner):
            processes.setdefault(_labels(process), []).append(process)
    found = (
        Family(one.row(inputs.options.metric_prefix).metric(_LABELS), list(_samples(one, processes)))
        for one in _METRICS
    )
    return [family for family in found if family.samples]


def _in_pod(owner: Owner | Unknown) -> bool:
    """True also for a pod without a known name."""
    return owner.kind == "pod" if isinstance(owner, Owner) else bool(owner.pod_uid)


def _labels(process: ProcessCharge) -> Labels:
    owner = process.owner
    names = (owner.pod, owner.namespace, owner.container) if isinstance(owner, Owner) else ("", "", "")
    known = (owner.pod_uid, owner.container_id)
    return (str(process.pid), str(process.gpu_index), process.name, *names, *known)


def _samples(
    one: _ProcessMetric, processes: dict[Labels, list[ProcessCharge]]
) -> Iterable[tuple[Labels, float]]:
    for labels, charges in processes.items():
        values = [value for charge in charges if (value := one.value(charge)) is not None]
        if values:
            yield labels, one.join(values)
