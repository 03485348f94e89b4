"""Panels in the schema that Grafana has today, on grafanalib's classes.

grafanalib writes what Grafana 6 read. `Modern` keeps of its output what is still true, and each function
below makes one kind of panel whose field configuration and options are whole. Every panel says in its
description what is good and what is bad, and has a unit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from grafanalib import core

from dashboards import fields, links, palette

Json = dict[str, Any]
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
KEPT = (
    "id",
    "type",
    "title",
    "description",
    "gridPos",
    "datasource",
    "targets",
    "fieldConfig",
    "options",
    "transformations",
    "links",
    "repeat",
    "repeatDirection",
    "maxPerRow",
    "interval",
    "timeFrom",
    "hideTimeOverride",
    "collapsed",
    "panels",
)


class Modern(core.Panel):
    """A panel of any kind, with nothing in it that Grafana would have to migrate."""

    def __init__(self, kind: str, field_config: Json, options: Json, **rest: Any) -> None:
        super().__init__(**rest)
        self.kind, self.field_config, self.options = kind, field_config, options

    def to_json_data(self) -> Json:
        own = {"type": self.kind, "fieldConfig": self.field_config, "options": self.options}
        written: Json = self.panel_json(own)  # type: ignore[no-untyped-call]
        return tidy(written)


def tidy(panel: Json) -> Json:
    """Only what today's schema has, and nothing that is unset."""
    return {key: panel[key] for key in KEPT if panel.get(key) not in (None, [], "", False)}


class Query(core.Target):
    """A PromQL query at full resolution; `instant` asks for now only, `as_table` gives rows."""

    def __init__(self, expr: str, legend: str = "", *, instant: bool = False, as_table: bool = False) -> None:
        super().__init__(expr=expr, legendFormat=legend, instant=instant)
        self.as_table = as_table

    def to_json_data(self) -> Json:
        asked = {"instant": True, "range": False} if self.instant else {"instant": False, "range": True}
        format = {"format": "table"} if self.as_table else {"format": "time_series"}
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legendFormat or "__auto",
            "refId": self.refId,
            **asked,
            **format,
        }


def over_time(expr: str, legend: str = "") -> Query:
    """A query over the range of the dashboard."""
    return Query(expr, legend)


def now(expr: str, legend: str = "") -> Query:
    """A query at the end of the range."""
    return Query(expr, legend, instant=True)


def rows(expr: str) -> Query:
    """A query whose samples become the rows of a table."""
    return Query(expr, instant=True, as_table=True)


