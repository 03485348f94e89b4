"""The labels of every series that the exporter and Prometheus itself provide."""

from alerts.promql import ANY, LabelNames, SeriesLabels
from gputally.metrics import catalog
from gputally.metrics.compat import dcgm, nvidia_smi

TARGET_LABELS: LabelNames = frozenset({"cluster", "node", "job", "instance"})
"""The labels that the scrape configuration adds; honor_labels keeps the exporter's own."""

GPU = "cluster, node, gpu, uuid"
"""The labels of one GPU; they stay the same when the exporter restarts with another address."""

_PROMETHEUS = ("up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added")
_SERVER: LabelNames = frozenset({"cluster", "job", "instance"})
"""The labels of a target that is not on a node."""
STACK: SeriesLabels = {
    name: _SERVER | frozenset(labels)
    for name, labels in {
        "alertmanager_config_last_reload_successful": (),
        "alertmanager_notification_requests_failed_total": ("integration",),
        "alertmanager_notification_requests_total": ("integration",),
        "prometheus_config_last_reload_successful": (),
        "prometheus_notifications_dropped_total": ("alertmanager",),
        "prometheus_remote_storage_queue_highest_sent_timestamp_seconds": ("remote_name", "url"),
        "prometheus_rule_evaluation_failures_total": ("rule_group",),
        "prometheus_sd_kubernetes_http_request_total": ("status_code",),
        "prometheus_tsdb_compactions_failed_total": (),
        "prometheus_tsdb_head_chunks_storage_size_bytes": (),
        "prometheus_tsdb_lowest_timestamp_seconds": (),
        "prometheus_tsdb_retention_limit_bytes": (),
        "prometheus_tsdb_retention_limit_seconds": (),
        "prometheus_tsdb_size_retentions_total": (),
        "prometheus_tsdb_storage_blocks_bytes": (),
        "prometheus_tsdb_wal_storage_size_bytes": (),
        "prometheus_tsdb_wal_writes_failed_total": (),
    }.items()
}
"""Series of the stack's own servers, for the rules with which they watch each other."""

_POD: LabelNames = _SERVER | {"namespace", "pod", "uid"}
_QUEUE: LabelNames = _SERVER | {"cohort", "cluster_queue", "flavor", "resource"}
KUBE_STATE_METRICS: SeriesLabels = {
    "kube_node_info": _SERVER | {"node"},
    "kube_node_spec_taint": _SERVER | {"node", "key", "value", "effect"},
    "kube_node_spec_unschedulable": _SERVER | {"node"},
    "kube_node_status_allocatable": _SERVER | {"node", "resource", "unit"},
    "kube_node_status_condition": _SERVER | {"node", "condition", "status"},
    "kube_pod_container_resource_requests": _POD | {"container", "node", "resource"},
    "kube_pod_container_status_waiting_reason": _POD | {"container", "reason"},
    "kube_pod_created": _POD,
    "kube_pod_status_phase": _POD | {"phase"},
    "kube_pod_status_reason": _POD | {"reason"},
    "kube_pod_status_scheduled": _POD | {"condition"},
    "kube_pod_status_scheduled_time": _POD,
    "kube_resourcequota": _SERVER | {"namespace", "resourcequota", "resource", "type"},
}
"""The series of kube-state-metrics that rules and dashboards read."""
KUEUE: SeriesLabels = {
    "kueue_cluster_queue_nominal_quota": _QUEUE,
    "kueue_cluster_queue_resource_reservation": _QUEUE,
    "kueue_pending_workloads": _SERVER | {"cluster_queue", "status"},
}
"""The series of Kueue that rules read."""

_ALERTS = ("ALERTS", "ALERTS_FOR_STATE")
_OPEN = ("gputally_pod_info", "gputally_node_labels_info")
"""Series with the additional labels of --pod-labels and --node-labels."""


def exported() -> SeriesLabels:
    """The labels of every series of a scrape."""
    labels = {metric.name: TARGET_LABELS | frozenset(metric.labels) for metric in catalog.CATALOG}
    labels |= {name: labels[name] | {ANY} for name in _OPEN}
    labels |= {**dict.fromkeys(_PROMETHEUS, TARGET_LABELS), **STACK, **KUBE_STATE_METRICS, **KUEUE}
    return labels | dict.fromkeys(_ALERTS, frozenset({"alertname", "alertstate", "severity", ANY}))


def compat() -> SeriesLabels:
    """The labels of the series that --compat dcgm,nvidia-smi adds."""
    labels = {one.metric.name: TARGET_LABELS | frozenset(one.metric.labels) for one in dcgm.OLD}
    return labels | {row.name: TARGET_LABELS | {"uuid", ANY} for row in nvidia_smi.ROWS}
