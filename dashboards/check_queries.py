"""Checks queries: metric names, labels, variables, use of rate() and labels in legends."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import promql_parser as parser

from alerts import promql
from dashboards import Json
from dashboards.reading import (
    PanelQuery,
    annotation_queries,
    fill_variables,
    label_values_query,
    labels_in,
    panel_queries,
    panels,
    used_variables,
    variables,
)
from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat import load_rows

# Unusual durations, so that a filled-in variable differs from a duration in the source.
RATE_INTERVAL, RANGE, INTERVAL = (timedelta(seconds=seconds) for seconds in (307, 3607, 61))
GRAFANA_VARIABLES: Mapping[str, str] = {
    "__rate_interval": f"{RATE_INTERVAL.seconds}s",
    "__range": f"{RANGE.seconds}s",
    "__range_s": str(RANGE.seconds),
    "__interval": f"{INTERVAL.seconds}s",
}
"""Variables that Grafana itself fills in."""
COUNTERS = frozenset(
    {metric.name for metric in CATALOG if metric.kind is Kind.COUNTER}
    | {
        row.name
        for profile in ("dcgm", "nvidia-smi")
        for row in load_rows(profile)
        if row.kind is Kind.COUNTER
    }
)
COUNTERS_READ_AS_VALUES: Mapping[str, str] = {
    "gputally_gpu_ecc_errors_total": "the total is the state of the GPU's memory",
    "gputally_gpu_ras_errors_total": "the total is the state of the GPU",
    "gputally_gpu_energy_joules_total": "ledger error: total measured minus total charged",
    "gputally_pod_energy_joules_total": "ledger error",
    "gputally_host_energy_joules_total": "ledger error",
    "gputally_gpu_unattributed_energy_joules_total": "ledger error",
    "gputally_pod_held_seconds_total": "how long a pod has held its GPUs",
}
"""Counters whose value is meaningful without rate(), and why."""
_RATES = ("rate", "irate", "increase")
_OF_COUNTERS = (*_RATES, "resets", "changes", "absent", "absent_over_time", "present_over_time", "timestamp")


def faults(dashboard: Json, known: promql.SeriesLabels) -> Iterator[str]:
    """Faults of the queries of panels, annotations and variables."""
    names = variables(dashboard)
    queries = [query for panel in panels(dashboard) for query in panel_queries(panel)]
    for query in (*queries, *annotation_queries(dashboard)):
        for fault in _query_faults(query, names, known):
            yield f"{query.location} {query.ref_id}: {fault}"
    yield from _variable_faults(names, known)
    used = {name for query in queries for name in used_variables(query.expr)}
    for name, variable in names.items():
        if variable["type"] == "query" and name not in used:
            yield f"variable {name} is not used by any panel"


def labels_of(query: PanelQuery, known: promql.SeriesLabels) -> promql.LabelNames:
    """The labels of its result. Raises promql.Wrong."""
    return promql.labels_of(plain(query.expr), known)


def keeps_name(query: PanelQuery) -> bool:
    return promql.keeps_name(plain(query.expr))


def plain(expr: str) -> str:
    return fill_variables(
        expr,
        {
            **GRAFANA_VARIABLES,
            **{name: f"a {name}" for name in used_variables(expr) if name not in GRAFANA_VARIABLES},
        },
    )


def _query_faults(query: PanelQuery, names: Mapping[str, Json], known: promql.SeriesLabels) -> Iterator[str]:
    for name in used_variables(query.expr):
        if name not in names and name not in GRAFANA_VARIABLES:
            yield f"unknown variable {name}"
    try:
        has = labels_of(query, known)
    except promql.Wrong as wrong:
        yield str(wrong)
        return
    yield from _unknown_labels(query.legend, has)
    yield from _usage_faults(parser.parse(plain(query.expr)), known)


def _unknown_labels(legend: str, has: promql.LabelNames) -> Iterator[str]:
    for label in labels_in(legend):
        if label not in has and promql.ANY not in has:
            yield f"the legend uses {label}, but the result has {', '.join(sorted(has)) or 'no labels'}"


def _usage_faults(node: parser.Expr, known: promql.SeriesLabels, function: str = "") -> Iterator[str]:
    """Misuse of rate() and counters; `function` is the function applied to this node."""
    match node:
        case parser.Call():
            function = node.func.name
        case parser.MatrixSelector() if function in ("rate", "irate") and node.range not in (
            RATE_INTERVAL,
            RANGE,
        ):
            yield f"{function}() over {node.range}: use $__rate_interval, or $__range for the whole range"
        case parser.VectorSelector():
            yield from _selector_faults(node, known, function)
        case parser.MatrixSelector():
            pass
        case _:
            function = ""
    for child in promql.children(node):
        yield from _usage_faults(child, known, function)


def _selector_faults(node: parser.VectorSelector, known: promql.SeriesLabels, function: str) -> Iterator[str]:
    for name in sorted(promql.names_in(str(node), known)):
        if name in COUNTERS and name not in COUNTERS_READ_AS_VALUES and function not in _OF_COUNTERS:
            yield f"{name} is a counter: use rate() or increase()"
        if name not in COUNTERS and function in _RATES:
            yield f"{name} is not a counter: {function}() needs one"
    if not any(m.name == "cluster" and m.value == "a cluster" for m in node.matchers.matchers):
        yield f'{node} is selected without cluster=~"$cluster"'


def _variable_faults(names: Mapping[str, Json], known: promql.SeriesLabels) -> Iterator[str]:
    before: set[str] = set()
    for name, variable in names.items():
        if variable["type"] == "query":
            selector, label = label_values_query(variable)
            if not selector:
                yield f"variable {name}: the query is not label_values(selector, label)"
            for used in used_variables(selector):
                if used not in before:
                    yield f"variable {name}: {used} is not defined before it"
            try:
                has = labels_of(PanelQuery(name, selector), known) if selector else frozenset({label})
            except promql.Wrong as wrong:
                yield f"variable {name}: {wrong}"
            else:
                if label not in has and promql.ANY not in has:
                    yield f"variable {name}: {selector} has no label {label}"
        before.add(name)
