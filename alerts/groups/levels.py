"""GPUs, time, energy and money, of devices, of owners and of the fleet: what dashboards and alerts read.

Energy is a group of its own: what the meters count and who is charged for it are of the same moment, so
that they add up from the first minute on. The others are each made of the one before. Devices (GPUs that are
not divided, and MIG devices) say who has which part of them. Owners (pods, and what is no pod) are charged
for their parts; workloads and namespaces are sums of pods. The fleet (node, model, cluster) is counted on the
GPUs themselves, so that owners and what is nobody's add up to it.

GPUs are counted whole: a MIG device is the share of its GPU that it is, and a GPU that several pods hold at
once is divided between them. The groups' interval is pinned: sums over time of what they record are
GPU-minutes, watt-minutes and money per 60 hours.
"""

from alerts.groups.phrases import GPU, MODEL, of_gpu
from alerts.groups.problems import SEVERITY
from alerts.model import Group, Record

_INTERVAL = "1m"
_OWNERS = {"pod": "namespace, pod", "host": "owner"}
"""By what an owner is known, beside the node: the two kinds of them that the exporter charges."""
_FLEET = {"node": "cluster, node", "model": "cluster, model", "cluster": "cluster"}
_OF_DEVICE = f"on ({GPU}) group_left ()"
_SHARE = f"on ({GPU}) group_left (model) device:gputally_share:ratio"
_KWH = "[[ pue ]] / 1000"
"""Watts to kilowatts at the building's meter."""


def _rate(metric: str) -> str:
    return f"rate({metric}[ [[ rate_window ]] ])"


def _both(operation: str) -> str:
    return f'{{__name__=~"device:gputally_(pod|host)_{operation}"}}'


def _device_and_owner(kind: str, owner: str) -> tuple[Record, ...]:
    """Who has which part of a device. A container more does not make a pod hold more than the device."""
    by = f"{GPU}, {owner}"
    held, busy = f"gputally_{kind}_held_seconds_total", f"gputally_{kind}_busy_seconds_total"
    return (
        Record(f"device:gputally_{kind}_held:ratio", f"clamp_max(sum by ({by}) ({_rate(held)}), 1) > 0"),
        Record(f"device:gputally_{kind}_busy:ratio", f"clamp_max(sum by ({by}) ({_rate(busy)}), 1)"),
        Record(
            f"device:gputally_{kind}_memory_used:bytes",
            f"sum by ({by}) (max by ({by}, container) (gputally_pod_memory_used_bytes))"
            if kind == "pod"
            else f"max by ({by}) (gputally_host_memory_used_bytes)",
        ),
    )


_WORKLOAD = "on (cluster, namespace, pod) group_left (workload) pod:gputally_workload:info"
_LEVELS_OF_PODS = {"workload": "cluster, namespace, workload", "namespace": "cluster, namespace"}
_OF_ENERGY = {
    "energy_cost:per_hour": "[[ kwh_price ]]",
    "co2:grams_per_hour": "[[ co2_grams_per_kwh ]]",
}
"""What a kilowatt-hour at the building's meter costs."""


def _metered(level: str, by: str) -> tuple[Record, ...]:
    unattributed = 'gputally_gpu_unattributed_energy_joules_total{reason!~"initial|expired"}'
    energy, nobodys = "gpu:gputally_energy:watts", f"sum by ({GPU}, reason) ({_rate(unattributed)})"
    if level == "model":
        nobodys += f" * {MODEL}"
    if level == "cluster":
        energy, nobodys = "node:gputally_energy:watts", "node:gputally_unattributed:watts"
    return (
        Record(f"{level}:gputally_energy:watts", f"sum by ({by}) ({energy})"),
        Record(f"{level}:gputally_unattributed:watts", f"sum by ({by}, reason) ({nobodys})"),
    )


def _charged(kind: str, owner: str) -> Record:
    watts = f"sum by (cluster, node, {owner}) ({_rate(f'gputally_{kind}_energy_joules_total')})"
    return Record(f"{kind}:gputally_energy:watts", f"{watts} * {_WORKLOAD}" if kind == "pod" else watts)


