"""Prices and budgets: the tables of the settings, matched to GPUs, nodes and namespaces."""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-prices",
    (
        RecordingRule(
            "gpu:gputally_price_row:per_hour",
            """
            max by (cluster, node, gpu, uuid, model) (gputally_gpu_info{model=~"[[ key ]]"}) * [[ value ]]
            """,
            labels={"pattern": "[[ key ]]"},
            each="gpu_hour_prices",
        ),
        RecordingRule(
            "gpu:gputally_price:per_hour",
            """
              max by (cluster, node, gpu, uuid, model) (gpu:gputally_price_row:per_hour)
            or
              max by (cluster, node, gpu, uuid, model) (gputally_gpu_info) * [[ gpu_hour_price ]]
            """,
        ),
        RecordingRule(
            "device:gputally_price:per_hour",
            """
              device:gputally_share:ratio
            * on (cluster, node, gpu, model) group_left ()
              max by (cluster, node, gpu, model) (gpu:gputally_price:per_hour)
            """,
        ),
        RecordingRule(
            "namespace:gputally_budget:per_day",
            "vector([[ value ]])",
            labels={"namespace": "[[ key ]]"},
            each="namespace_budgets",
        ),
        RecordingRule(
            "node:gputally_power_budget_row:watts",
            'max by (cluster, node) (gputally_gpu_up{node=~"[[ key ]]"}) * 0 + [[ value ]]',
            labels={"pattern": "[[ key ]]"},
            each="node_power_budgets",
        ),
    ),
    interval="1m",
)
