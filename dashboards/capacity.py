"""Who waits for a GPU, how long and why: requests of pods against nodes, quotas and queues.

Requests come from kube-state-metrics and queues from Kueue; without them those panels say so.
"""

from dashboards import fields, links, palette
from dashboards.build import dashboard, row
from dashboards.panels import Panel, Target, bar_gauge, now, over_time, rows, stat, timeseries
from dashboards.queries import MATCH_CLUSTER
from dashboards.tables import column, share_column, table, value_columns
from dashboards.variables import CLUSTER

_NEEDED = "Needs kube-state-metrics"
_REASONS = {
    "Unschedulable": palette.CRITICAL,
    "NotScheduled": palette.UNKNOWN,
    "SchedulingGated": palette.HELD,
    "Starting": palette.WARNING,
}
_FUNNEL = {
    "allocatable": palette.FREE,
    "requested": palette.HELD,
    "allocated": palette.HELD,
    "in use": palette.BUSY,
    "idle": palette.IDLE,
    "free": palette.FREE,
}


def _chosen(record: str) -> str:
    return f"{record}{{{MATCH_CLUSTER}}}"


def _sum(record: str) -> str:
    return f"sum({_chosen(record)})"


def _by_pod(record: str, more: str = "") -> str:
    return f"sum by (cluster, namespace, pod{more}) ({_chosen(record)})"


def _or_zero(expr: str) -> str:
    """0 if kube-state-metrics is there, and nothing otherwise."""
    return f"{expr} or {_sum('resource:gputally_requested:devices')} * 0"


def _counted(title: str, description: str, query: Target, unit: str = "short") -> Panel:
    return stat(title, description, query, unit=unit, width=4, no_value=_NEEDED)


def _quota(type: str) -> str:
    chosen = f'{MATCH_CLUSTER}, resource=~"requests.+(gpu|mig-|i915|xe).*", type="{type}"'
    return f"max by (cluster, namespace, resourcequota, resource) (kube_resourcequota{{{chosen}}})"


def _by_queue(record: str) -> str:
    return f"max by (cluster, cluster_queue, resource) ({_chosen(record)})"


_NAMESPACE_COLUMN = column("namespace", name="Namespace", width=140, link=links.TO_NAMESPACE)

