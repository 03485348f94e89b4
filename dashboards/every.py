"""All dashboards, in the order in which one meets them, and the files that are made of them."""

from collections.abc import Mapping

from grafanalib import core

from dashboards import (
    argo,
    conductor,
    console,
    dcgm,
    energy,
    exporter,
    fleet,
    health,
    idle,
    node,
    shadow,
    trends,
    workloads,
)
from dashboards.build import text_of

FOLDER = "helm/gputally/dashboards"
CONSOLE_FOLDER = "helm/gputally/dashboards-console"
DASHBOARDS: Mapping[str, core.Dashboard] = {
    "fleet": fleet.DASHBOARD,
    "node": node.DASHBOARD,
    "workloads": workloads.DASHBOARD,
    "energy": energy.DASHBOARD,
    "idle": idle.DASHBOARD,
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
    return {
        **{f"{FOLDER}/{name}.json": text for name, text in texts().items()},
        **{f"{CONSOLE_FOLDER}/{name}.json": text for name, text in console.texts().items()},
        f"{FOLDER}/kustomization.yaml": _kustomization(),
    }


def _kustomization() -> str:
    """The ConfigMaps that the chart makes for Grafana's sidecar, for those who do not use Helm."""
    lines = [
        "# ConfigMaps for the sidecar of Grafana: `kubectl apply -k helm/gputally/dashboards -n monitoring`.",
        "# Made by tools/render from dashboards/.",
        "apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        "generatorOptions:",
        "  disableNameSuffixHash: true",
        '  labels: {app.kubernetes.io/part-of: gputally, grafana_dashboard: "1"}',
        "  annotations: {grafana_folder: GPUTally}",
        "configMapGenerator:",
        *(f"  - {{name: gputally-dashboard-{name}, files: [{name}.json]}}" for name in sorted(DASHBOARDS)),
    ]
    return "\n".join(lines) + "\n"
