"""Energy: the meters of the GPUs, the owners charged for it, its cost and its CO2.

All of it is one group. Prometheus evaluates groups at different moments, and only series of the same
evaluation add up: the energy of a GPU equals the energy of its owners plus the unattributed energy.
"""

from alerts.model import Group, Record

GROUP = Group(
    "gputally-ledger",
    (
        # A pod that has ended keeps its workload as long as its last rates are visible.
        Record(
            "pod:gputally_workload:info",
            """
              topk by (cluster, namespace, pod) (
                1,
                max by (cluster, namespace, pod, workload) (
                  last_over_time(gputally_pod_info{workload!=""}[15m])
                )
              )
            or on (cluster, namespace, pod)
              clamp_min(max by (cluster, namespace, pod) (last_over_time(gputally_pod_active[15m])), 1)
            """,
        ),
        Record(
            "gpu:gputally_energy:watts",
            """
              sum by (cluster, node, gpu, uuid) (
                rate(gputally_gpu_energy_joules_total[ [[- rate_window -]] ])
              )
            * on (cluster, node, uuid) group_left (model)
              max by (cluster, node, uuid, model) (gputally_gpu_info)
            """,
        ),
        Record(
            "node:gputally_energy:watts",
            "sum by (cluster, node) (gpu:gputally_energy:watts)",
        ),
        Record(
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
        Record(
            "model:gputally_energy:watts",
            "sum by (cluster, model) (gpu:gputally_energy:watts)",
        ),
        Record(
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
        Record(
            "cluster:gputally_energy:watts",
            "sum by (cluster) (node:gputally_energy:watts)",
        ),
        Record(
            "cluster:gputally_unattributed:watts",
            "sum by (cluster, reason) (node:gputally_unattributed:watts)",
        ),
        Record(
            "pod:gputally_energy:watts",
            """
              sum by (cluster, node, namespace, pod) (
                rate(gputally_pod_energy_joules_total[ [[- rate_window -]] ])
              )
            * on (cluster, namespace, pod) group_left (workload)
              pod:gputally_workload:info
            """,
        ),
        Record(
            "host:gputally_energy:watts",
            """
            sum by (cluster, node, owner) (rate(gputally_host_energy_joules_total[ [[- rate_window -]] ]))
            """,
        ),
        Record(
            "workload:gputally_energy:watts",
            "sum by (cluster, namespace, workload) (pod:gputally_energy:watts)",
        ),
        Record(
            "namespace:gputally_energy:watts",
            "sum by (cluster, namespace) (pod:gputally_energy:watts)",
        ),
        Record(
            "node:gputally_energy_cost:per_hour",
            "node:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "node:gputally_co2:grams_per_hour",
            "node:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        Record(
            "model:gputally_energy_cost:per_hour",
            "model:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "model:gputally_co2:grams_per_hour",
            "model:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        Record(
            "cluster:gputally_energy_cost:per_hour",
            "cluster:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "cluster:gputally_co2:grams_per_hour",
            "cluster:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        Record(
            "pod:gputally_energy_cost:per_hour",
            "pod:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "pod:gputally_co2:grams_per_hour",
            "pod:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        Record(
            "host:gputally_energy_cost:per_hour",
            "host:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "host:gputally_co2:grams_per_hour",
            "host:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        Record(
            "workload:gputally_energy_cost:per_hour",
            "workload:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "workload:gputally_co2:grams_per_hour",
            "workload:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        Record(
            "namespace:gputally_energy_cost:per_hour",
            "namespace:gputally_energy:watts * [[ pue ]] / 1000 * [[ kwh_price ]]",
        ),
        Record(
            "namespace:gputally_co2:grams_per_hour",
            "namespace:gputally_energy:watts * [[ pue ]] / 1000 * [[ co2_grams_per_kwh ]]",
        ),
        # The share of a bill that is measured, shared or merely held.
        Record(
            "namespace:gputally_charged:watts",
            """
            sum by (cluster, namespace, basis) (
              rate(gputally_pod_energy_joules_total[ [[- rate_window -]] ])
            )
            """,
        ),
        Record(
            "host:gputally_charged:watts",
            """
            sum by (cluster, node, owner, basis) (
              rate(gputally_host_energy_joules_total[ [[- rate_window -]] ])
            )
            """,
        ),
    ),
    interval="1m",
)
