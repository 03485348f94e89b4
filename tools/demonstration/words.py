"""The texts that the demo prints."""

from collections.abc import Iterator, Mapping

from dashboards import links
from tools.demonstration.plan import Plan
from tools.demonstration.servers import EVALUATION_SECONDS


def welcome(plan: Plan) -> str:
    return "\n".join(["", *_addresses(plan), "", "What to open:", *_sights(plan), ""])


def _addresses(plan: Plan) -> Iterator[str]:
    if plan.grafana:
        yield f"Grafana       {plan.grafana.url}/d/{links.uid('fleet')}"
    yield f"Prometheus    {plan.prometheus.url}/alerts"
    if plan.alertmanager:
        yield f"Alertmanager  {plan.alertmanager.url}/#/alerts"
    for machine in plan.machines:
        yield f"GPUTally      http://{machine.address}/ ({machine.name}; metrics at /metrics)"


def _sights(plan: Plan) -> Iterator[str]:
    if plan.grafana:
        yield "  Grafana: the fleet, with links to nodes, GPUs and pods. The menu GPUTally has the"
        yield "    other dashboards: Idle GPUs, Shadow use, Health, Energy and chargeback..."
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
