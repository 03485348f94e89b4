"""Prices and budgets: the tables of the settings, matched to GPUs, nodes and namespaces."""

from alerts.model import Group, RecordingRule

GROUP = Group(
    "gputally-prices",
    (
        # Vendor and family, the product, then its memory or form factor: A100 is neither RTX A1000 nor A100X,
        # nor the virtual GPU A100-40C.
        RecordingRule(
            "model:gputally_price_row:per_hour",
            """
              max by (cluster, model) (
                gputally_gpu_info{
                  model=~"(?i)((NVIDIA|Tesla|GeForce|AMD|Instinct|Intel.R.) )*([[ key ]])([ /].*|-[a-z].*)?"
                }
              )
            * [[ value ]]
            """,
            labels={"pattern": "[[ key ]]"},
            each="gpu_hour_prices",
        ),
        # For joins: once a minute instead of once in every rule.
        RecordingRule(
            "gpu:gputally_gpu:info",
            "max by (cluster, node, uuid, pci_bus_id, model) (gputally_gpu_info)",
        ),
        RecordingRule(
            "gpu:gputally_price:per_hour",
            """
              max by (cluster, node, gpu, uuid, model) (gputally_gpu_info)
            * on (cluster, model) group_left ()
              max by (cluster, model) (model:gputally_price_row:per_hour)
            """,
        ),
        RecordingRule(
            "model:gputally_gpus_unpriced:count",
            """
            count by (cluster, model) (
                max by (cluster, node, gpu, uuid, model) (gputally_gpu_info)
              unless on (cluster, node, gpu, uuid)
                gpu:gputally_price:per_hour
            )
            """,
        ),
        RecordingRule(
            "prices:gputally_currency:info",
            "vector(1)",
            labels={"currency": "[[ currency ]]"},
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
)
