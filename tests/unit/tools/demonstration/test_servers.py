"""What Prometheus, Alertmanager and Grafana of the demo are told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.rules import rule_groups
from tests.support.texts import missing
from tools.demonstration import servers
from tools.demonstration.inbox import line
from tools.demonstration.machines import Machine
from tools.demonstration.past import write_recording_rules, write_rules
from tools.demonstration.plan import DemoServer, Plan

PROGRAM = Path("/usr/bin/program")
PLAN = Plan(
    machines=[Machine("one", 1), Machine("two", 2)],
    began=0,
    now=7 * 3600,
    past_seconds=6 * 3600,
    prometheus=DemoServer("prometheus", 3),
    pages="prometheus-ui",
    alertmanager=DemoServer("alertmanager", 4),
    grafana=DemoServer("grafana", 5),
)


def test_prometheus_scrapes_all_machines_and_sends_alerts_to_alertmanager(tmp_path: Path) -> None:
    child = servers.prometheus(PLAN, PROGRAM, Path("/pages"), tmp_path, write_rules(tmp_path))
    told = json.loads((tmp_path / "prometheus.yml").read_text())
    (job,) = told["scrape_configs"]
    assert [config["targets"] for config in job["static_configs"]] == [["127.0.0.1:1"], ["127.0.0.1:2"]]
    assert job["honor_labels"] is True
    assert "127.0.0.1:4" in json.dumps(told["alerting"])
    assert "--web.listen-address=127.0.0.1:3" in child.command
    assert (child.directory / "web" / "ui" / "static").readlink() == Path("/pages")


def test_without_alertmanager_prometheus_sends_no_alerts(tmp_path: Path) -> None:
    servers.prometheus(replace(PLAN, alertmanager=None), PROGRAM, None, tmp_path, [])
    assert "alerting" not in json.loads((tmp_path / "prometheus.yml").read_text())


def test_all_rules_are_loaded_and_evaluated_without_their_own_intervals(tmp_path: Path) -> None:
    groups = [group for file in write_rules(tmp_path) for group in json.loads(file.read_text())["groups"]]
    assert {group["name"] for group in groups} == {group["name"] for group in rule_groups()}
    rules = sum(len(group["rules"]) for group in groups)
    assert rules == sum(len(group["rules"]) for group in rule_groups())
    assert not any("interval" in group for group in groups)


def test_until_the_history_is_there_no_alert_is_evaluated(tmp_path: Path) -> None:
    (file,) = write_recording_rules(tmp_path)
    rules = [rule for group in json.loads(file.read_text())["groups"] for rule in group["rules"]]
    assert rules
    assert all("record" in rule for rule in rules)


def test_alertmanager_has_our_routes_and_one_inbox_for_all_receivers(tmp_path: Path) -> None:
    assert PLAN.alertmanager
    child = servers.alertmanager(PLAN.alertmanager, PROGRAM, tmp_path, "http://127.0.0.1:6")
    text = (tmp_path / "alertmanager.yml").read_text()
    config = json.loads(text)
    (ours,) = config["route"]["routes"]
    assert any("critical" in str(route["matchers"]) for route in ours["routes"])
    assert config["inhibit_rules"]
    receivers = {receiver.pop("name"): receiver for receiver in config["receivers"]}
    assert receivers["pagerduty"] == {"webhook_configs": [{"url": "http://127.0.0.1:6/pagerduty"}]}
    assert "secrets" not in text
    assert "--web.listen-address=127.0.0.1:4" in child.command


@pytest.mark.parametrize(("past_seconds", "step"), [(0, 5), (6 * 3600, 60), (48 * 3600, 120)])
def test_grafana_has_all_dashboards_and_the_minimum_step_of_the_history(
    past_seconds: int, step: int, tmp_path: Path
) -> None:
    assert PLAN.grafana
    grafana = servers.grafana(replace(PLAN, past_seconds=past_seconds), PLAN.grafana, PROGRAM, tmp_path)
    assert grafana.scrape_seconds == step
    assert grafana.home_dashboard is not None
    assert json.loads(grafana.home_dashboard.read_text())["uid"] == "gputally-fleet"
    assert len(list(grafana.dashboards.rglob("*.json"))) == 13
    assert grafana.prometheus == "http://127.0.0.1:3"
    assert grafana.alertmanager == "http://127.0.0.1:4"
    assert not grafana.viewers_log_in


def test_a_notification_is_one_line_with_receiver_and_alerts() -> None:
    def alert(name: str) -> dict[str, Any]:
        return {"labels": {"alertname": name}}

    message = {
        "status": "firing",
        "groupLabels": {"cluster": "demo", "node": "n1"},
        "alerts": [alert("GPUTallyXidWarning"), alert("GPUTallyGpuLost"), alert("GPUTallyGpuLost")],
    }
    text = line("pagerduty", message)
    assert missing(text, "pagerduty", "firing", "2 x GPUTallyGpuLost, GPUTallyXidWarning", "node n1") == []
    assert "\n" not in text
