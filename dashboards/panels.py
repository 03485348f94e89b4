"""Panels of Grafana's current schema, on grafanalib's classes.

grafanalib writes the schema of Grafana 6. `Panel` keeps the keys that are still valid, and each function
below makes one kind of panel with complete field configuration and options. Every panel has a unit and a
description: the value shown, its normal range, the action to take.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from grafanalib import core

from dashboards import Json, fields, palette

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_VALID_KEYS = (
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


class Panel(core.Panel):
    """A panel of any kind that Grafana loads without migrating it."""

    def __init__(self, kind: str, field_config: Json, options: Json, **rest: Any) -> None:
        super().__init__(**rest)
        self.kind, self.field_config, self.options = kind, field_config, options

    def to_json_data(self) -> Json:
        own = {"type": self.kind, "fieldConfig": self.field_config, "options": self.options}
        written: Json = self.panel_json(own)  # type: ignore[no-untyped-call]
        return _valid_keys(written)


def _valid_keys(panel: Json) -> Json:
    """The keys of the current schema that are set."""
    return {key: panel[key] for key in _VALID_KEYS if panel.get(key) not in (None, [], "", False)}


class Target(core.Target):
    """A PromQL query over the range; with `instant` at its end only, with `as_table` as table rows."""

    def __init__(self, expr: str, legend: str = "", *, instant: bool = False, as_table: bool = False) -> None:
        super().__init__(expr=expr, legendFormat=legend, instant=instant)
        self.as_table = as_table

    def to_json_data(self) -> Json:
        mode = {"instant": True, "range": False} if self.instant else {"instant": False, "range": True}
        format = {"format": "table"} if self.as_table else {"format": "time_series"}
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legendFormat or "__auto",
            "refId": self.refId,
            **mode,
            **format,
        }


def over_time(expr: str, legend: str = "") -> Target:
    """A query over the dashboard's range."""
    return Target(expr, legend)


def now(expr: str, legend: str = "") -> Target:
    """A query at the end of the range."""
    return Target(expr, legend, instant=True)


def rows(expr: str) -> Target:
    """A query whose samples become the rows of a table."""
    return Target(expr, instant=True, as_table=True)


def timeseries(
    title: str,
    description: str,
    *queries: Target,
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
) -> Panel:
    """Lines over time, or bars. `steps` draws thresholds as lines, `legend` is right, bottom or hidden."""
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        # The line of a part of 0 would cover the part below it in the wrong colour.
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
    # Below the graph a table would take one line of height per series.
    shape = "table" if legend == "right" else "list"
    shown = {"displayMode": shape, "placement": legend, "showLegend": True, "calcs": list(calcs)}
    hidden = {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []}
    return make_panel(
        "timeseries",
        title,
        description,
        queries,
        width,
        height,
        field_defaults(
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


def line_per_gpu(
    title: str,
    description: str,
    expr: str,
    unit: str,
    *,
    legend: str,
    link: Json,
    height: int = 8,
    most: float | None = None,
    decimals: int | None = None,
    fill: int = 10,
    steps: Json | None = None,
    calcs: Sequence[str] = ("mean",),
) -> Panel:
    """A graph with one line per GPU, a third of the page wide, with a link to the GPU."""
    return timeseries(
        title,
        description,
        over_time(expr, legend),
        unit=unit,
        width=8,
        height=height,
        most=most,
        decimals=decimals,
        fill=fill,
        steps=steps,
        links=(link,),
        legend="bottom",
        calcs=calcs,
    )


def stat(
    title: str,
    description: str,
    *queries: Target,
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
) -> Panel:
    """One or several numbers. `sparkline` needs a query over time; `no_value` is shown without data."""
    return make_panel(
        "stat",
        title,
        description,
        queries,
        width,
        height,
        field_defaults(unit, None, None, decimals, steps, links, mappings=mappings, no_value=no_value),
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


def bar_gauge(
    title: str,
    description: str,
    *queries: Target,
    unit: str,
    width: int = 8,
    height: int = 8,
    most: float | None = None,
    decimals: int | None = None,
    steps: Json = fields.PLAIN,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Panel:
    """A bar per series, in the order of the query (`sort_desc`, `topk`)."""
    return make_panel(
        "bargauge",
        title,
        description,
        queries,
        width,
        height,
        field_defaults(unit, 0, most, decimals, steps, links),
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
    *queries: Target,
    unit: str,
    width: int = 6,
    height: int = 8,
    decimals: int | None = None,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Panel:
    """A donut chart with the names and shares of the parts beside it."""
    return make_panel(
        "piechart",
        title,
        description,
        queries,
        width,
        height,
        field_defaults(unit, None, None, decimals, None, links, color={"mode": "palette-classic"}),
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
    *queries: Target,
    mappings: Sequence[Json],
    width: int = 12,
    height: int = 8,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Panel:
    """A band per series over time, with the texts and colours of the mappings."""
    custom = {"fillOpacity": 80, "lineWidth": 0}
    return make_panel(
        "state-timeline",
        title,
        description,
        queries,
        width,
        height,
        # With threshold colours the legend would show ranges instead of the texts.
        field_defaults(
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
    *queries: Target,
    unit: str,
    width: int = 12,
    height: int = 8,
    counted: bool = False,
) -> Panel:
    """Number of GPUs per value range over time: readable with ten thousand GPUs.

    With `counted` each series is a range, named by its lower bound (`count_values`); otherwise the browser
    counts the values of the series.
    """
    custom = {
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
        "scaleDistribution": {"type": "linear"},
    }
    return make_panel(
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


def timed(panel: Panel, *, step: str = "", since: str = "") -> Panel:
    """The panel with a minimum `step` between points, or with its own time range (`now/d` is today).

    Its title must name the range: Grafana's own note is hidden for lack of space.
    """
    panel.interval = step or None
    if since:
        panel.timeFrom, panel.hideTimeOverride = since, True
    return panel


def text(content: str, *, width: int = 24, height: int = 3) -> Panel:
    """A panel of Markdown text."""
    options = {
        "mode": "markdown",
        "content": content,
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
    }
    return make_panel("text", "", "", (), width, height, {}, (), options)


def make_panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Target],
    width: int,
    height: int,
    defaults: Mapping[str, Any],
    overrides: Sequence[Json],
    options: Json,
) -> Panel:
    for letter, query in zip("ABCDEFGHIJKLMNOP", queries, strict=False):
        query.refId = letter
    panel = Panel(
        kind=kind,
        title=title,
        description=description or None,
        dataSource=DATASOURCE if queries else None,
        targets=list(queries),
        field_config={"defaults": dict(defaults), "overrides": list(overrides)},
        options=options,
    )
    # The layout sets the position later.
    panel.gridPos = core.GridPos(h=height, w=width, x=0, y=0)
    return panel


def field_defaults(
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
