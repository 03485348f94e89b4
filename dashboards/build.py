"""Lays panels out in rows and rows in a dashboard, and writes JSON of Grafana's current schema."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards import Json, links, palette
from dashboards.panels import DATASOURCE, Panel
from dashboards.variables import DATASOURCE as DATASOURCE_VARIABLE
from dashboards.variables import Variable

SCHEMA_VERSION = 39
WIDTH = 24
_ANNOTATED_VARIABLES = ("cluster", "node")
_APPLICATION_XIDS = "13|31|43|45"
"""XID codes that applications cause; too frequent to annotate."""
_REFRESH_CHOICES = ["10s", "30s", "1m", "5m", "15m", "1h"]


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels under a heading, laid out from left to right and wrapped when a line is full."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


def row(title: str, *panels: Panel, collapsed: bool = False) -> PanelRow:
    """A row; without a title it has no heading, as at the top of the page."""
    return PanelRow(title, panels, collapsed)


def dashboard(
    name: str,
    title: str,
    description: str,
    *rows: PanelRow,
    variables: Sequence[Variable],
    tags: Sequence[str] = (),
    since: str = "now-6h",
    refresh: str = "1m",
    annotate: bool = True,
) -> core.Dashboard:
    """A dashboard; `name` determines its uid and its file name, so it never changes."""
    built: core.Dashboard = core.Dashboard(
        title=f"GPUTally / {title}",
        uid=links.uid(name),
        description=description,
        tags=[links.TAG, *tags],
        schemaVersion=SCHEMA_VERSION,
        editable=False,
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh=refresh,
        time=core.Time(since, "now"),
        timezone="browser",
        links=links.related(),
        templating=core.Templating(list=[DATASOURCE_VARIABLE, *(v.to_json_data() for v in variables)]),
        annotations=core.Annotations(list=_annotations(variables) if annotate else []),
        panels=_numbered(_lay_out(rows)),
    )
    return built


def text_of(dashboard: core.Dashboard) -> str:
    """The dashboard's JSON; the same source always gives the same text."""
    raw: Json = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    return json.dumps(_current_schema(raw), indent=1, ensure_ascii=False) + "\n"


def _current_schema(raw: Json) -> Json:
    """The keys of grafanalib's output that exist in the current schema."""
    return {
        "uid": raw["uid"],
        "title": raw["title"],
        "description": raw["description"],
        "tags": raw["tags"],
        "schemaVersion": raw["schemaVersion"],
        "version": 1,
        "editable": raw["editable"],
        "fiscalYearStartMonth": 0,
        "graphTooltip": raw["graphTooltip"],
        "liveNow": False,
        "refresh": raw["refresh"],
        "time": raw["time"],
        "timepicker": {"refresh_intervals": _REFRESH_CHOICES},
        "timezone": raw["timezone"],
        "weekStart": "",
        "links": raw["links"],
        "templating": raw["templating"],
        "annotations": raw["annotations"],
        "panels": raw["panels"],
    }


class _Heading(core.RowPanel):
    """A row heading of the current schema; it contains its panels only while collapsed."""

    def to_json_data(self) -> Json:
        kept = {"type": "row", "title": self.title, "collapsed": self.collapsed, "id": self.id}
        return {**kept, "gridPos": self.gridPos, "panels": self.panels if self.collapsed else []}


def _lay_out(rows: Sequence[PanelRow]) -> list[core.Panel]:
    placed: list[core.Panel] = []
    top = 0
    for each in rows:
        if each.title:
            heading = _Heading(title=each.title, collapsed=each.collapsed)
            heading.gridPos = core.GridPos(h=1, w=WIDTH, x=0, y=top)
            placed.append(heading)
            top += 1
        bottom = _place(each.panels, top)
        if each.collapsed and each.title:
            heading.panels = list(each.panels)
        else:
            placed += each.panels
            top = bottom
    return placed


def _numbered(panels: list[core.Panel]) -> list[core.Panel]:
    """Gives each panel its own id, in page order."""
    every = (each for panel in panels for each in (panel, *getattr(panel, "panels", ())))
    for number, panel in enumerate(every, start=1):
        panel.id = number
    return panels


def _place(panels: Sequence[Panel], top: int) -> int:
    """Positions the panels from left to right, wrapping full lines; returns the top of the next row."""
    left = line = 0
    for panel in panels:
        size = panel.gridPos
        if left + size.w > WIDTH:
            top, left, line = top + line, 0, 0
        panel.gridPos = core.GridPos(h=size.h, w=size.w, x=left, y=top)
        left, line = left + size.w, max(line, size.h)
    return top + line


def _annotations(variables: Sequence[Variable]) -> list[Json]:
    """Annotations in all graphs for the chosen cluster and node: critical alerts and hardware XIDs."""
    chosen = ", ".join(
        f'{each.name}=~"${each.name}"' for each in variables if each.name in _ANNOTATED_VARIABLES
    )

    critical = f'alertname=~"GPUTally.+", severity="critical", {chosen}'

    def annotation(
        name: str, expr: str, color: str, title: str, text: str, *, at_value: bool = False
    ) -> Json:
        return {
            "name": name,
            "datasource": DATASOURCE,
            "enable": True,
            "hide": False,
            "iconColor": color,
            "expr": expr,
            "step": "60s",
            "titleFormat": title,
            "textFormat": text,
            "useValueForTime": at_value,
        }

    return [
        annotation(
            "Alerts",
            # One annotation at the start of the alert instead of one at every step while it fires.
            f"ALERTS_FOR_STATE{{{critical}}} * 1000"
            f' and ignoring (alertstate) ALERTS{{alertstate="firing", {critical}}}',
            palette.CRITICAL,
            "{{alertname}}",
            "{{node}} GPU {{gpu}} {{namespace}} {{pod}}",
            at_value=True,
        ),
        annotation(
            "XIDs",
            # Grafana's step can be hours, so the time is taken from the value.
            f'gputally_gpu_xid_last_timestamp_seconds{{xid!~"{_APPLICATION_XIDS}", {chosen}}} * 1000',
            palette.WARNING,
            "XID {{xid}}",
            "{{node}} GPU {{gpu}}",
            at_value=True,
        ),
    ]
