"""The lines that the demo prints."""

import pytest

from dashboards import links
from tools.demonstration.machines import Machine
from tools.demonstration.plan import DemoServer, Plan
from tools.demonstration.words import alert_line, page_line, server_line, sights


@pytest.mark.parametrize(
    ("labels", "location"),
    [
        ({"node": "n1", "gpu": "7", "uuid": "GPU-1"}, "n1, GPU 7"),
        ({"node": "n1", "namespace": "nlp", "pod": "train-0"}, "n1, nlp/train-0"),
        ({"namespace": "nlp"}, "nlp"),
    ],
)
def test_the_line_of_an_alert_has_its_severity_and_location(labels: dict[str, str], location: str) -> None:
    assert alert_line({"alertname": "Lost", "severity": "info", **labels}) == f"info: Lost: {location}"


def test_a_part_that_is_ready_is_announced_with_its_first_address() -> None:
    assert page_line(Machine("n1", 9400)).startswith("GPUTally      http://127.0.0.1:9400/ (n1")
    grafana = server_line("Grafana", DemoServer("grafana", 5).url)
    assert grafana == f"Grafana       http://127.0.0.1:5/d/{links.uid('fleet')}"
    assert server_line("Prometheus", "http://h:1").endswith("http://h:1/alerts")


def test_only_parts_of_the_plan_are_named() -> None:
    plan = Plan(machines=[Machine("n1", 9400)], began=0, now=1, past_seconds=0)
    assert "top --connect http://127.0.0.1:9400" in sights(plan)
    assert "Grafana" not in sights(plan)
    assert "Alertmanager" not in sights(plan)
