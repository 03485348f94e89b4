"""Do energy and money stay within what was set, and can the energy be trusted?"""

from alerts.groups.phrases import GPU, WHERE, of_gpu, of_node, with_card
from alerts.model import Alert, Audience, Group, Severity

_ENERGY = f"sum by ({GPU}) (rate(gputally_gpu_energy_joules_total[15m]))"
_POWER = of_gpu("avg_over_time(gputally_gpu_power_watts[15m])")
# A reading that is old stands still, and so does its counter.
_FRESH = (
    f"{of_node('max_over_time(gputally_snapshot_age_seconds[15m])')} < 60"
    f" and on (cluster, node) {of_node('gputally_snapshot_timestamp_seconds')} > time() - 120"
)

GROUP = Group(
    "gputally-energy",
    (
        Alert(
            "GPUTallyNodePowerOverBudget",
            "node:gputally_energy:watts > on (cluster, node) "
            "min by (cluster, node) (node:gputally_power_budget_row:watts)",
            Severity.WARNING,
            summary="The GPUs of a node draw more power than was planned for it.",
            description="The GPUs of node {{ $labels.node }} have drawn {{ $value | humanize }}W for 10 "
            "minutes, more than the node's budget. Lower their power limits (nvidia-smi -pl) before a "
            "breaker does it.",
            for_="10m",
            keep_firing_for="10m",
        ),
        Alert(
            "GPUTallyNamespaceOverBudget",
            "sum_over_time(namespace:gputally_cost:per_hour[1d]) / 60"
            " > on (namespace) group_left () namespace:gputally_budget:per_day",
            Severity.WARNING,
            summary="A namespace has used up its budget for GPUs.",
            description='Namespace {{ $labels.namespace }} has cost {{ $value | printf "%.2f" }} in the '
            "last 24 hours "
            "(GPUs and energy), more than its budget for a day. See its pods by cost, and those that only "
            "hold GPUs.",
            for_="10m",
            keep_firing_for="1h",
            audience=Audience.TEAM,
        ),
        Alert(
            "GPUTallyUnattributedEnergy",
            'avg_over_time(node:gputally_unattributed:watts{reason="unknown"}[1h]) / on (cluster, node) '
            "avg_over_time(node:gputally_energy:watts[1h]) > [[ unknown_energy_ratio ]]",
            Severity.WARNING,
            summary="Much of a node's GPU energy is charged to nobody.",
            description="Of the energy of node {{ $labels.node }}'s GPUs in the last hour, "
            "{{ $value | humanizePercentage }} went to processes that cannot be named: bills are too low by "
            "that much. Run gputally check on the node; most often the exporter lacks a privilege.",
            for_="30m",
            keep_firing_for="30m",
        ),
        Alert(
            "GPUTallyEnergyCounterStuck",
            with_card(
                f"{_ENERGY} / {_POWER} < [[ energy_counter_ratio ]] and on ({GPU}) {_POWER} > 10"
                f" and on (cluster, node) ({_FRESH})"
            ),
            Severity.WARNING,
            summary="The energy counter of a GPU does not count.",
            description=f"{WHERE} draws power, and its energy counter counts "
            f"{{{{ $value | humanizePercentage }}}} of it. "
            "Its energy and its users' bills are too low: restart the exporter, which then measures by "
            "power.",
            for_="15m",
        ),
    ),
)
