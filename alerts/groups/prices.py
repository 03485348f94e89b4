"""What each device costs, and what teams and nodes may use: the settings, put on the GPUs they are about."""

from alerts.groups.phrases import GPU, of_gpu
from alerts.model import Group, Record

_INSTANCES = f"max by ({GPU}, parent_uuid) (gputally_mig_info)"
_INSTANCE_MEMORY = (
    f"max by ({GPU}, parent_uuid) (gputally_mig_memory_total_bytes * on (cluster, node, uuid) "
    "group_left (parent_uuid) max by (cluster, node, uuid, parent_uuid) (gputally_mig_info))"
)
_OF_PARENT = "on (cluster, node, parent_uuid) group_left ()"
_BY_MEMORY = f"{_INSTANCE_MEMORY} / {_OF_PARENT} sum by (cluster, node, parent_uuid) ({_INSTANCE_MEMORY})"
_EQUALLY = f"{_INSTANCES} / {_OF_PARENT} count by (cluster, node, parent_uuid) ({_INSTANCES})"
_PARENT_MODEL = (
    "label_replace(max by (cluster, node, uuid, model) (gputally_gpu_info), "
    '"parent_uuid", "$1", "uuid", "(.+)")'
)
_PARENTS = (
    "label_replace(max by (cluster, node, parent_uuid) (gputally_mig_info), "
    '"uuid", "$1", "parent_uuid", "(.+)")'
)

GROUP = Group(
    "gputally-prices",
    (
        Record(
            "gpu:gputally_price_row:per_hour",
            of_gpu('gputally_gpu_info{model=~"[[ key ]]"}', "model") + " * [[ value ]]",
            labels={"pattern": "[[ key ]]"},
            each="gpu_hour_prices",
        ),
        Record(
            "gpu:gputally_price:per_hour",
            f"max by ({GPU}, model) (gpu:gputally_price_row:per_hour)"
            f" or {of_gpu('gputally_gpu_info', 'model')} * [[ gpu_hour_price ]]",
        ),
        # A GPU that is divided is not a device itself: its instances are, and add up to it.
        Record(
            "device:gputally_share:ratio",
            f"{of_gpu('gputally_gpu_info', 'model')} unless on (cluster, node, uuid) {_PARENTS}"
            f" or sum by ({GPU}, model) (({_BY_MEMORY} or {_EQUALLY})"
            f" * on (cluster, node, parent_uuid) group_left (model) {_PARENT_MODEL})",
        ),
        Record(
            "device:gputally_price:per_hour",
            "device:gputally_share:ratio * on (cluster, node, gpu, model) group_left ()"
            " max by (cluster, node, gpu, model) (gpu:gputally_price:per_hour)",
        ),
        Record(
            "namespace:gputally_budget:per_day",
            "vector([[ value ]])",
            labels={"namespace": "[[ key ]]"},
            each="namespace_budgets",
        ),
        Record(
            "node:gputally_power_budget_row:watts",
            'max by (cluster, node) (gputally_gpu_up{node=~"[[ key ]]"}) * 0 + [[ value ]]',
            labels={"pattern": "[[ key ]]"},
            each="node_power_budgets",
        ),
    ),
    interval="1m",
)
