"""Profile `purplepill`: CM PurplePill's names for the memory of each GPU and of each pod on it.

That tool had one sample per process under the same labels, which Prometheus rejects; here it is one per
pod and GPU.
"""

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import Options, ProfileInput, Row
from gputally.metrics.compat.columns import Column, column_families, gauge, mebibytes, percent
from gputally.metrics.families import Family
from gputally.model import Gpu, Labels, Owner, Snapshot

_GPU_LABELS = ("gpu", "UUID", "modelName", "Hostname")
_POD_LABELS = ("gpu", "UUID", "Hostname", "device", "pod", "namespace", "stack_id")

_COLUMNS: tuple[Column, ...] = (
    gauge(
        "CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB", "Device memory in MiB.", "memory_total_bytes", scale=mebibytes
    ),
    gauge(
        "CM_PURPLEPILL_GPU_MEMORY_USED_TOTAL_MIB",
        "Device memory in use, in MiB.",
        "memory_used_bytes",
        scale=mebibytes,
    ),
    gauge(
        "CM_PURPLEPILL_GPU_MEMORY_FREE_MIB",
        "Free device memory in MiB.",
        "memory_free_bytes",
        scale=mebibytes,
    ),
    gauge(
        "CM_PURPLEPILL_GPU_UTILIZATION",
        "GPU utilisation in percent.",
        "gpu_utilization_ratio",
        scale=percent,
    ),
)
_POD_ROW = Row(
    "CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB",
    Kind.GAUGE,
    "Device memory of a pod in MiB.",
    "gputally_pod_memory_used_bytes",
)

ROWS: tuple[Row, ...] = (*(column.row for column in _COLUMNS), _POD_ROW)

_GPU_METRICS = tuple(column.row.metric(_GPU_LABELS) for column in _COLUMNS)
_POD_METRIC = _POD_ROW.metric(_POD_LABELS)


def families(inputs: ProfileInput) -> list[Family]:
    """Every metric that has a sample."""
    snapshot, options = inputs.snapshot, inputs.options
    readings = [
        ((str(one.gpu.index), one.gpu.uuid, one.gpu.model, options.hostname), one)
        for one in snapshot.readings
    ]
    found = [*column_families(_COLUMNS, _GPU_METRICS, readings), _pod_memory(snapshot, options)]
    return [family for family in found if family.samples]


def _pod_memory(snapshot: Snapshot, options: Options) -> Family:
    """By GPU: the memory of a pod on several instances of one is added up."""
    gpus: dict[str, Gpu] = {}
    for reading in snapshot.readings:
        gpus[reading.gpu.uuid] = reading.gpu
        gpus |= {mig.instance.uuid: reading.gpu for mig in reading.mig}
    memory: dict[Labels, int] = {}
    for use in snapshot.uses:
        owner, gpu = use.owner, gpus.get(use.uuid)
        if gpu is None or use.memory_used_bytes is None:
            continue
        if isinstance(owner, Owner) and owner.kind == "pod":
            labels = _pod_labels(gpu, owner, options.hostname)
            memory[labels] = memory.get(labels, 0) + use.memory_used_bytes
    return Family(_POD_METRIC, [(labels, mebibytes(count)) for labels, count in memory.items()])


def _pod_labels(gpu: Gpu, owner: Owner, hostname: str) -> Labels:
    # The tool takes the stack from the pod's environment, and this where it is not set there.
    stack = owner.pod.partition("-")[0]
    device = f"{gpu.vendor}{gpu.index}"
    return (str(gpu.index), gpu.uuid, hostname, device, owner.pod, owner.namespace, stack)
