"""Whether queries can be answered: names, labels, variables, rates, and what is written beside a line."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import promql_parser as parser

from alerts import promql
from dashboards.reading import (
    Json,
    Query,
    annotation_queries,
    asked_by,
    fill,
    labels_in,
    panel_queries,
    panels,
    used_variables,
    variables,
)
from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat import load_rows

# Odd times, so that each can be told from one that somebody wrote.
RATE_INTERVAL, RANGE, INTERVAL = (timedelta(seconds=seconds) for seconds in (307, 3607, 61))
GRAFANAS: Mapping[str, str] = {
    "__rate_interval": f"{RATE_INTERVAL.seconds}s",
    "__range": f"{RANGE.seconds}s",
    "__range_s": str(RANGE.seconds),
    "__interval": f"{INTERVAL.seconds}s",
}
"""What Grafana puts in by itself."""
COUNTERS = frozenset(
    {metric.name for metric in CATALOG if metric.kind is Kind.COUNTER}
    | {
        row.name
        for profile in ("dcgm", "nvidia-smi")
        for row in load_rows(profile)
        if row.kind is Kind.COUNTER
    }
)
AS_LEVELS: Mapping[str, str] = {
    "gputally_gpu_ecc_errors_total": "what a card has counted is the state of its memory",
    "gputally_gpu_ras_errors_total": "what a card has counted is its state",
    "gputally_gpu_xid_errors_total": "each is rare enough to be counted one by one",
    "gputally_gpu_energy_joules_total": "the books: all that was measured against all that was charged",
    "gputally_pod_energy_joules_total": "the books",
    "gputally_host_energy_joules_total": "the books",
    "gputally_gpu_unattributed_energy_joules_total": "the books",
    "gputally_pod_held_seconds_total": "for how long a pod has held its GPUs",
}
"""Counters whose value means something by itself, and what."""
_RATES = ("rate", "irate", "increase")
_OF_COUNTERS = (*_RATES, "resets", "changes", "absent", "absent_over_time", "present_over_time", "timestamp")


def faults(dashboard: Json, known: promql.Schema) -> Iterator[str]:
    """What is wrong with the queries of the panels, the annotations and the variables."""
    names = variables(dashboard)
    asked = [query for panel in panels(dashboard) for query in panel_queries(panel)]
    for query in (*asked, *annotation_queries(dashboard)):
        for fault in _query_faults(query, names, known):
            yield f"{query.place} {query.ref_id}: {fault}"
    yield from _variable_faults(names, known)
    used = {name for query in asked for name in used_variables(query.expr)}
    for name, variable in names.items():
        if variable["type"] == "query" and name not in used:
            yield f"variable {name} is used by no panel"


def labels_of(query: Query, known: promql.Schema) -> promql.Labels:
    """The labels of its result. Raises promql.Wrong."""
    return promql.labels_of(_plain(query.expr), known)


def keeps_name(query: Query) -> bool:
    return promql.keeps_name(_plain(query.expr))


def _plain(expr: str) -> str:
    return fill(
        expr, {**GRAFANAS, **{name: f"a {name}" for name in used_variables(expr) if name not in GRAFANAS}}
    )


def _query_faults(query: Query, names: Mapping[str, Json], known: promql.Schema) -> Iterator[str]:
    for name in used_variables(query.expr):
        if name not in names and name not in GRAFANAS:
            yield f"there is no variable {name}"
    try:
        has = labels_of(query, known)
    except promql.Wrong as wrong:
        yield str(wrong)
        return
    yield from _unknown_labels(query.legend, has)
    yield from _ways_of_asking(parser.parse(_plain(query.expr)), known)


def _unknown_labels(legend: str, has: promql.Labels) -> Iterator[str]:
    for label in labels_in(legend):
        if label not in has and promql.ANY not in has:
            yield f"its legend uses {label}, and the result has {', '.join(sorted(has)) or 'no labels'}"


def _ways_of_asking(node: parser.Expr, known: promql.Schema, function: str = "") -> Iterator[str]:
    """`function` is the one that is called on what stands here."""
    match node:
        case parser.Call():
            function = node.func.name
        case parser.MatrixSelector() if function in ("rate", "irate") and node.range not in (
            RATE_INTERVAL,
            RANGE,
        ):
            yield f"{function}() over {node.range}: take $__rate_interval, or $__range for the whole of it"
        case parser.VectorSelector():
            yield from _selector_faults(node, known, function)
        case parser.MatrixSelector():
            pass
        case _:
            function = ""
    for child in promql.children(node):
        yield from _ways_of_asking(child, known, function)


def _selector_faults(node: parser.VectorSelector, known: promql.Schema, function: str) -> Iterator[str]:
    for name in sorted(promql.names_in(str(node), known)):
        if name in COUNTERS and name not in AS_LEVELS and function not in _OF_COUNTERS:
            yield f"{name} is a counter: ask for its rate() or increase()"
        if name not in COUNTERS and function in _RATES:
            yield f"{name} is not a counter, and {function}() is for counters"
    if not any(m.name == "cluster" and m.value == "a cluster" for m in node.matchers.matchers):
        yield f'{node} is asked for without cluster=~"$cluster"'


def _variable_faults(names: Mapping[str, Json], known: promql.Schema) -> Iterator[str]:
    before: set[str] = set()
    for name, variable in names.items():
        if variable["type"] == "query":
            selector, label = asked_by(variable)
            if not selector:
                yield f"variable {name}: it is not label_values(selector, label)"
            for used in used_variables(selector):
                if used not in before:
                    yield f"variable {name}: {used} does not stand before it"
            try:
                has = labels_of(Query(name, selector), known) if selector else frozenset({label})
            except promql.Wrong as wrong:
                yield f"variable {name}: {wrong}"
            else:
                if label not in has and promql.ANY not in has:
                    yield f"variable {name}: {selector} has no label {label}"
        before.add(name)
