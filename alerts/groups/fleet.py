"""The fleet by node, model and cluster: GPUs, utilisation, memory, power and cost.

It is counted on the GPUs themselves, so that the owners' shares and the unallocated rest add up to it.
"""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-fleet",
    (
        RecordingRule(
            "node:gputally_gpus:count",
            "count by (cluster, node) (gpu:gputally_gpu:info)",
        ),
        RecordingRule(
            "node:gputally_gpus_up:count",
            "sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_up))",
        ),
        RecordingRule(
            "node:gputally_gpus_allocated:count",
            """
            sum by (cluster, node) (
                  device:gputally_share:ratio
                * on (cluster, node, gpu, uuid) group_left ()
                  max by (cluster, node, gpu, uuid) ({__name__=~"gputally_(pod|host)_active"})
              or
                device:gputally_share:ratio * 0
            )
            """,
        ),
        RecordingRule(
            "node:gputally_gpus_in_use:count",
            """
            sum by (cluster, node) (
                device:gputally_share:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                (max by (cluster, node, gpu, uuid) ({__name__=~"gputally_(gpu|mig)_processes"}) > bool 0)
            )
            """,
        ),
        RecordingRule(
            "node:gputally_gpus_free:count",
            "clamp_min(node:gputally_gpus_up:count - node:gputally_gpus_allocated:count, 0)",
        ),
        RecordingRule(
            "node:gputally_utilization:ratio",
            "avg by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio))",
        ),
        RecordingRule(
            "node:gputally_memory_used:bytes",
            "sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_memory_used_bytes))",
        ),
        RecordingRule(
            "node:gputally_memory_total:bytes",
            "sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_memory_total_bytes))",
        ),
        RecordingRule(
            "node:gputally_power:watts",
            "sum by (cluster, node) (max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts))",
        ),
        RecordingRule(
            "node:gputally_held:gpus",
            "sum by (cluster, node) (device:gputally_held:gpus)",
        ),
        RecordingRule(
            "node:gputally_busy:gpus",
            "sum by (cluster, node) (device:gputally_busy:gpus)",
        ),
        RecordingRule(
            "node:gputally_idle:gpus",
            """
            sum by (cluster, node) (
              clamp_min(device:gputally_held:gpus - device:gputally_busy:gpus, 0)
            )
            """,
        ),
        RecordingRule(
            "node:gputally_gpu_cost:per_hour",
            "sum by (cluster, node) (gpu:gputally_price:per_hour)",
        ),
        RecordingRule(
            "node:gputally_cost:per_hour",
            'sum by (cluster, node) ({__name__=~"node:gputally_(gpu|energy)_cost:per_hour"})',
        ),
        # Together with the costs of the owners this is the whole cost.
        RecordingRule(
            "node:gputally_unallocated_cost:per_hour",
            """
            sum by (cluster, node) (
                  device:gputally_price:per_hour
                *
                  (1 - device:gputally_held:gpus / device:gputally_share:ratio)
              or
                  sum by (cluster, node) (node:gputally_unattributed:watts)
                * [[ pue ]]
                / 1000
                * [[ kwh_price ]]
            )
            """,
        ),
        RecordingRule(
            "model:gputally_gpus:count",
            "count by (cluster, model) (gpu:gputally_gpu:info)",
        ),
        RecordingRule(
            "model:gputally_gpus_up:count",
            """
            sum by (cluster, model) (
                max by (cluster, node, gpu, uuid) (gputally_gpu_up)
              * on (cluster, node, uuid) group_left (model)
                gpu:gputally_gpu:info
            )
            """,
        ),
        RecordingRule(
            "model:gputally_gpus_allocated:count",
            """
            sum by (cluster, model) (
                  device:gputally_share:ratio
                * on (cluster, node, gpu, uuid) group_left ()
                  max by (cluster, node, gpu, uuid) ({__name__=~"gputally_(pod|host)_active"})
              or
                device:gputally_share:ratio * 0
            )
            """,
        ),
        RecordingRule(
            "model:gputally_gpus_in_use:count",
            """
            sum by (cluster, model) (
                device:gputally_share:ratio
              * on (cluster, node, gpu, uuid) group_left ()
                (max by (cluster, node, gpu, uuid) ({__name__=~"gputally_(gpu|mig)_processes"}) > bool 0)
            )
            """,
        ),
        RecordingRule(
            "model:gputally_gpus_free:count",
            "clamp_min(model:gputally_gpus_up:count - model:gputally_gpus_allocated:count, 0)",
        ),
        RecordingRule(
            "model:gputally_utilization:ratio",
            """
            avg by (cluster, model) (
                max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
              * on (cluster, node, uuid) group_left (model)
                gpu:gputally_gpu:info
            )
            """,
        ),
        RecordingRule(
            "model:gputally_memory_used:bytes",
            """
            sum by (cluster, model) (
                max by (cluster, node, gpu, uuid) (gputally_gpu_memory_used_bytes)
              * on (cluster, node, uuid) group_left (model)
                gpu:gputally_gpu:info
            )
            """,
        ),
        RecordingRule(
            "model:gputally_memory_total:bytes",
            """
            sum by (cluster, model) (
                max by (cluster, node, gpu, uuid) (gputally_gpu_memory_total_bytes)
              * on (cluster, node, uuid) group_left (model)
                gpu:gputally_gpu:info
            )
            """,
        ),
        RecordingRule(
            "model:gputally_power:watts",
            """
            sum by (cluster, model) (
                max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts)
              * on (cluster, node, uuid) group_left (model)
                gpu:gputally_gpu:info
            )
            """,
        ),
        RecordingRule(
            "model:gputally_held:gpus",
            "sum by (cluster, model) (device:gputally_held:gpus)",
        ),
        RecordingRule(
            "model:gputally_busy:gpus",
            "sum by (cluster, model) (device:gputally_busy:gpus)",
        ),
        RecordingRule(
            "model:gputally_idle:gpus",
            """
            sum by (cluster, model) (
              clamp_min(device:gputally_held:gpus - device:gputally_busy:gpus, 0)
            )
            """,
        ),
        RecordingRule(
            "model:gputally_gpu_cost:per_hour",
            "sum by (cluster, model) (gpu:gputally_price:per_hour)",
        ),
        RecordingRule(
            "model:gputally_cost:per_hour",
            'sum by (cluster, model) ({__name__=~"model:gputally_(gpu|energy)_cost:per_hour"})',
        ),
        RecordingRule(
            "cluster:gputally_gpus:count",
            "sum by (cluster) (node:gputally_gpus:count)",
        ),
        RecordingRule(
            "cluster:gputally_gpus_up:count",
            "sum by (cluster) (node:gputally_gpus_up:count)",
        ),
        RecordingRule(
            "cluster:gputally_gpus_allocated:count",
            "sum by (cluster) (node:gputally_gpus_allocated:count)",
        ),
        RecordingRule(
            "cluster:gputally_gpus_in_use:count",
            "sum by (cluster) (node:gputally_gpus_in_use:count)",
        ),
        RecordingRule(
            "cluster:gputally_gpus_free:count",
            "sum by (cluster) (node:gputally_gpus_free:count)",
        ),
        # A mean over GPUs, not over nodes.
        RecordingRule(
            "cluster:gputally_utilization:ratio",
            "avg by (cluster) (max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio))",
        ),
        RecordingRule(
            "cluster:gputally_memory_used:bytes",
            "sum by (cluster) (node:gputally_memory_used:bytes)",
        ),
        RecordingRule(
            "cluster:gputally_memory_total:bytes",
            "sum by (cluster) (node:gputally_memory_total:bytes)",
        ),
        RecordingRule(
            "cluster:gputally_power:watts",
            "sum by (cluster) (node:gputally_power:watts)",
        ),
        RecordingRule(
            "cluster:gputally_held:gpus",
            "sum by (cluster) (node:gputally_held:gpus)",
        ),
        RecordingRule(
            "cluster:gputally_busy:gpus",
            "sum by (cluster) (node:gputally_busy:gpus)",
        ),
        RecordingRule(
            "cluster:gputally_idle:gpus",
            "sum by (cluster) (node:gputally_idle:gpus)",
        ),
        RecordingRule(
            "cluster:gputally_gpu_cost:per_hour",
            "sum by (cluster) (node:gputally_gpu_cost:per_hour)",
        ),
        RecordingRule(
            "cluster:gputally_cost:per_hour",
            "sum by (cluster) (node:gputally_cost:per_hour)",
        ),
        RecordingRule(
            "cluster:gputally_unallocated_cost:per_hour",
            "sum by (cluster) (node:gputally_unallocated_cost:per_hour)",
        ),
        # The number of GPUs in each tenth of utilisation, which a mean hides.
        RecordingRule(
            "model:gputally_gpus_by_utilization:count",
            """
            count_values by (cluster, model) (
              "utilization",
              floor(
                  max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio)
                * on (cluster, node, uuid) group_left (model)
                  gpu:gputally_gpu:info
                * 10
              ) / 10
            )
            """,
        ),
        RecordingRule(
            "gpu:gputally_problem:severity",
            """
              (
                  label_replace(
                    max by (cluster, node, gpu, uuid) (gputally_gpu_up == 0) * 0 + 3,
                    "problem", "lost: no response", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (
                        gputally_gpu_ecc_errors_total{lifetime="volatile",type="uncorrected"} > 0
                      unless on (cluster, node, gpu, uuid)
                        gpu:gputally_ecc_contained:count
                    ) * 0 + 3,
                    "problem", "uncorrectable memory errors", "uuid", ".*"
                  )
                or
                  label_replace(
                    gpu:gputally_ecc_contained:count * 0 + 2,
                    "problem", "contained memory errors", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_failure == 1) * 0 + 3,
                    "problem", "no spare memory rows left", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (
                      gputally_gpu_recovery_action{action!~"none|drain_and_reset"} == 1
                    ) * 0 + 3,
                    "problem", "recovery action needed", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (
                      gputally_gpu_recovery_action{action="drain_and_reset"} == 1
                    ) * 0 + 2,
                    "problem", "to be reset when idle", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (
                        gpu:gputally_xid_unrepaired:timestamp{xid=~"[[ xid_critical ]]"}
                      > time() - [[ xid_window_seconds ]]
                    ) * 0 + 3,
                    "problem", "critical XID in the last hour", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (
                      gputally_gpu_throttle_active{reason="hw_thermal_slowdown"} == 1
                    ) * 0 + 2,
                    "problem", "thermal slowdown", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (
                      gputally_gpu_throttle_active{reason="hw_power_brake_slowdown"} == 1
                    ) * 0 + 2,
                    "problem", "power brake slowdown", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (gputally_gpu_remapped_rows_pending == 1) * 0 + 2,
                    "problem", "memory row needs a reset", "uuid", ".*"
                  )
                or
                  label_replace(
                    max by (cluster, node, gpu, uuid) (gpu:gputally_suspected_hang:ratio) * 0 + 1,
                    "problem", "suspected hang", "uuid", ".*"
                  )
              )
            * on (cluster, node, uuid) group_left (model)
              gpu:gputally_gpu:info
            """,
        ),
        RecordingRule(
            "cluster:gputally_unrequested:gpus",
            "sum by (cluster) (namespace:gputally_unrequested:gpus)",
        ),
    ),
)