_BOOKS = Group(
    "gputally-ledger",
    (
        # A pod that is gone keeps its workload for as long as its last rates are seen.
        Record(
            "pod:gputally_workload:info",
            "topk by (cluster, namespace, pod) (1, max by (cluster, namespace, pod, workload) "
            '(last_over_time(gputally_pod_info{workload!=""}[15m])))'
            " or on (cluster, namespace, pod) "
            "clamp_min(max by (cluster, namespace, pod) (last_over_time(gputally_pod_active[15m])), 1)",
        ),
        Record(
            "gpu:gputally_energy:watts",
            f"sum by ({GPU}) ({_rate('gputally_gpu_energy_joules_total')}) * {MODEL}",
        ),
        *(record for level, by in _FLEET.items() for record in _metered(level, by)),
        *(_charged(kind, owner) for kind, owner in _OWNERS.items()),
        *(
            Record(f"{level}:gputally_energy:watts", f"sum by ({by}) (pod:gputally_energy:watts)")
            for level, by in _LEVELS_OF_PODS.items()
        ),
        *(
            Record(f"{level}:gputally_{operation}", f"{level}:gputally_energy:watts * {_KWH} * {price}")
            for level in (*_FLEET, *_OWNERS, *_LEVELS_OF_PODS)
            for operation, price in _OF_ENERGY.items()
        ),
        # How much of the bill is measured, shared out, or merely held.
        Record(
            "namespace:gputally_charged:watts",
            f"sum by (cluster, namespace, basis) ({_rate('gputally_pod_energy_joules_total')})",
        ),
        Record(
            "host:gputally_charged:watts",
            f"sum by (cluster, node, owner, basis) ({_rate('gputally_host_energy_joules_total')})",
        ),
    ),
    _INTERVAL,
)

_DEVICES = Group(
    "gputally-devices",
    (
        Record(
            "device:gputally_utilization:ratio",
            f"{of_gpu('gputally_gpu_utilization_ratio')} or {of_gpu('gputally_mig_graphics_active_ratio')}",
        ),
        *(record for kind, owner in _OWNERS.items() for record in _device_and_owner(kind, owner)),
        # Time-slicing: the parts of those who hold a device at once are 1 together.
        *(
            Record(
                f"device:gputally_{kind}_part:ratio",
                f"device:gputally_{kind}_held:ratio / {_OF_DEVICE} "
                f"clamp_min(sum by ({GPU}) ({_both('held:ratio')}), 1)",
            )
            for kind in _OWNERS
        ),
        Record(
            "device:gputally_held:gpus",
            f"device:gputally_share:ratio * {_OF_DEVICE} clamp_max(sum by ({GPU}) ({_both('held:ratio')}), 1)"
            " or device:gputally_share:ratio * 0",
        ),
        Record(
            "device:gputally_busy:gpus",
            f"device:gputally_share:ratio * {_OF_DEVICE} clamp_max(sum by ({GPU}) ({_both('busy:ratio')}), 1)"
            " or device:gputally_held:gpus == 0",
        ),
        Record(
            "device:gputally_idle:gpus",
            "clamp_min(device:gputally_held:gpus - device:gputally_busy:gpus, 0)",
        ),
        Record(
            "device:gputally_allocated:gpus",
            f"device:gputally_share:ratio * {_OF_DEVICE} "
            f'max by ({GPU}) ({{__name__=~"gputally_(pod|host)_active"}}) or device:gputally_share:ratio * 0',
        ),
        Record(
            "device:gputally_in_use:gpus",
            f"device:gputally_share:ratio * {_OF_DEVICE} "
            f'(max by ({GPU}) ({{__name__=~"gputally_(gpu|mig)_processes"}}) > bool 0)',
        ),
    ),
    _INTERVAL,
)

_SUMMED = (
    "held:gpus",
    "busy:gpus",
    "idle:gpus",
    "gpu_cost:per_hour",
    "idle_cost:per_hour",
    "cost:per_hour",
    "memory_used:bytes",
)
"""What pods have, and workloads and namespaces the sum of; beside energy."""


def _owner(kind: str, owner: str) -> tuple[Record, ...]:
    by = f"cluster, node, {owner}"
    part = f"device:gputally_{kind}_part:ratio"
    idle = f"{_OF_DEVICE} (device:gputally_idle:gpus / (device:gputally_held:gpus > 0))"
    price = f"{_OF_DEVICE} device:gputally_price:per_hour"
    workload = f" * {_WORKLOAD}" if kind == "pod" else ""

    def record(operation: str, what: str) -> Record:
        return Record(f"{kind}:gputally_{operation}", f"sum by ({by}) ({what}){workload}")

    labels = f"{by}, workload" if kind == "pod" else by
    return (
        record("held:gpus", f"{part} * {_SHARE}"),
        record("busy:gpus", f"device:gputally_{kind}_busy:ratio * {_SHARE}"),
        record("idle:gpus", f"{part} * {idle} * {_SHARE}"),
        record("gpu_cost:per_hour", f"{part} * {price}"),
        record("idle_cost:per_hour", f"{part} * {idle} * {price}"),
        Record(
            f"{kind}:gputally_cost:per_hour",
            f'sum by ({labels}) ({{__name__=~"{kind}:gputally_(gpu|energy)_cost:per_hour"}})',
        ),
        record("memory_used:bytes", f"device:gputally_{kind}_memory_used:bytes"),
    )