def timeseries(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 12,
    height: int = 8,
    least: float | None = 0,
    most: float | None = None,
    decimals: int | None = None,
    stack: bool = False,
    bars: bool = False,
    fill: int = 10,
    steps: Json | None = None,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
    legend: str = "right",
    calcs: Sequence[str] = ("mean", "max", "lastNotNull"),
    no_value: str = "",
) -> Modern:
    """Lines over time, or bars. `steps` draws thresholds as lines, `legend` is right, bottom or hidden."""
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        # The line of a part that is 0 would lie on the part below it, in the wrong colour.
        "lineWidth": 0 if stack else 1,
        "fillOpacity": 70 if stack or bars else fill,
        "gradientMode": "none",
        "lineInterpolation": "linear",
        "showPoints": "never",
        "spanNulls": False,
        "axisPlacement": "auto",
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "line" if steps else "off"},
    }
    # A table below would take the height of a line for each series.
    shape = "table" if legend == "right" else "list"
    shown = {"displayMode": shape, "placement": legend, "showLegend": True, "calcs": list(calcs)}
    hidden = {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []}
    return _panel(
        "timeseries",
        title,
        description,
        queries,
        width,
        height,
        _defaults(
            unit,
            least,
            most,
            decimals,
            steps,
            links,
            custom,
            color={"mode": "palette-classic"},
            no_value=no_value,
        ),
        overrides,
        {
            "legend": hidden if legend == "hidden" else shown,
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def stat(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 4,
    height: int = 4,
    decimals: int | None = None,
    steps: Json = fields.PLAIN,
    mappings: Sequence[Json] = (),
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
    sparkline: bool = False,
    background: bool = False,
    no_value: str = "",
) -> Modern:
    """One number, or a few. With `sparkline` give a query over time; `no_value` stands for none."""
    return _panel(
        "stat",
        title,
        description,
        queries,
        width,
        height,
        _defaults(unit, None, None, decimals, steps, links, mappings=mappings, no_value=no_value),
        overrides,
        {
            "colorMode": "background" if background else "value",
            "graphMode": "area" if sparkline else "none",
            "justifyMode": "center",
            "orientation": "auto",
            "textMode": "auto",
            "reduceOptions": _last(),
        },
    )


def gauge(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    most: float,
    width: int = 4,
    height: int = 6,
    decimals: int | None = None,
    steps: Json = fields.PLAIN,
    links: Sequence[Json] = (),
) -> Modern:
    return _panel(
        "gauge",
        title,
        description,
        queries,
        width,
        height,
        _defaults(unit, 0, most, decimals, steps, links),
        (),
        {
            "orientation": "auto",
            "showThresholdLabels": False,
            "showThresholdMarkers": True,
            "reduceOptions": _last(),
        },
    )


def bar_gauge(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 8,
    height: int = 8,
    most: float | None = None,
    decimals: int | None = None,
    steps: Json = fields.PLAIN,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Modern:
    """A bar per series, the longest first if the query sorts them (`sort_desc`, `topk`)."""
    return _panel(
        "bargauge",
        title,
        description,
        queries,
        width,
        height,
        _defaults(unit, 0, most, decimals, steps, links),
        overrides,
        {
            "displayMode": "basic",
            "orientation": "horizontal",
            "showUnfilled": True,
            "valueMode": "text",
            "minVizHeight": 16,
            "minVizWidth": 8,
            "reduceOptions": _last(),
        },
    )


def pie(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 6,
    height: int = 8,
    decimals: int | None = None,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Modern:
    """Parts of a whole: a donut with the parts' names and shares beside it."""
    return _panel(
        "piechart",
        title,
        description,
        queries,
        width,
        height,
        _defaults(unit, None, None, decimals, None, links, color={"mode": "palette-classic"}),
        overrides,
        {
            "pieType": "donut",
            "displayLabels": [],
            "legend": {
                "displayMode": "table",
                "placement": "right",
                "showLegend": True,
                "values": ["value", "percent"],
            },
            "tooltip": {"mode": "single", "sort": "none"},
            "reduceOptions": _last(),
        },
    )


def state_timeline(
    title: str,
    description: str,
    *queries: Query,
    mappings: Sequence[Json],
    width: int = 12,
    height: int = 8,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Modern:
    """What was when: a band per series, with the words and colours of the mappings."""
    custom = {"fillOpacity": 80, "lineWidth": 0}
    return _panel(
        "state-timeline",
        title,
        description,
        queries,
        width,
        height,
        # A fixed colour, where a mapping has none: with thresholds the legend shows ranges instead of the
        # words, and with a continuous scale nothing.
        _defaults(
            "none",
            None,
            None,
            None,
            None,
            links,
            custom,
            mappings=mappings,
            color={"mode": "fixed", "fixedColor": palette.NEUTRAL},
        ),
        overrides,
        {
            "alignValue": "left",
            "mergeValues": True,
            "rowHeight": 0.85,
            "showValue": "never",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


def heatmap(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    width: int = 12,
    height: int = 8,
    counted: bool = False,
) -> Modern:
    """How many GPUs are in each range of the value, over time: readable with ten thousand of them.

    `counted`: the series are the ranges, each named by where it begins (`count_values`); else the values of
    the series are counted in the browser.
    """
    custom = {
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
        "scaleDistribution": {"type": "linear"},
    }
    return _panel(
        "heatmap",
        title,
        description,
        queries,
        width,
        height,
        {"custom": custom},
        (),
        {
            "calculate": not counted,
            "calculation": {"yBuckets": {"mode": "count", "value": "10"}},
            "cellGap": 1,
            "cellValues": {"unit": "short", "decimals": 0},
            "color": {
                "mode": "scheme",
                "scheme": "Cividis",
                "steps": 64,
                "exponent": 0.5,
                "fill": "dark-orange",
                "reverse": False,
                "scale": "exponential",
            },
            "exemplars": {"color": palette.CRITICAL},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"show": True, "mode": "single", "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit, "min": "0"},
        },
    )


def table(
    title: str,
    description: str,
    *queries: Query,
    columns: Sequence[Json] = (),
    hidden: Sequence[str] = (),
    order: Sequence[str] = (),
    sort_by: str = "",
    width: int = 24,
    height: int = 8,
    unit: str = "short",
    join_on: str = "",
    only_with: str = "",
    filterable: bool = False,
    no_value: str = "",
    ascending: bool = False,
) -> Modern:
    """Rows of samples. Several queries become columns of the same rows, joined on all labels or on one.

    `columns` are from fields.column, `hidden` are dropped, `order` names the columns from the left, as they
    come from Prometheus (`Value #A` is the first query's value). Rows in which the column `only_with` is
    empty are left out: the first query says which rows there are, and the others only add to them.
    """
    steps: list[Json] = []
    if len(queries) > 1:
        by = {"id": "joinByField", "options": {"byField": join_on, "mode": "outer"}}
        steps.append(by if join_on else {"id": "merge", "options": {}})
    if only_with:
        filled = {"fieldName": only_with, "config": {"id": "isNotNull", "options": {}}}
        options = {"type": "include", "match": "all", "filters": [filled]}
        steps.append({"id": "filterByValue", "options": options})
    dropped = dict.fromkeys(("Time", *hidden), True)
    placed = {name: index for index, name in enumerate(order)}
    steps.append(
        {"id": "organize", "options": {"excludeByName": dropped, "indexByName": placed, "renameByName": {}}}
    )
    custom: Json = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": filterable,
        "inspect": False,
        # Grafana's own is 150: more than half a page has for each of eight columns.
        "minWidth": 80,
    }
    sorting = [{"displayName": sort_by, "desc": not ascending}] if sort_by else []
    # What an empty table says is not what an empty cell says.
    silent = [fields.override_matching(".*", noValue="")] if no_value else []
    # A label that looks like a number (a serial, a process id) is none, and must not get the unit.
    labels = fields.override_text(unit="string")
    made = _panel(
        "table",
        title,
        description,
        queries,
        width,
        height,
        _defaults(unit, None, None, None, fields.PLAIN, (), custom, no_value=no_value),
        (labels, *silent, *columns),
        {"showHeader": True, "cellHeight": "sm", "footer": _no_footer(), "sortBy": sorting},
    )
    made.transformations = steps
    return made


def timed(panel: Modern, *, step: str = "", since: str = "") -> Modern:
    """The panel with at least `step` between its points, or with a range of its own: `now/d` is today.

    Its title has to say so: there is no room for Grafana's own mark.
    """
    panel.interval = step or None
    if since:
        panel.timeFrom, panel.hideTimeOverride = since, True
    return panel


def text(content: str, *, width: int = 24, height: int = 3) -> Modern:
    """Markdown, for what a number cannot say."""
    options = {
        "mode": "markdown",
        "content": content,
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
    }
    return _panel("text", "", "", (), width, height, {}, (), options)


def alert_list(
    title: str, description: str, *, width: int = 12, height: int = 8, chosen: str = 'cluster=~"$cluster"'
) -> Modern:
    """What fires now, the gravest first: Prometheus's own ALERTS, so that it needs no second source."""
    grave = dict(enumerate(("info", "warning", "critical"), start=1))
    labels = ("alertname", "node", "gpu", "namespace", "pod")
    chosen = f'alertname=~"GPUTally.+", alertstate="firing", {chosen}'
    firing = " or ".join(
        f'max by ({", ".join(labels)}) (ALERTS{{{chosen}, severity="{severity}"}}) * {number}'
        for number, severity in reversed(grave.items())
    )
    words = {number: (severity, palette.BY_SEVERITY[severity]) for number, severity in grave.items()}
    return table(
        title,
        description,
        rows(f"topk(200, {firing})"),
        columns=(
            fields.column("Value", name="Severity", width=80, mappings=fields.words(words)),
            fields.column("alertname", name="Alert", width=210, link=links.runbook("alertname")),
            fields.column("node", name="Node", link=links.by_row("Node", "node", "node")),
            fields.column("gpu", name="GPU", width=50, link=links.by_row("GPU", "node", "node", "gpu")),
            fields.column("namespace", name="Namespace", width=108),
            fields.column("pod", name="Pod", link=links.by_row("Pod", "workloads", "namespace", "pod")),
        ),
        order=("Value", *labels),
        sort_by="Severity",
        width=width,
        height=height,
        no_value="No alert fires",
    )


def _panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    width: int,
    height: int,
    defaults: Mapping[str, Any],
    overrides: Sequence[Json],
    options: Json,
) -> Modern:
    for letter, query in zip("ABCDEFGHIJKLMNOP", queries, strict=False):
        query.refId = letter
    panel = Modern(
        kind=kind,
        title=title,
        description=description or None,
        dataSource=DATASOURCE if queries else None,
        targets=list(queries),
        field_config={"defaults": dict(defaults), "overrides": list(overrides)},
        options=options,
    )
    # Where it goes is for the layout to say; how large it is, it knows itself.
    panel.gridPos = core.GridPos(h=height, w=width, x=0, y=0)
    return panel


def _defaults(
    unit: str,
    least: float | None,
    most: float | None,
    decimals: int | None,
    steps: Json | None,
    links: Sequence[Json],
    custom: Json | None = None,
    *,
    mappings: Sequence[Json] = (),
    color: Json | None = None,
    no_value: str = "",
) -> Json:
    made: Json = {
        "unit": unit,
        "min": least,
        "max": most,
        "decimals": decimals,
        "color": color or {"mode": "thresholds"},
        "thresholds": steps or fields.PLAIN,
        "mappings": list(mappings),
        "links": list(links) or None,
        "custom": custom,
        "noValue": no_value or None,
    }
    return {key: value for key, value in made.items() if value is not None}


def _last() -> Json:
    return {"calcs": ["lastNotNull"], "fields": "", "values": False}


def _no_footer() -> Json:
    return {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}
