"""The labels of every series that the exporter and Prometheus itself provide."""

from alerts.promql import ANY, LabelNames, SeriesLabels
from gputally.metrics import catalog
from gputally.metrics.compat import dcgm, nvidia_smi

TARGET_LABELS: LabelNames = frozenset({"cluster", "node", "job", "instance"})
"""The labels that the scrape configuration adds; honor_labels keeps the exporter's own."""

GPU = "cluster, node, gpu, uuid"
"""The labels of one GPU; they stay the same when the exporter restarts with another address."""

_PROMETHEUS = ("up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added")
_KUBE_STATE_METRICS: SeriesLabels = {
    name: TARGET_LABELS | {"node", *labels}
    for name, labels in {
        "kube_node_info": (),
        "kube_node_spec_taint": ("key", "value", "effect"),
        "kube_node_spec_unschedulable": (),
        "kube_node_status_allocatable": ("resource", "unit"),
        "kube_node_status_condition": ("condition", "status"),
    }.items()
}
"""Series of nodes; their label `node` is kept by `honor_labels`. Rules work without them, too."""
_ALERTS = ("ALERTS", "ALERTS_FOR_STATE")
_OPEN = ("gputally_pod_info", "gputally_node_labels_info")
"""Series with the additional labels of --pod-labels and --node-labels."""


def exported() -> SeriesLabels:
    """The labels of every series of a scrape."""
    labels = {metric.name: TARGET_LABELS | frozenset(metric.labels) for metric in catalog.CATALOG}
    labels |= {name: labels[name] | {ANY} for name in _OPEN}
    labels |= dict.fromkeys(_PROMETHEUS, TARGET_LABELS)
    labels |= _KUBE_STATE_METRICS
    return labels | dict.fromkeys(_ALERTS, frozenset({"alertname", "alertstate", "severity", ANY}))


def compat() -> SeriesLabels:
    """The labels of the series that --compat dcgm,nvidia-smi adds."""
    labels = {one.metric.name: TARGET_LABELS | frozenset(one.metric.labels) for one in dcgm.OLD}
    return labels | {row.name: TARGET_LABELS | {"uuid", ANY} for row in nvidia_smi.ROWS}
