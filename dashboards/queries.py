"""PromQL that several dashboards share: matchers of the chosen variables, groupings, sums over the range.

Sums over the range add up records of the same minutes, so the lines of a bill add up to its total.
"""

from alerts.schema import GPU

MATCH_CLUSTER = 'cluster=~"$cluster"'
MATCH_NODE = f'{MATCH_CLUSTER}, node=~"$node"'
MATCH_GPU = f'{MATCH_NODE}, gpu=~"$gpu"'
MATCH_MODEL = f'{MATCH_CLUSTER}, model=~"$model"'
MATCH_NAMESPACE = f'{MATCH_CLUSTER}, namespace=~"$namespace"'

BY_GPU = GPU
BY_POD = "cluster, node, namespace, pod"
BY_WORKLOAD = "cluster, namespace, workload"


def hours(selector: str, by: str = "") -> str:
    """GPU-hours of `:gpus`, watt-hours of `:watts`, money or grams of `:per_hour` records."""
    return _sum_over_range(selector, by, minutes=60)


def kilowatt_hours(selector: str, by: str = "") -> str:
    """Kilowatt-hours of `:watts` records."""
    return _sum_over_range(selector, by, minutes=60_000)


def top_over_range(selector: str, by: str, count: int = 10) -> str:
    """The series with the largest sums over the whole range: the same ones at every point of a graph."""
    most = f"topk({count}, sum by ({by}) (sum_over_time({selector}[$__range] @ end())))"
    return f"sum by ({by}) ({selector}) and on ({by}) {most}"


def or_zero(expression: str) -> str:
    return f"({expression} or vector(0))"


def _sum_over_range(selector: str, by: str, minutes: int) -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (sum_over_time({selector}[$__range]) / {minutes})"
