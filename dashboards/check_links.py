"""Checks that links lead to a dashboard, and that columns and labels used by a panel exist in its results."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from alerts import promql
from dashboards import Json
from dashboards.check_queries import keeps_name, labels_of
from dashboards.reading import (
    PanelQuery,
    column_names,
    labels_in,
    panel_name,
    panel_queries,
    panels,
    variables,
)

_METRIC_NAME = "__name__"
_TO_DASHBOARD = re.compile(r"/d/([\w-]+)")
_GIVEN = re.compile(r"[?&]var-(\w+)=")
_KEPT = re.compile(r"\$\{(\w+):queryparam\}")
_LABEL_OF_SERIES = re.compile(r"\$\{__field\.labels\.(\w+)\}")
_COLUMN_OF_ROW = re.compile(r'\$\{__data\.fields(?:\.(\w+)|\["([^"]+)"\])\}')


def faults(dashboard: Json, dashboards: Mapping[str, Json], known: promql.SeriesLabels) -> Iterator[str]:
    """Faults of a dashboard's links and of the column and label names that its panels use."""
    by_uid = {other["uid"]: other for other in dashboards.values()}
    for uid in sorted(set(_TO_DASHBOARD.findall(json.dumps(dashboard))) - by_uid.keys()):
        yield f"a link leads to {uid}, which is not a dashboard"
    for panel in panels(dashboard):
        for link in _links(panel):
            for fault in _address_faults(link["url"], dashboard, by_uid):
                yield f"{panel_name(panel)}: link {link['title']}: {fault}"
        for fault in _name_faults(panel, known):
            yield f"{panel_name(panel)}: {fault}"
    tags = {tag for other in dashboards.values() for tag in other["tags"]}
    for link in dashboard["links"]:
        for tag in link["tags"]:
            if tag not in tags:
                yield f"link {link['title']}: no dashboard has the tag {tag}"


def _links(panel: Json) -> Iterator[Json]:
    yield from panel.get("links", ())
    config = panel["fieldConfig"]
    yield from config["defaults"].get("links", ())
    for override in config["overrides"]:
        yield from _links_of(override)


def _links_of(override: Json) -> Iterator[Json]:
    for changed in override["properties"]:
        if changed["id"] == "links":
            yield from changed["value"]


def _address_faults(url: str, here: Json, by_uid: Mapping[str, Json]) -> Iterator[str]:
    found = _TO_DASHBOARD.match(url)
    if found is None:
        if not url.startswith("https://"):
            yield f"{url} is neither a dashboard nor an https address"
        return
    there = by_uid.get(found[1])
    if there is None:
        return
    for name in (*_GIVEN.findall(url), *_KEPT.findall(url)):
        if name not in variables(there):
            yield f"{found[1]} has no variable {name}"
    for name in _KEPT.findall(url):
        if name not in variables(here):
            yield f"this dashboard has no variable {name} to pass on"
    if "${__url_time_range}" not in url:
        yield "it does not pass on the time range"


def _name_faults(panel: Json, known: promql.SeriesLabels) -> Iterator[str]:
    # check_queries reports queries that are wrong themselves.
    with suppress(promql.Wrong):
        if panel["type"] == "table":
            yield from _table_faults(panel, known)
        else:
            yield from _series_faults(panel, known)


def _table_faults(panel: Json, known: promql.SeriesLabels) -> Iterator[str]:
    existing = _columns(panel_queries(panel), known)
    if promql.ANY in existing:
        return
    left = set(existing)
    for step in panel.get("transformations", ()):
        for name in _names_in_step(step):
            if name not in existing:
                yield f"{step['id']}: no column {name}"
        left -= step["options"].get("excludeByName", {}).keys()
    if _METRIC_NAME in left:
        yield "a column shows the metric name: aggregate, or hide it"
    shown = column_names(panel)
    for override in panel["fieldConfig"]["overrides"]:
        matcher = override["matcher"]
        if matcher["id"] == "byName" and matcher["options"] not in left:
            yield f"an override is for {matcher['options']}, which is not a column"
    for sorted_by in panel["options"].get("sortBy", ()):
        if sorted_by["displayName"] not in {shown.get(name, name) for name in left}:
            yield f"it is sorted by {sorted_by['displayName']}, which is not a column"
    for link in _links(panel):
        for plain, quoted in _COLUMN_OF_ROW.findall(link["url"]):
            if (plain or quoted) not in left | {shown[name] for name in left & shown.keys()}:
                yield f"link {link['title']}: no column {plain or quoted}"


def _columns(queries: Sequence[PanelQuery], known: promql.SeriesLabels) -> set[str]:
    """The columns of a table of their samples before any transformation."""
    values = {f"Value #{query.ref_id}" for query in queries} if len(queries) > 1 else {"Value"}
    names = {_METRIC_NAME} if any(map(keeps_name, queries)) else set()
    return {"Time", *values, *names}.union(*(labels_of(query, known) for query in queries))


def _names_in_step(step: Json) -> Iterator[str]:
    options = step["options"]
    yield from options.get("excludeByName", ())
    yield from options.get("indexByName", ())
    yield from options.get("renameByName", ())
    yield from (each["fieldName"] for each in options.get("filters", ()))


def _series_faults(panel: Json, known: promql.SeriesLabels) -> Iterator[str]:
    queries = panel_queries(panel)
    legends = [_pattern(query.legend) for query in queries]
    for override in panel["fieldConfig"]["overrides"]:
        matcher = override["matcher"]
        if matcher["id"] == "byName" and not any(
            re.fullmatch(legend, matcher["options"]) for legend in legends
        ):
            yield f"no series has the name {matcher['options']}"
    linked = {label for link in _links(panel) for label in _LABEL_OF_SERIES.findall(link["url"])}
    for query in queries:
        has = labels_of(query, known)
        for label in sorted(linked - has):
            if promql.ANY not in has:
                yield f"a link uses {label}, but {query.ref_id} has {', '.join(sorted(has)) or 'no labels'}"


def _pattern(legend: str) -> str:
    """A regular expression for the texts that the legend can have."""
    if legend == "__auto":
        return ".*"
    text = re.escape(legend)
    for label in labels_in(legend):
        text = re.sub(rf"\\\{{\\\{{\\? *{label}\\? *\\\}}\\\}}", ".*", text)
    return text
