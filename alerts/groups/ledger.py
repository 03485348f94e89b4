"""Energy: the meters of the GPUs, the owners charged for it, its cost and its CO2.

All of it is one group. Prometheus evaluates groups at different moments, and only series of the same
evaluation add up: the energy of a GPU equals the energy of its owners plus the unattributed energy.
"""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-ledger",
    (
        RecordingRule(
            "gpu:gputally_energy:watts",
            """
              sum by (cluster, node, gpu, uuid) (
                rate(gputally_gpu_energy_joules_total[ [[- rate_window -]] ])
              )
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
            """,
        ),
        RecordingRule(
            "node:gputally_energy:watts",
            "sum by (cluster, node) (gpu:gputally_energy:watts)",
        ),
        RecordingRule(
            "node:gputally_unattributed:watts",
            """
            sum by (cluster, node, reason) (
              sum by (cluster, node, gpu, uuid, reason) (
                rate(
                  gputally_gpu_unattributed_energy_joules_total{reason!~"initial|expired"}[
                    [[- rate_window -]]
                  ]
                )
              )
            )
            """,
        ),
        RecordingRule(
            "model:gputally_energy:watts",
            "sum by (cluster, model) (gpu:gputally_energy:watts)",
        ),
        RecordingRule(
            "model:gputally_unattributed:watts",
            """
            sum by (cluster, model, reason) (
                sum by (cluster, node, gpu, uuid, reason) (
                  rate(
                    gputally_gpu_unattributed_energy_joules_total{reason!~"initial|expired"}[
                      [[- rate_window -]]
                    ]
                  )
                )
              * on (cluster, node, uuid) group_left (model)
                max by (cluster, node, uuid, model) (gputally_gpu_info)
            )
            """,
        ),
        RecordingRule(
            "cluster:gputally_energy:watts",
            "sum by (cluster) (node:gputally_energy:watts)",
        ),
        RecordingRule(
            "cluster:gputally_unattributed:watts",
            "sum by (cluster, reason) (node:gputally_unattributed:watts)",
        ),
        RecordingRule(
            "pod:gputally_energy:watts",
            """
              sum by (cluster, node, namespace, pod) (
                rate(gputally_pod_energy_joules_total[ [[- rate_window -]] ])
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        RecordingRule(
            "host:gputally_energy:watts",
            """
            sum by (cluster, node, owner) (rate(gputally_host_energy_joules_total[ [[- rate_window -]] ]))
            """,
        ),
        RecordingRule(
            "workload:gputally_energy:watts",
            "sum by (cluster, namespace, workload) (pod:gputally_energy:watts)",
        ),
        RecordingRule(
            "namespace:gputally_energy:watts",
            "sum by (cluster, namespace) (pod:gputally_energy:watts)",
        ),
        RecordingRule(
            "node:gputally_energy_cost:per_hour",
            "node:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        RecordingRule(
            "model:gputally_energy_cost:per_hour",
            "model:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        RecordingRule(
            "cluster:gputally_energy_cost:per_hour",
            "cluster:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        RecordingRule(
            "cluster:gputally_co2:grams_per_hour",
            "cluster:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        RecordingRule(
            "pod:gputally_energy_cost:per_hour",
            "pod:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        RecordingRule(
            "host:gputally_energy_cost:per_hour",
            "host:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
    ),
)
