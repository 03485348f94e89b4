"""Routing: the receiver of each severity and team by amtool, and the operator's strict schemas."""

import re
from pathlib import Path

import pytest
import yaml

from alerts import manifests, routing
from alerts.groups import ALERTS
from alerts.model import Alert, Audience, Severity
from tests.bundle import crds
from tests.support.alerting import amtool
from tools import ROOT

TEAMS = {"nlp|nlp-.+": "email", "vision": "teams"}
BY_SEVERITY = {
    Severity.CRITICAL: "pagerduty",
    Severity.WARNING: "slack",
    Severity.INFO: "slack",
    Severity.NONE: "watchdog",
}
PLAIN = ROOT / manifests.PLAIN / "alertmanager.yml"


@pytest.fixture(scope="module")
def with_teams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("routing") / "alertmanager.yml"
    file.write_text(manifests.alertmanager(TEAMS))
    return file


def receiver(file: Path, **labels: str) -> str:
    given = [f"{name}={value}" for name, value in labels.items()]
    return amtool("config", "routes", "test", f"--config.file={file}", *given)


def test_alertmanager_accepts_the_file_as_it_is_and_with_teams(with_teams: Path) -> None:
    for file in (PLAIN, with_teams):
        assert f"{len(routing.RECEIVERS) + 2} receivers" in amtool("check-config", file)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_reaches_its_receiver(alert, with_teams: Path) -> None:  # type: ignore[no-untyped-def]
    labels = {"alertname": alert.name, "severity": alert.severity.value, "audience": alert.audience.value}
    team = alert.audience is Audience.TEAM
    assert receiver(with_teams, **labels) == ("slack" if team else BY_SEVERITY[alert.severity])
    if team:
        assert receiver(with_teams, namespace="nlp", **labels) == "email"
        assert receiver(with_teams, namespace="nlp-prod", **labels) == "email"
        assert receiver(with_teams, namespace="vision", **labels) == "teams"
        assert receiver(with_teams, namespace="visions", **labels) == "slack"


def test_on_call_is_never_paged_for_alerts_of_a_team(with_teams: Path) -> None:
    labels = {"alertname": "GPUTallyAny", "severity": "critical", "audience": "team", "namespace": "other"}
    assert receiver(with_teams, **labels) == "slack"


def test_alerts_of_other_products_are_discarded() -> None:
    assert receiver(PLAIN, alertname="KubePodCrashLooping", severity="critical") == "discard"


def test_one_notification_per_node_and_not_one_per_gpu() -> None:
    for route in routing.routes():
        if any(matcher.label == "severity" for matcher in route.matchers):
            assert route.group_by == ("cluster", "node")


def test_maintenance_mutes_all_but_critical_alerts() -> None:
    loud = [route for route in routing.routes() if not route.muted_in_maintenance]
    assert [str(matcher) for route in loud for matcher in route.matchers] == ['severity="critical"']


@pytest.mark.parametrize("inhibition", routing.INHIBITIONS, ids=lambda inhibition: inhibition.why)
def test_a_warning_never_inhibits_a_critical_alert(inhibition: routing.Inhibition) -> None:
    inhibited = [alert.name for alert in ALERTS if can_be(inhibition.target, alert)]
    assert inhibited
    if any(str(matcher) == 'severity="critical"' for matcher in inhibition.source):
        return
    assert [alert.name for alert in ALERTS if alert.name in inhibited and alert.severity == "critical"] == []


def can_be(matchers: tuple[routing.Matcher, ...], alert: Alert) -> bool:
    """Whether the alert matches, as far as its name and severity decide it."""
    labels = {"alertname": alert.name, "severity": alert.severity.value}
    return all(matches(one, labels[one.label]) for one in matchers if one.label in labels)


def matches(matcher: routing.Matcher, value: str) -> bool:
    pattern = matcher.value if "~" in matcher.operator else re.escape(matcher.value)
    return bool(re.fullmatch(pattern, value)) is not matcher.operator.startswith("!")


def test_every_alert_that_routing_names_exists() -> None:
    text = PLAIN.read_text().replace("GPUTally.+", "")
    named = set(re.findall(r"GPUTally\w+", text))
    assert named - {alert.name for alert in ALERTS} == set()


@pytest.mark.parametrize("kind", routing.RECEIVERS)
def test_every_field_of_each_receiver_is_in_the_operators_schema(kind: str) -> None:
    resource = yaml.safe_load(manifests.alertmanager_config(TEAMS, [kind]))
    assert crds.faults(resource, "prometheus-operator-crds") == []
    if kind != "teams":
        # Receivers for Teams workflows were added after that version.
        assert crds.faults(resource, "prometheus-operator-crds-2024") == []


def test_secrets_are_only_referenced() -> None:
    plain = yaml.safe_load(PLAIN.read_text())
    for each in plain["receivers"]:
        for settings in (s for key, listed in each.items() if key != "name" for s in listed):
            assert any(key.endswith("_file") for key in settings), each["name"]
