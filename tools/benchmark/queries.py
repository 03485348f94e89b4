"""The queries of Grafana when a dashboard is opened."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dashboards import Json
from dashboards.build import WIDTH
from dashboards.reading import (
    annotation_queries,
    fill_variables,
    label_values_query,
    panel_queries,
    panels,
    used_variables,
    variables,
)
from dashboards.variables import ALL
from tools.replay.rule_files import parse_duration

_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Grafana's steps between two points, in seconds."""
_DAY = 86400


@dataclass(frozen=True, slots=True)
class View:
    """A dashboard on a screen, with All for every variable."""

    end: float
    """In seconds since 1970."""
    seconds: int
    pixels: int = 1920
    scrape_seconds: int = 15
    """The smallest step, from the data source's settings or Grafana's default."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to the API of Prometheus."""

    place: str
    """The panel's title and the query's letter, or the variable or annotation."""
    path: str
    parameters: Mapping[str, str]


def queries(dashboard: Json, view: View) -> Iterator[ApiRequest]:
    """All queries of panels (also in collapsed rows), annotations and variables."""
    for panel in panels(dashboard):
        seconds = int(view.end % _DAY) if panel.get("timeFrom") == "now/d" else view.seconds
        pixels = view.pixels * panel["gridPos"]["w"] / WIDTH
        least = parse_duration(panel.get("interval", f"{view.scrape_seconds}s"))
        step = step_between_points(seconds / pixels, least)
        for query in panel_queries(panel):
            place = f"{query.location}, {query.ref_id}"
            expr = _filled(query.expr, view, seconds, step)
            yield _now(place, expr, view) if query.instant else _over_time(place, expr, view, seconds, step)
    for query, marks in zip(annotation_queries(dashboard), dashboard["annotations"]["list"], strict=True):
        step = parse_duration(marks["step"])
        expr = _filled(query.expr, view, view.seconds, step)
        yield _over_time(query.location, expr, view, view.seconds, step)
    for name, variable in variables(dashboard).items():
        selector, label = label_values_query(variable)
        if selector:
            chosen = {"match[]": _filled(selector, view, view.seconds, view.scrape_seconds)}
            yield ApiRequest(
                f"variable {name}", f"label/{label}/values", {**chosen, **_range(view, view.seconds)}
            )


def step_between_points(exact: float, least: float) -> float:
    """Grafana's step for seconds per pixel: the nearest one, but not less than the smallest."""
    nearest = min(reversed(_STEPS), key=lambda step: abs(step - exact))
    return max(float(nearest), least)


def _now(place: str, expr: str, view: View) -> ApiRequest:
    return ApiRequest(place, "query", {"query": expr, "time": f"{view.end:.0f}", "stats": "all"})


def _over_time(place: str, expr: str, view: View, seconds: int, step: float) -> ApiRequest:
    asked = {"query": expr, "step": f"{step:.0f}", "stats": "all"}
    return ApiRequest(place, "query_range", {**asked, **_range(view, seconds)})


def _range(view: View, seconds: int) -> dict[str, str]:
    return {"start": f"{view.end - seconds:.0f}", "end": f"{view.end:.0f}"}


def _filled(expr: str, view: View, seconds: int, step: float) -> str:
    grafanas = {
        "__interval": f"{step:.0f}s",
        "__rate_interval": f"{max(step + view.scrape_seconds, 4 * view.scrape_seconds):.0f}s",
        "__range": f"{seconds}s",
        "__range_s": f"{seconds}",
    }
    return fill_variables(expr, {**dict.fromkeys(used_variables(expr), ALL), **grafanas})
