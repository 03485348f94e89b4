"""Power and cost above their budgets, and energy values that are wrong."""

from alerts.model import Alert, Audience, Group, Severity

GROUP = Group(
    "gputally-energy",
    (
        Alert(
            "GPUTallyNodePowerOverBudget",
            """
              node:gputally_energy:watts
            > on (cluster, node)
              min by (cluster, node) (node:gputally_power_budget_row:watts)
            """,
            Severity.WARNING,
            summary="GPUs on {{ $labels.node }} draw more power than the node's budget.",
            description=(
                "The GPUs of node {{ $labels.node }} have drawn {{ $value | humanize }}W for 10 minutes, "
                "more than the node's power budget. A circuit breaker may trip. Lower their power limits "
                "(nvidia-smi -pl)."
            ),
            for_="10m",
            keep_firing_for="10m",
        ),
        Alert(
            "GPUTallyNamespaceOverBudget",
            """
              sum by (cluster, namespace) (sum_over_time(workload:gputally_bill_cost:money[1d]))
            > on (namespace) group_left ()
              namespace:gputally_budget:per_day
            """,
            Severity.WARNING,
            summary="Namespace {{ $labels.namespace }} is over its daily GPU budget.",
            description=(
                'Namespace {{ $labels.namespace }} has cost {{ $value | printf "%.2f" }} [[ currency ]] in '
                "the last 24 hours (GPUs and energy), more than its daily budget. Review its most expensive "
                "pods and its idle GPUs."
            ),
            for_="10m",
            keep_firing_for="1h",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyModelUnpriced",
            "model:gputally_gpus_unpriced:count > 0",
            Severity.INFO,
            summary="GPU model {{ $labels.model }} has no price.",
            description=(
                "{{ $value }} GPU(s) of model {{ $labels.model }} have no price: their GPU-hours are "
                "counted, but bills and budgets contain only their energy. Add a row for the model to "
                "gpu_hour_prices."
            ),
            for_="15m",
            keep_firing_for="1h",
        ),
        Alert(
            "GPUTallyUnattributedEnergy",
            """
                avg_over_time(node:gputally_unattributed:watts{reason="unknown"}[1h])
              / on (cluster, node)
                avg_over_time(node:gputally_energy:watts[1h])
            > [[ unknown_energy_ratio ]]
            """,
            Severity.WARNING,
            summary="Much of the GPU energy on {{ $labels.node }} is unattributed.",
            description=(
                "{{ $value | humanizePercentage }} of the GPU energy of node {{ $labels.node }} in the last "
                "hour went to processes without a known owner. Bills are too low by that share. Run gputally "
                "check on the node; the usual cause is a privilege that the exporter lacks."
            ),
            for_="30m",
            keep_firing_for="30m",
        ),
        # A stale snapshot stands still, and so does its counter.
        Alert(
            "GPUTallyEnergyCounterStuck",
            """
              (
                      sum by (cluster, node, gpu, uuid) (rate(gputally_gpu_energy_joules_total[15m]))
                    /
                      max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_power_watts[15m]))
                  < [[ energy_counter_ratio ]]
                and on (cluster, node, gpu, uuid)
                  max by (cluster, node, gpu, uuid) (avg_over_time(gputally_gpu_power_watts[15m])) > 10
                and on (cluster, node)
                  (
                      max by (cluster, node) (max_over_time(gputally_snapshot_age_seconds[15m])) < 60
                    and on (cluster, node)
                      max by (cluster, node) (gputally_snapshot_timestamp_seconds) > time() - 120
                  )
              )
            * on (cluster, node, uuid) group_left (pci_bus_id, model)
              max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)
            """,
            Severity.WARNING,
            summary="Energy counter of GPU {{ $labels.gpu }} on {{ $labels.node }} is stuck.",
            description=(
                "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.pci_bus_id }}) on node "
                "{{ $labels.node }} draws power, and its energy counter counts "
                "{{ $value | humanizePercentage }} of it. Its energy and the bills of its users are too low. "
                "Restart the exporter, which then measures by power."
            ),
            for_="15m",
        ),
    ),
)
