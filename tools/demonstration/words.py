"""The texts that the demo prints."""

from collections.abc import Iterator, Mapping

from tools.demonstration.machines import EVALUATION_SECONDS, Machine
from tools.demonstration.plan import Plan

_FLEET = "/d/gputally-fleet"


def page_line(machine: Machine) -> str:
    return f"GPUTally      http://{machine.address}/ ({machine.name}; metrics at /metrics)"


def server_line(name: str, url: str) -> str:
    """Where to look at a server that is ready."""
    first = {"Prometheus": "/alerts", "Alertmanager": "/#/alerts", "Grafana": _FLEET}
    return f"{name:<13} {url}{first[name]}"


def sights(plan: Plan) -> str:
    """What to open, when all is ready."""
    return "\n".join(["", "What to open:", *_sights(plan), ""])


def _sights(plan: Plan) -> Iterator[str]:
    first = plan.machines[0]
    yield f"  GPUTally: who uses the GPUs now. In a terminal: gputally top --connect http://{first.address}"
    if plan.grafana:
        yield "  Grafana: the fleet, with links to nodes, GPUs and pods. The menu GPUTally has the"
        yield "    other dashboards: Idle GPUs, Shadow use, Health, Energy and chargeback..."
    if plan.prometheus:
        yield "  Prometheus: firing alerts, or a query such as sum by (node) (gputally_gpu_power_watts)."
        yield f"    The rules are those of the chart, evaluated every {EVALUATION_SECONDS} seconds."
    if plan.alertmanager:
        yield "  Alertmanager: the alerts grouped by node, without those that another alert inhibits."
        yield "    Its receivers would need secrets; their notifications are printed here instead."
    yield "Everything listens on the loopback address only, and is removed at the end."


def alert_line(labels: Mapping[str, str]) -> str:
    """Severity, name and location of an alert."""
    gpu = f"GPU {labels['gpu']}" if labels.get("gpu") else ""
    pod = "/".join(labels[name] for name in ("namespace", "pod") if labels.get(name))
    location = ", ".join(filter(None, (labels.get("node"), gpu, pod)))
    return f"{labels['severity']}: {labels['alertname']}: {location}"