_POD_AND_DEVICE = f"{GPU}, namespace, pod"
_OWNER_LEVELS = Group(
    "gputally-owners",
    (
        *(record for kind, owner in _OWNERS.items() for record in _owner(kind, owner)),
        # One series per pod, for autoscalers. Where processes are not sampled, the device's own utilisation.
        Record(
            "pod:gputally_utilization:ratio",
            f"avg by (cluster, namespace, pod) (clamp_max(sum by ({_POD_AND_DEVICE}) "
            f"(max by ({_POD_AND_DEVICE}, container) (gputally_pod_sm_utilization_ratio)), 1)"
            f" or on ({_POD_AND_DEVICE}) (max by ({_POD_AND_DEVICE}) (gputally_pod_active) == 1)"
            f" * {_OF_DEVICE} device:gputally_utilization:ratio)",
        ),
        Record("pod:gputally_utilization:percent", "pod:gputally_utilization:ratio * 100"),
        *(
            Record(f"{level}:gputally_{operation}", f"sum by ({by}) (pod:gputally_{operation})")
            for level, by in _LEVELS_OF_PODS.items()
            for operation in _SUMMED
        ),
        Record(
            "namespace:gputally_utilization:ratio",
            "avg by (cluster, namespace) (pod:gputally_utilization:ratio)",
        ),
        Record(
            "namespace:gputally_unrequested:gpus",
            "sum by (cluster, namespace) (pod:gputally_held:gpus and on (cluster, namespace, pod) "
            'gputally_pod_info{requested="false"})',
        ),
    ),
    _INTERVAL,
)


def _fleet(level: str) -> tuple[Record, ...]:
    by = _FLEET[level]

    def record(operation: str, expression: str) -> Record:
        return Record(f"{level}:gputally_{operation}", expression)

    def of_gpus(function: str, per_gpu: str) -> str:
        # Only that level needs the join.
        model = f" * {MODEL}" if level == "model" else ""
        return f"{function} by ({by}) ({per_gpu}{model})"

    return (
        record("gpus:count", of_gpus("count", of_gpu("gputally_gpu_info"))),
        record("gpus_up:count", of_gpus("sum", of_gpu("gputally_gpu_up"))),
        record("gpus_allocated:count", f"sum by ({by}) (device:gputally_allocated:gpus)"),
        record("gpus_in_use:count", f"sum by ({by}) (device:gputally_in_use:gpus)"),
        record(
            "gpus_free:count",
            f"clamp_min({level}:gputally_gpus_up:count - {level}:gputally_gpus_allocated:count, 0)",
        ),
        record("utilization:ratio", of_gpus("avg", of_gpu("gputally_gpu_utilization_ratio"))),
        record("memory_used:bytes", of_gpus("sum", of_gpu("gputally_gpu_memory_used_bytes"))),
        record("memory_total:bytes", of_gpus("sum", of_gpu("gputally_gpu_memory_total_bytes"))),
        record("power:watts", of_gpus("sum", of_gpu("gputally_gpu_power_watts"))),
        *(
            record(operation, f"sum by ({by}) (device:gputally_{operation})")
            for operation in ("held:gpus", "busy:gpus", "idle:gpus")
        ),
        record("gpu_cost:per_hour", f"sum by ({by}) (gpu:gputally_price:per_hour)"),
        record(
            "cost:per_hour",
            f'sum by ({by}) ({{__name__=~"{level}:gputally_(gpu|energy)_cost:per_hour"}})',
        ),
        # What no owner is charged for: with the owners' costs it is the whole.
        record(
            "unallocated_cost:per_hour",
            f"sum by ({by}) (device:gputally_price:per_hour"
            " * (1 - device:gputally_held:gpus / device:gputally_share:ratio)"
            f" or sum by ({by}) ({level}:gputally_unattributed:watts) * {_KWH} * [[ kwh_price ]])",
        ),
    )


def _cluster() -> tuple[Record, ...]:
    """The sums of its nodes; a mean is of GPUs, not of nodes."""
    records = []
    for record in _fleet("node"):
        expression = f"sum by (cluster) ({record.name})"
        if record.name == "node:gputally_utilization:ratio":
            expression = f"avg by (cluster) ({of_gpu('gputally_gpu_utilization_ratio')})"
        records.append(Record(record.name.replace("node:", "cluster:"), expression))
    return tuple(records)


_FLEET_LEVELS = Group(
    "gputally-fleet",
    (
        *_fleet("node"),
        *_fleet("model"),
        *_cluster(),
        # How many GPUs are how busy, in tenths: what no mean tells, and ten thousand lines do not show.
        Record(
            "model:gputally_gpus_by_utilization:count",
            'count_values by (cluster, model) ("utilization", '
            f"floor({of_gpu('gputally_gpu_utilization_ratio')} * {MODEL} * 10) / 10)",
        ),
        SEVERITY,
        Record("cluster:gputally_unrequested:gpus", "sum by (cluster) (namespace:gputally_unrequested:gpus)"),
    ),
    _INTERVAL,
)

GROUPS = (_BOOKS, _DEVICES, _OWNER_LEVELS, _FLEET_LEVELS)