DASHBOARD = dashboard(
    "capacity",
    "Capacity",
    "Who waits for a GPU, how long and why: requests of pods against nodes, quotas and queues.",
    row(
        "",
        _counted(
            "Pods pending",
            "Pods that request a GPU and do not run yet. Normal is 0, or what a queue holds back on purpose. "
            "Pending pods lists them.",
            now(_or_zero(f"count({_chosen('pod:gputally_pending:seconds')})")),
        ),
        _counted(
            "Pending GPUs",
            "GPUs that the pending pods request: by so many more the cluster would have to be larger, or "
            "emptier, to run them all.",
            now(_or_zero(_sum("resource:gputally_pending:devices"))),
        ),
        _counted(
            "Longest wait",
            "Age of the pod that has been pending for the longest time. Above 15 minutes, follow its reason "
            "in Pending pods.",
            now(_or_zero(f"max({_chosen('pod:gputally_pending:seconds')})")),
            unit="s",
        ),
        bar_gauge(
            "From allocatable to busy",
            "Allocatable: GPUs of nodes that accept pods. Requested: by pods that run or wait. Allocated: "
            "by the kubelet. In use: with a process. Idle: held without activity. Free: not allocated. The "
            "first two need kube-state-metrics, and with MIG count devices.",
            now(_sum("resource:gputally_allocatable:devices"), "allocatable"),
            now(_sum("resource:gputally_requested:devices"), "requested"),
            now(_sum("cluster:gputally_allocated_by_kubelet:gpus"), "allocated"),
            now(_sum("cluster:gputally_gpus_in_use:count"), "in use"),
            now(_sum("cluster:gputally_idle:gpus"), "idle"),
            now(_sum("cluster:gputally_gpus_free:count"), "free"),
            unit="short",
            width=12,
            height=12,
            decimals=0,
            overrides=fields.colors_of(_FUNNEL),
            links=(links.link("Idle GPUs", "idle"),),
        ),
        timeseries(
            "Pending GPUs by reason",
            "GPUs that pending pods request. Unschedulable: no node fits. NotScheduled: no scheduler handles "
            "the pod. SchedulingGated: a queue holds it back. Starting: on a node, but its containers do not "
            "run.",
            over_time(f"sum by (reason) ({_chosen('resource:gputally_pending:devices')})", "{{reason}}"),
            unit="short",
            width=12,
            height=8,
            stack=True,
            overrides=fields.colors_of(_REASONS),
            legend="bottom",
            calcs=("max", "lastNotNull"),
            no_value=_NEEDED,
        ),
        timeseries(
            "Requested and allocatable by resource",
            "GPUs that pods request, running or waiting, against those of nodes that accept pods. Requests "
            "above the line of what is allocatable have to wait.",
            over_time(
                f"sum by (resource) ({_chosen('resource:gputally_requested:devices')})",
                "{{resource}} requested",
            ),
            over_time(
                f"sum by (resource) ({_chosen('resource:gputally_allocatable:devices')})",
                "{{resource}} allocatable",
            ),
            unit="short",
            width=24,
            height=7,
            legend="bottom",
            calcs=("max", "lastNotNull"),
            no_value=_NEEDED,
        ),
        table(
            "Pending pods",
            "Pods that request a GPU and do not run yet, the 100 oldest. kubectl describe pod has the "
            "message of the scheduler.",
            rows(f"topk(100, {_by_pod('pod:gputally_pending:seconds')})"),
            rows(_by_pod("pod:gputally_pending:devices", ", resource, reason")),
            columns=(
                column("Value #A", name="Waiting", unit="s", width=110),
                _NAMESPACE_COLUMN,
                column("pod", name="Pod"),
                column("reason", name="Reason", width=140),
                column("resource", name="Resource", width=170),
                column("Value #B", name="GPUs", width=70),
            ),
            hidden=("cluster",),
            order=("Value #A", "namespace", "pod", "reason", "resource", "Value #B"),
            sort_by="Waiting",
            only_with="Value #A",
            width=24,
            height=9,
            no_value="No pending pods, or no kube-state-metrics",
        ),
    ),
    row(
        "Nodes, quotas and queues (from kube-state-metrics and Kueue)",
        table(
            "Nodes with free GPUs",
            "GPUs of each node that no pod requests, the 100 nodes with the most. A pod needs all of its "
            "GPUs on one node.",
            rows(
                "topk(100, sum by (cluster, node, resource) "
                f"({_chosen('node:gputally_requestable:devices')}) > 0)"
            ),
            rows(f"sum by (cluster, node, resource) ({_chosen('node:gputally_allocatable:devices')})"),
            columns=(
                column("node", name="Node", link=links.TO_NODE),
                column("resource", name="Resource", width=140),
                column("Value #A", name="Free", width=70),
                column("Value #B", name="Allocatable", width=115),
            ),
            hidden=("cluster",),
            order=("node", "resource", *value_columns(2)),
            sort_by="Free",
            only_with="Value #A",
            width=8,
            height=9,
            no_value="No free GPUs, or no kube-state-metrics",
        ),
        table(
            "GPU quotas of namespaces",
            "ResourceQuotas for GPUs. At 100 % no further pod with a GPU is created in the namespace; it "
            "does not appear as pending.",
            rows(_quota("used")),
            rows(_quota("hard")),
            rows(f"{_quota('used')} / ({_quota('hard')} > 0)"),
            columns=(
                _NAMESPACE_COLUMN,
                column("resource", name="Resource"),
                column("Value #A", name="Used", width=60),
                column("Value #B", name="Quota", width=60),
                share_column("Value #C", "Share"),
            ),
            hidden=("cluster", "resourcequota"),
            order=("namespace", "resource", *value_columns(3)),
            sort_by="Share",
            width=8,
            height=9,
            no_value="No GPU quotas, or no kube-state-metrics",
        ),
        table(
            "Kueue queues",
            "GPUs that are reserved in each ClusterQueue, its nominal quota, and its pending workloads. "
            "Needs metrics.enableClusterQueueResources in Kueue's configuration.",
            rows(_by_queue("queue:gputally_reserved:devices")),
            rows(_by_queue("queue:gputally_quota:devices")),
            rows(
                f"{_by_queue('queue:gputally_quota:devices')} * 0"
                " + on (cluster, cluster_queue) group_left () "
                f"max by (cluster, cluster_queue) ({_chosen('queue:gputally_pending:workloads')})"
            ),
            columns=(
                column("cluster_queue", name="Queue"),
                column("resource", name="Resource", width=130),
                column("Value #A", name="Reserved", width=85),
                column("Value #B", name="Quota", width=65),
                column("Value #C", name="Pending", width=80),
            ),
            hidden=("cluster",),
            order=("cluster_queue", "resource", *value_columns(3)),
            sort_by="Pending",
            width=8,
            height=9,
            no_value="Needs the metrics of Kueue",
        ),
    ),
    variables=(CLUSTER,),
)
