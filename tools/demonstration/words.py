"""What the demo tells whoever started it."""

from collections.abc import Iterator, Mapping

from dashboards import links
from tools.demonstration.plan import Plan
from tools.demonstration.servers import EVALUATION_SECONDS


def welcome(plan: Plan) -> str:
    return "\n".join(["", *_addresses(plan), "", "Look at:", *_sights(plan), ""])


def _addresses(plan: Plan) -> Iterator[str]:
    if plan.grafana:
        yield f"Grafana       {plan.grafana.url}/d/{links.uid('fleet')}"
    yield f"Prometheus    {plan.prometheus.url}/alerts"
    if plan.alertmanager:
        yield f"Alertmanager  {plan.alertmanager.url}/#/alerts"
    for machine in plan.machines:
        yield f"GPUTally      http://{machine.address}/ of {machine.name}, and its metrics at /metrics"


def _sights(plan: Plan) -> Iterator[str]:
    if plan.grafana:
        yield "  Grafana: the fleet. A click leads to a node, a GPU or a pod; GPUTally, at the top, to the"
        yield "    other dashboards: Idle GPUs, Shadow use, Health, Energy and chargeback..."
    yield "  Prometheus: which alerts fire and why, or a query: sum by (node) (gputally_gpu_power_watts)."
    yield f"    The rules are ours, but evaluated every {EVALUATION_SECONDS} seconds: nobody wants to wait."
    if plan.alertmanager:
        yield "  Alertmanager: the same, grouped by node, without what something worse explains. Its"
        yield "    receivers would need secrets: what they would get is shown here, when our routes send it."
    yield "All of it can be reached from this machine only, and is gone at the end."


def alert_line(labels: Mapping[str, str]) -> str:
    """Severity, name and location of an alert."""
    gpu = f"GPU {labels['gpu']}" if labels.get("gpu") else ""
    pod = "/".join(labels[name] for name in ("namespace", "pod") if labels.get(name))
    location = ", ".join(filter(None, (labels.get("node"), gpu, pod)))
    return f"{labels['severity']}: {labels['alertname']}: {location}"
