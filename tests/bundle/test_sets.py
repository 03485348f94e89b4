"""The set `standard` is what the dashboards, rules and `verify` use: no metric less, and hardly one more."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from alerts import promql, schema
from alerts.check import full_schema
from alerts.filling import with_defaults
from alerts.groups import GROUPS
from alerts.settings import TABLES
from dashboards import check_queries, registry
from dashboards.reading import annotation_queries, label_values_query, panel_queries, panels, variables
from gputally.declarations import STANDARD
from gputally.metrics.catalog import CATALOG
from gputally.metrics.sets import choose

ROOT = Path(__file__).parents[2]
PROGRAMS = ("exporter/gputally/commands", "tools/verification")
"""Programs that query Prometheus or read a scrape."""
NAMES = {one.name for one in CATALOG}
UNUSED: Mapping[str, str] = {
    "gputally_node_labels_info": "exported only where --node-labels asks for it",
}
"""Metrics of `standard` that nothing of ours uses, and why they are in it."""
OF_MIG_DEVICES = ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")
"""Declared once for GPUs, where a dashboard uses them, and for MIG devices."""


def expressions() -> Iterator[str]:
    """Every query of rules and dashboards."""
    for group in GROUPS:
        yield from (rule.expr for rule in with_defaults(group, TABLES).rules)
    for text in registry.texts().values():
        dashboard = json.loads(text)
        queries = [query for panel in panels(dashboard) for query in panel_queries(panel)]
        yield from (query.expr for query in (*queries, *annotation_queries(dashboard)))
        for variable in variables(dashboard).values():
            if variable["type"] == "query":
                yield label_values_query(variable)[0]


def used() -> set[str]:
    """The metrics of ours that a query, or the text of a program, names."""
    known = {**full_schema(), **schema.compat()}
    found = {name for one in expressions() for name in promql.names_in(check_queries.plain(one), known)}
    for directory in PROGRAMS:
        for file in (ROOT / directory).rglob("*.py"):
            found.update(re.findall(r"gputally_[a-z0-9_]+", file.read_text()))
    return found & NAMES


def test_standard_has_every_metric_that_is_used() -> None:
    assert sorted(used() - choose(STANDARD).keys()) == []


def test_standard_has_no_metric_that_nothing_uses() -> None:
    allowed = UNUSED.keys() | {f"gputally_mig_{name}" for name in OF_MIG_DEVICES}
    assert sorted(choose(STANDARD).keys() - used()) == sorted(allowed)


def test_standard_has_every_value_of_a_label_that_a_query_selects() -> None:
    values: dict[str, set[str]] = {}
    pattern = re.compile(r"(gputally_\w+)\{([^}]*)\}")
    for one in expressions():
        for name, matchers in pattern.findall(one):
            metric = choose(STANDARD).get(name)
            if metric is not None and metric.usual:
                label = metric.extra_labels[0]
                chosen = re.findall(rf'{label}="(\w+)"', matchers)
                values.setdefault(name, set()).update(chosen)
    assert values
    for name, selected in values.items():
        assert selected <= set(choose(STANDARD)[name].usual), name
