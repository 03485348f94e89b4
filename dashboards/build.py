"""Puts panels into rows and rows into a dashboard, on grafanalib's Dashboard, in today's schema."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards import links, palette
from dashboards.panels import DATASOURCE, Modern
from dashboards.variables import DATASOURCE as DATASOURCE_VARIABLE
from dashboards.variables import Variable

Json = dict[str, Any]
SCHEMA_VERSION = 39
WIDTH = 24
_PLACES = ("cluster", "node")
_OF_PROGRAMS = "13|31|43|45"
"""XID codes that are errors of programs, and too many to mark."""
_REFRESH_CHOICES = ["10s", "30s", "1m", "5m", "15m", "1h"]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, from left to right, and below one another when they do not fit."""

    title: str
    panels: tuple[Modern, ...]
    collapsed: bool = False


def row(title: str, *panels: Modern, collapsed: bool = False) -> Row:
    """A row without a title has no heading: for the top of the page."""
    return Row(title, panels, collapsed)


def dashboard(
    name: str,
    title: str,
    description: str,
    *rows: Row,
    variables: Sequence[Variable],
    tags: Sequence[str] = (),
    since: str = "now-6h",
    refresh: str = "1m",
    annotate: bool = True,
) -> core.Dashboard:
    """A dashboard; `name` makes its uid and its file, so it must never change."""
    made: core.Dashboard = core.Dashboard(
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
        panels=_numbered(_laid_out(rows)),
    )
    return made


def text_of(made: core.Dashboard) -> str:
    """The dashboard's JSON: the same for the same source, whatever the day."""
    raw: Json = json.loads(json.dumps(made.to_json_data(), cls=DashboardEncoder))
    return json.dumps(_modern(raw), indent=1, ensure_ascii=False) + "\n"


def _modern(raw: Json) -> Json:
    """Of what grafanalib writes, the keys that today's schema has."""
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
    """A row of today: a heading, which holds its panels only while it is collapsed."""

    def to_json_data(self) -> Json:
        kept = {"type": "row", "title": self.title, "collapsed": self.collapsed, "id": self.id}
        return {**kept, "gridPos": self.gridPos, "panels": self.panels if self.collapsed else []}


def _laid_out(rows: Sequence[Row]) -> list[core.Panel]:
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
    """Each with an id of its own, in the order of the page."""
    every = (each for panel in panels for each in (panel, *getattr(panel, "panels", ())))
    for number, panel in enumerate(every, start=1):
        panel.id = number
    return panels


def _place(panels: Sequence[Modern], top: int) -> int:
    """From left to right, and down when the line is full; returns where the next row may begin."""
    left = line = 0
    for panel in panels:
        size = panel.gridPos
        if left + size.w > WIDTH:
            top, left, line = top + line, 0, 0
        panel.gridPos = core.GridPos(h=size.h, w=size.w, x=left, y=top)
        left, line = left + size.w, max(line, size.h)
    return top + line


def _annotations(variables: Sequence[Variable]) -> list[Json]:
    """Marks in all graphs, of what is chosen: alerts that ask for somebody, and errors of the hardware."""
    chosen = ", ".join(f'{each.name}=~"${each.name}"' for each in variables if each.name in _PLACES)

    critical = f'alertname=~"GPUTally.+", severity="critical", {chosen}'

    def marks(name: str, expr: str, color: str, title: str, text: str, *, at_value: bool = False) -> Json:
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
        marks(
            "Alerts",
            # One mark where it began, not one at every step for as long as it fires.
            f"ALERTS_FOR_STATE{{{critical}}} * 1000"
            f' and ignoring (alertstate) ALERTS{{alertstate="firing", {critical}}}',
            palette.CRITICAL,
            "{{alertname}}",
            "{{node}} GPU {{gpu}} {{namespace}} {{pod}}",
            at_value=True,
        ),
        marks(
            "XIDs",
            # Grafana asks in steps of minutes or hours: the value says when it was, whatever the step.
            f'gputally_gpu_xid_last_timestamp_seconds{{xid!~"{_OF_PROGRAMS}", {chosen}}} * 1000',
            palette.WARNING,
            "XID {{xid}}",
            "{{node}} GPU {{gpu}}",
            at_value=True,
        ),
    ]
