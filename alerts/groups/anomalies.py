"""GPUs and namespaces that behave unlike their own past.

The method is that of grafana/promql-anomaly-detection. An input is a series with the labels `anomaly_name`
and `anomaly_strategy`. `adaptive` inputs (watts) are compared with their last hour, `robust` inputs (ratios
and counts, which jump between two values) with the median of their last day. Both bands are widened by the
same time yesterday and a week ago, plus or minus an hour and a half. Zeros are kept, because a drop to zero
is an anomaly. There are no bands per pod: a pod has no past. Off by default: less work than usual is rarely a
fault, and the bands are the most expensive records.
"""

from alerts.groups.anomaly_bands import BANDS
from alerts.model import Alert, Audience, Group, RecordingRule, Severity

GROUP = Group(
    "gputally-anomalies",
    (
        RecordingRule(
            "gpu:gputally_anomaly:input",
            """
            max by (cluster, node, gpu, uuid) (
              avg_over_time(gputally_gpu_utilization_ratio[ [[- rate_window -]] ])
            )
            """,
            labels={"anomaly_name": "gpu_utilization_ratio", "anomaly_strategy": "robust"},
        ),
        RecordingRule(
            "gpu:gputally_anomaly:input",
            "sum by (cluster, node, gpu, uuid) (gpu:gputally_energy:watts)",
            labels={"anomaly_name": "gpu_power_watts", "anomaly_strategy": "adaptive"},
        ),
        RecordingRule(
            "namespace:gputally_anomaly:input",
            """
              namespace:gputally_energy:watts
            or
              last_over_time(namespace:gputally_energy:watts[1d]) * 0
            """,
            labels={"anomaly_name": "namespace_power_watts", "anomaly_strategy": "adaptive"},
        ),
        RecordingRule(
            "namespace:gputally_anomaly:input",
            """
              namespace:gputally_held:gpus
            or
              last_over_time(namespace:gputally_held:gpus[1d]) * 0
            """,
            labels={"anomaly_name": "namespace_held_gpus", "anomaly_strategy": "robust"},
        ),
        *BANDS,
        # A GPU with another user than yesterday is expected to behave differently.
        Alert(
            "GPUTallyAnomalyGpu",
            """
              (
                  label_replace(
                    gpu:gputally_anomaly:input < gpu:gputally_anomaly:lower,
                    "band", "lower", "anomaly_name", ".*"
                  )
                and on (cluster, node, gpu, uuid)
                  (
                      {__name__=~"device:gputally_(pod|host)_held:ratio"}
                    and
                      {__name__=~"device:gputally_(pod|host)_held:ratio"} offset 1d
                  )
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.INFO,
            summary="GPU {{ $labels.gpu }} on {{ $labels.node }} is less active than usual.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} is below the band of its own past: {{ $labels.anomaly_name }} is "
                "{{ $value | humanize }}. It has the same user as a day ago. Check whether the work on it "
                "hangs or has run out of input."
            ),
            for_="20m",
            keep_firing_for="30m",
            enabled=False,
        ),
        # Only the lower band: a bigger job than yesterday is no fault.
        Alert(
            "GPUTallyAnomalyNamespace",
            """
              label_replace(
                namespace:gputally_anomaly:input < namespace:gputally_anomaly:lower,
                "band", "lower", "anomaly_name", ".*"
              )
            """,
            Severity.INFO,
            summary="Namespace {{ $labels.namespace }} uses less of its GPUs than usual.",
            description=(
                "Namespace {{ $labels.namespace }} is below the band of its own past: "
                "{{ $labels.anomaly_name }} is {{ $value | humanize }}. If this was not planned, check which "
                "pods ended or wait."
            ),
            for_="20m",
            keep_firing_for="30m",
            audience=Audience.TEAM,
            enabled=False,
        ),
    ),
    enabled=False,
)
