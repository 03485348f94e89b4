"""How far back the rules read each series."""

from collections.abc import Iterable, Iterator

import promql_parser as parser

from alerts import promql
from alerts.model import Alert, RecordingRule

Reach = dict[str, float]
"""Seconds by the name of the series; 0 where only the last value is read."""


def reach_of(rules: Iterable[Alert | RecordingRule], schema: promql.SeriesLabels) -> Reach:
    """The furthest that any of the rules reads back."""
    furthest: Reach = {}
    for rule in rules:
        for name, seconds in _reach(parser.parse(rule.expr), 0.0, schema):
            furthest[name] = max(seconds, furthest.get(name, 0.0))
    return furthest


def _reach(node: parser.Expr, seconds: float, schema: promql.SeriesLabels) -> Iterator[tuple[str, float]]:
    for span in (getattr(node, "range", None), getattr(node, "offset", None)):
        seconds += span.total_seconds() if span else 0.0
    if isinstance(node, parser.VectorSelector):
        for name in promql.names_in(node.prettify(), schema):
            yield name, seconds
    for child in promql.children(node):
        yield from _reach(child, seconds, schema)
