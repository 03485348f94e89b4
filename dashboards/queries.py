"""PromQL that several dashboards share: matchers of the chosen variables, groupings, sums over the range.

Sums over the range are sums of the records of the bill, whose lines add up to its total.
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


_PER_UNIT = {":seconds": " / 3600", ":joules": " / 3600000"}


def billed(record: str, by: str = "", over: str = "$__range") -> str:
    """The sum of a record of the bill over time, in hours, kilowatt-hours, grams or money."""
    unit = next((divisor for suffix, divisor in _PER_UNIT.items() if suffix in record), "")
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (sum_over_time({record}[{over}])){unit}"


def top_over_range(selector: str, by: str, count: int = 10) -> str:
    """The series with the largest sums over the whole range: the same ones at every point of a graph."""
    most = f"topk({count}, sum by ({by}) (sum_over_time({selector}[$__range] @ end())))"
    return f"sum by ({by}) ({selector}) and on ({by}) {most}"


def or_zero(expression: str) -> str:
    return f"({expression} or vector(0))"
