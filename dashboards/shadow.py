"""GPU use without a request: unrequested pods, owners outside Kubernetes, unattributed processes."""

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import now, over_time, rows, stat, timeseries
from dashboards.queries import (
    BY_GPU,
    BY_POD,
    MATCH_CLUSTER,
    MATCH_NAMESPACE,
    MATCH_NODE,
    billed,
    or_zero,
    top_over_range,
)
from dashboards.tables import column, share_column, table, value_columns
from dashboards.variables import CLUSTER, NAMESPACE, NODE

_POD = f'{MATCH_NODE}, namespace=~"$namespace"'
_BY_OWNER = "cluster, node, owner"
_BY_REASON = "cluster, node, reason"
_OF_POD = "on (cluster, namespace, pod)"

_KINDS = {
    "requested pods": palette.BUSY,
    "unrequested pods": palette.CRITICAL,
    "outside Kubernetes": palette.HELD,
    "unattributed": palette.UNKNOWN,
}
_REMEDIES = {
    "limit": "too many processes on the GPUs",
    "pid_namespace": "exporter needs hostPID",
    "permission": "no access to /proc: remove hidepid",
    "unknown_pod": "mount /var/log/pods or add a pod source",
    "unknown_container": "mount /var/log/containers or add a pod source",
    "exited": "exited before it was read: no action",
    "zombie": "zombie process: check its parent",
    "unreadable": "cgroup not recognised: report a bug",
    "unstable": "PID was reused: no action",
    "ambiguous_pod": "cgroups of two pods: report a bug",
}


def _info(requested: str) -> str:
    chosen = f'{MATCH_NAMESPACE}, requested="{requested}"'
    return f"max by (cluster, namespace, pod) (gputally_pod_info{{{chosen}}})"


_UNREQUESTED = _info("false")
_UNREQUESTED_IN_RANGE = (
    "max by (cluster, namespace, pod) (last_over_time("
    f'gputally_pod_info{{{MATCH_NAMESPACE}, requested="false"}}[$__range]))'
)


def _pods(metric: str) -> str:
    return f"gputally_pod_{metric}{{{_POD}}}"


def _of_device(metric: str) -> str:
    """Per pod and device, summed over its containers."""
    return (
        f"sum by ({BY_GPU}, namespace, pod) (max by ({BY_GPU}, namespace, pod, container) ({_pods(metric)}))"
    )


def _of_pod(metric: str) -> str:
    return f"sum by ({BY_POD}) ({_of_device(metric)}) and {_OF_POD} {_UNREQUESTED}"


def _recorded(operation: str) -> str:
    return f"pod:gputally_{operation}{{{_POD}}}"


def _host(metric: str, how: str = "sum") -> str:
    """Of active owners only: series of ended owners remain for a while."""
    active = f"max by ({BY_GPU}, owner) (gputally_host_active{{{MATCH_NODE}}}) == 1"
    each = f"max by ({BY_GPU}, owner) (gputally_host_{metric}{{{MATCH_NODE}}})"
    return f"{how} by ({_BY_OWNER}) ({each} and on ({BY_GPU}, owner) ({active}))"


def _unknown(metric: str, how: str = "sum") -> str:
    each = f"max by ({BY_GPU}, reason) (gputally_gpu_unattributed_{metric}{{{MATCH_NODE}}})"
    return f"{how} by ({_BY_REASON}) ({each})"


def _with_holder(metric: str) -> str:
    """Per unrequested pod and device, with one of the pods to which the device is allocated, if any."""
    unrequested = f"{_of_device(metric)} and {_OF_POD} {_UNREQUESTED}"
    allocated = f"(device:gputally_pod_held:ratio{{{MATCH_NODE}}} and {_OF_POD} {_info_everywhere('true')})"
    first = f"topk by ({BY_GPU}) (1, {allocated})"
    holder = f'label_join({first}, "holder", "/", "namespace", "pod")'
    joined = f"({unrequested}) + on ({BY_GPU}) group_left (holder) 0 * {holder}"
    return f"{joined} or on ({BY_GPU}, namespace, pod) {unrequested}"


def _info_everywhere(requested: str) -> str:
    return f'max by (cluster, namespace, pod) (gputally_pod_info{{{MATCH_CLUSTER}, requested="{requested}"}})'


_UNREQUESTED_MEMORY = f"sum({_of_pod('memory_used_bytes')})"
_UNKNOWN_MEMORY = f"sum({_unknown('memory_used_bytes')})"
_HOST_MEMORY = f"sum({_host('memory_used_bytes')})"
_UNKNOWN_WATTS = f'node:gputally_unattributed:watts{{{MATCH_NODE}, reason="unknown"}}'

