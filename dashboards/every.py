"""All dashboards, in the order in which one meets them, and the files that are made of them."""

from collections.abc import Mapping

from grafanalib import core

from dashboards import (
    argo,
    conductor,
    dcgm,
    energy,
    exporter,
    fleet,
    health,
    node,
    shadow,
    trends,
    waste,
    workloads,
)
from dashboards.build import text_of

FOLDER = "helm/gputally/dashboards"
DASHBOARDS: Mapping[str, core.Dashboard] = {
    "fleet": fleet.DASHBOARD,
    "node": node.DASHBOARD,
    "workloads": workloads.DASHBOARD,
    "energy": energy.DASHBOARD,
    "waste": waste.DASHBOARD,
    "shadow": shadow.DASHBOARD,
    "health": health.DASHBOARD,
    "argo": argo.DASHBOARD,
    "conductor": conductor.DASHBOARD,
    "dcgm": dcgm.DASHBOARD,
    "trends": trends.DASHBOARD,
    "exporter": exporter.DASHBOARD,
}


def texts() -> dict[str, str]:
    """The JSON of each dashboard, by its name."""
    return {name: text_of(made) for name, made in DASHBOARDS.items()}


def files() -> dict[str, str]:
    """What is written into the chart, by its path."""
    return {f"{FOLDER}/{name}.json": text for name, text in texts().items()}
