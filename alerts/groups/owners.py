"""Owners (pods, and host processes outside pods): GPUs, cost and memory.

Workloads and namespaces are sums of pods. The interval is fixed at one minute, so that a sum over time is in
GPU-minutes, and a sum of a price per hour is 60 times the cost.
"""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-owners",
    (
        RecordingRule(
            "pod:gputally_held:gpus",
            """
              sum by (cluster, node, namespace, pod) (
                  device:gputally_pod_part:ratio
                * on (cluster, node, gpu, uuid) group_left (model)
                  device:gputally_share:ratio
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "pod:gputally_busy:gpus",
            """
              sum by (cluster, node, namespace, pod) (
                  device:gputally_pod_busy:ratio
                * on (cluster, node, gpu, uuid) group_left (model)
                  device:gputally_share:ratio
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "pod:gputally_idle:gpus",
            """
              sum by (cluster, node, namespace, pod) (
                  device:gputally_pod_part:ratio
                * on (cluster, node, gpu, uuid) group_left ()
                  clamp_min(1 - device:gputally_busy:gpus / (device:gputally_held:gpus > 0), 0)
                * on (cluster, node, gpu, uuid) group_left (model)
                  device:gputally_share:ratio
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "pod:gputally_gpu_cost:per_hour",
            """
              sum by (cluster, node, namespace, pod) (
                  device:gputally_pod_part:ratio
                * on (cluster, node, gpu, uuid) group_left ()
                  device:gputally_price:per_hour
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "pod:gputally_idle_cost:per_hour",
            """
              sum by (cluster, node, namespace, pod) (
                  device:gputally_pod_part:ratio
                * on (cluster, node, gpu, uuid) group_left ()
                  clamp_min(1 - device:gputally_busy:gpus / (device:gputally_held:gpus > 0), 0)
                * on (cluster, node, gpu, uuid) group_left ()
                  device:gputally_price:per_hour
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "pod:gputally_cost:per_hour",
            """
            sum by (cluster, node, namespace, pod, workload) (
              {__name__=~"pod:gputally_(gpu|energy)_cost:per_hour"}
            )
            """,
        ),
        RecordingRule(
            "pod:gputally_memory_used:bytes",
            """
              sum by (cluster, node, namespace, pod) (device:gputally_pod_memory_used:bytes)
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "host:gputally_held:gpus",
            """
            sum by (cluster, node, owner) (
                device:gputally_host_part:ratio
              * on (cluster, node, gpu, uuid) group_left (model)
                device:gputally_share:ratio
            )
            """,
        ),
        RecordingRule(
            "host:gputally_busy:gpus",
            """
            sum by (cluster, node, owner) (
                device:gputally_host_busy:ratio
              * on (cluster, node, gpu, uuid) group_left (model)
                device:gputally_share:ratio
            )
            """,
        ),
        RecordingRule(
            "host:gputally_idle:gpus",
            """
            sum by (cluster, node, owner) (
                device:gputally_host_part:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                clamp_min(1 - device:gputally_busy:gpus / (device:gputally_held:gpus > 0), 0)
              * on (cluster, node, gpu, uuid) group_left (model)
                device:gputally_share:ratio
            )
            """,
        ),
        RecordingRule(
            "host:gputally_gpu_cost:per_hour",
            """
            sum by (cluster, node, owner) (
                device:gputally_host_part:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                device:gputally_price:per_hour
            )
            """,
        ),
        RecordingRule(
            "host:gputally_cost:per_hour",
            'sum by (cluster, node, owner) ({__name__=~"host:gputally_(gpu|energy)_cost:per_hour"})',
        ),
        RecordingRule(
            "host:gputally_memory_used:bytes",
            "sum by (cluster, node, owner) (device:gputally_host_memory_used:bytes)",
        ),
        # One series per pod, for autoscalers; without process samples, the utilisation of the device.
        RecordingRule(
            "pod:gputally_utilization:ratio",
            """
            avg by (cluster, namespace, pod) (
                clamp_max(
                  sum by (cluster, node, gpu, uuid, namespace, pod) (
                    max by (cluster, node, gpu, uuid, namespace, pod, container) (
                      gputally_pod_sm_utilization_ratio
                    )
                  ),
                  1
                )
              or on (cluster, node, gpu, uuid, namespace, pod)
                  (max by (cluster, node, gpu, uuid, namespace, pod) (gputally_pod_active) == 1)
                * on (cluster, node, gpu, uuid) group_left ()
                  device:gputally_utilization:ratio
            )
            """,
        ),
        RecordingRule(
            "pod:gputally_utilization:percent",
            "pod:gputally_utilization:ratio * 100",
        ),
        RecordingRule(
            "workload:gputally_held:gpus",
            "sum by (cluster, namespace, workload) (pod:gputally_held:gpus)",
        ),
        RecordingRule(
            "workload:gputally_busy:gpus",
            "sum by (cluster, namespace, workload) (pod:gputally_busy:gpus)",
        ),
        RecordingRule(
            "workload:gputally_cost:per_hour",
            "sum by (cluster, namespace, workload) (pod:gputally_cost:per_hour)",
        ),
        RecordingRule(
            "workload:gputally_memory_used:bytes",
            "sum by (cluster, namespace, workload) (pod:gputally_memory_used:bytes)",
        ),
        RecordingRule(
            "namespace:gputally_held:gpus",
            "sum by (cluster, namespace) (pod:gputally_held:gpus)",
        ),
        RecordingRule(
            "namespace:gputally_busy:gpus",
            "sum by (cluster, namespace) (pod:gputally_busy:gpus)",
        ),
        RecordingRule(
            "namespace:gputally_idle:gpus",
            "sum by (cluster, namespace) (pod:gputally_idle:gpus)",
        ),
        RecordingRule(
            "namespace:gputally_cost:per_hour",
            "sum by (cluster, namespace) (pod:gputally_cost:per_hour)",
        ),
        RecordingRule(
            "namespace:gputally_memory_used:bytes",
            "sum by (cluster, namespace) (pod:gputally_memory_used:bytes)",
        ),
        RecordingRule(
            "namespace:gputally_utilization:ratio",
            "avg by (cluster, namespace) (pod:gputally_utilization:ratio)",
        ),
        RecordingRule(
            "namespace:gputally_unrequested:gpus",
            """
            sum by (cluster, namespace) (
                pod:gputally_held:gpus
              and on (cluster, namespace, pod)
                gputally_pod_info{requested="false"}
            )
            """,
        ),
    ),
)