DASHBOARD = dashboard(
    "shadow",
    "Shadow use",
    "Shadow use is GPU use without a request: pods that did not request a GPU, owners outside Kubernetes "
    "and unattributed processes. It takes memory and time from pods with a request, and no quota counts "
    "it.",
    row(
        "",
        stat(
            "Unrequested pods",
            "Pods that hold or use a GPU without a GPU request. Normal is 0; the first table lists them.",
            now(f"count({_of_pod('processes')} > 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_CRITICAL,
            background=True,
        ),
        stat(
            "GPUs",
            "GPUs on which such a pod has a process. Pods that requested these GPUs get less memory and "
            "time.",
            now(
                f"count(sum by ({BY_GPU}) ({_of_device('processes')} > 0 and {_OF_POD} {_UNREQUESTED}))"
                " or vector(0)"
            ),
            unit="short",
            width=3,
            steps=fields.ANY_IS_CRITICAL,
        ),
        stat(
            "Cost",
            "Cost of these pods over the time range, including pods that have ended. No quota covers it.",
            now(
                f"sum({billed(_recorded('bill_cost:money'), BY_POD)} and {_OF_POD} {_UNREQUESTED_IN_RANGE})"
                " or vector(0)"
            ),
            unit="none",
            width=3,
            decimals=2,
            links=(links.link("Energy and chargeback", "energy", "namespace"),),
        ),
        stat(
            "Unknown",
            "Pods on a GPU whose request is unknown. Normal is 0. Otherwise give the exporter access to "
            "the kubelet's pod-resources socket.",
            now(f"count({_info('')}) or vector(0)"),
            unit="short",
            width=3,
            steps=fields.ANY_IS_WARNING,
        ),
        stat(
            "Host owners",
            "Slurm jobs, containers, services and sessions on the GPUs that are not pods. Normal is 0 on a "
            "cluster node, because the scheduler does not count them.",
            now(f"count({_host('processes')} > 0) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.thresholds((1, palette.HELD)),
        ),
        stat(
            "Unattributed",
            "Processes on the GPUs whose owner is unknown. Normal is 0; the table Unattributed processes "
            "shows the reason and the fix.",
            now(f"sum({_unknown('processes')}) or vector(0)"),
            unit="short",
            width=4,
            steps=fields.ANY_IS_WARNING,
        ),
        stat(
            "Memory",
            "Device memory of unrequested pods, owners outside Kubernetes and unattributed processes "
            "together. It is a common cause of unexpected out-of-memory errors.",
            now(f"{or_zero(_UNREQUESTED_MEMORY)} + {or_zero(_HOST_MEMORY)} + {or_zero(_UNKNOWN_MEMORY)}"),
            unit="bytes",
            width=3,
        ),
        table(
            "Unrequested pods by GPU",
            "One line per pod and GPU; the 100 with the most memory. Allocated to names a pod that "
            "requested this GPU and has to share it. Add a GPU request to the unrequested pod, or stop it.",
            rows(f"topk(100, {_with_holder('memory_used_bytes')})"),
            rows(_with_holder("processes")),
            rows(_with_holder("sm_utilization_ratio")),
            columns=(
                column("pod", name="Pod", link=links.TO_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("gpu", name="GPU", width=70, link=links.TO_GPU),
                column("holder", name="Allocated to"),
                column("Value #A", name="Memory", unit="bytes", width=120),
                column("Value #B", name="Processes", width=100),
                share_column("Value #C", "SM use", width=240),
                column("namespace", name="Namespace"),
            ),
            hidden=("cluster", "uuid"),
            order=("namespace", "pod", "node", "gpu", "holder", *value_columns(3)),
            sort_by="Memory",
            only_with="Value #A",
            height=7,
            no_value="No unrequested pods",
        ),
        table(
            "Owners outside Kubernetes",
            "Owners on the GPUs that are not pods; the 100 with the most memory. On a cluster node, move "
            "them into pods or remove the GPU from the cluster. On a host without Kubernetes they are "
            "normal.",
            rows(f"topk(100, {_host('memory_used_bytes')})"),
            rows(_host("memory_used_bytes", "count")),
            rows(_host("processes")),
            rows(_host("sm_utilization_ratio", "avg")),
            columns=(
                column("owner", name="Owner"),
                column("node", name="Node", width=130, link=links.TO_NODE),
                column("Value #A", name="Memory", unit="bytes", width=90),
                column("Value #B", name="GPUs", width=60),
                column("Value #C", name="Processes", width=92),
                share_column("Value #D", "SM use", width=110),
            ),
            hidden=("cluster",),
            order=("owner", "node", *value_columns(4)),
            sort_by="Memory",
            only_with="Value #A",
            width=12,
            height=7,
            no_value="No owners outside Kubernetes",
        ),
        table(
            "Unattributed processes",
            "Processes without a known owner, by node and reason, with the fix. A few short-lived "
            "processes are normal; a whole node means that the exporter lacks a privilege.",
            rows(_unknown("processes")),
            rows(_unknown("processes", "count")),
            rows(_unknown("memory_used_bytes")),
            columns=(
                fields.override("reason", displayName="Reason and fix", mappings=fields.texts(_REMEDIES)),
                column("node", name="Node", link=links.TO_NODE, width=130),
                column("Value #A", name="Processes", width=90),
                column("Value #B", name="GPUs", width=65),
                column("Value #C", name="Memory", unit="bytes", width=100),
            ),
            hidden=("cluster",),
            order=("reason", "node", *value_columns(3)),
            sort_by="Memory",
            width=12,
            height=7,
            no_value="No unattributed processes",
        ),
    ),
    row(
        "Over time",
        timeseries(
            "Memory by type of owner",
            "Device memory of pods with a GPU request and of all others. Only the first is known to the "
            "scheduler.",
            over_time(
                f"sum(sum by ({BY_POD}) ({_of_device('memory_used_bytes')}) unless {_OF_POD} {_UNREQUESTED})",
                "requested pods",
            ),
            over_time(_UNREQUESTED_MEMORY, "unrequested pods"),
            over_time(_HOST_MEMORY, "outside Kubernetes"),
            over_time(_UNKNOWN_MEMORY, "unattributed"),
            unit="bytes",
            stack=True,
            overrides=fields.colors_of(_KINDS),
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Power by type of owner",
            "Power charged to pods with a GPU request, to all others, and unattributed power. Only the "
            "first is covered by quotas.",
            over_time(f"sum({_recorded('energy:watts')} unless {_OF_POD} {_UNREQUESTED})", "requested pods"),
            over_time(f"sum({_recorded('energy:watts')} and {_OF_POD} {_UNREQUESTED})", "unrequested pods"),
            over_time(f"sum(host:gputally_energy:watts{{{MATCH_NODE}}})", "outside Kubernetes"),
            over_time(f"sum({_UNKNOWN_WATTS})", "unattributed"),
            unit="watt",
            stack=True,
            overrides=fields.colors_of(_KINDS),
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Unrequested GPUs by namespace",
            "GPUs held by unrequested pods, of the ten namespaces with the most. If a namespace recurs, "
            "add GPU requests or a quota.",
            over_time(
                top_over_range(f"namespace:gputally_unrequested:gpus{{{MATCH_NAMESPACE}}}", "namespace"),
                "{{namespace}}",
            ),
            unit="short",
            decimals=1,
            stack=True,
            legend="bottom",
            calcs=("mean",),
        ),
        timeseries(
            "Power of owners outside Kubernetes",
            "The six owners outside Kubernetes that use the most energy. On a cluster node, each of them "
            "uses a GPU without the scheduler.",
            over_time(
                top_over_range(f"host:gputally_energy:watts{{{MATCH_NODE}}}", _BY_OWNER, 6),
                "{{node}} {{owner}}",
            ),
            unit="watt",
            stack=True,
            legend="bottom",
            calcs=("mean",),
        ),
    ),
    row(
        "Time range totals",
        table(
            "History of unrequested pods",
            "Pods that used a GPU without a request in the time range, including pods that have ended; the "
            "100 with the most energy. A recurring name is a workload that needs a GPU request.",
            rows(
                f"topk(100, {billed(_recorded('bill_energy:joules'), BY_POD)} and {_OF_POD} "
                f"{_UNREQUESTED_IN_RANGE})"
            ),
            rows(billed(_recorded("bill_allocated:seconds"), BY_POD)),
            rows(billed(_recorded("bill_cost:money"), BY_POD)),
            columns=(
                column("namespace", name="Namespace"),
                column("pod", name="Pod", link=links.TO_POD),
                column("node", name="Node", link=links.TO_NODE),
                column("Value #A", name="Energy", unit="kwatth", decimals=2, width=130),
                column("Value #B", name="GPU hours", unit="none", decimals=1, width=130),
                column("Value #C", name="Cost", unit="none", decimals=2, width=130),
            ),
            hidden=("cluster",),
            order=("namespace", "pod", "node", *value_columns(3)),
            sort_by="Energy",
            only_with="Value #A",
            height=8,
            no_value="No unrequested pods",
        ),
    ),
    variables=(CLUSTER, NODE, NAMESPACE),
    since="now-24h",
)
