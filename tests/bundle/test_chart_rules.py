"""The chart's rules: identical to the plain ones, and every setting is a Helm value."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.groups import ALERTS, GROUPS
from alerts.rules import rule_groups
from alerts.settings import SETTINGS, TABLES
from alerts.templating import camel
from tests.bundle import chart, crds

LEAK = "GPUTallyMemoryLeak"
ENABLED = {"prometheusRule": {"enabled": True}}


def resource(values: dict[str, Any] | None = None) -> dict[str, Any]:
    (made,) = chart.objects("PrometheusRule", {**ENABLED, **(values or {})})
    return made


def groups(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = resource(values)["spec"]["groups"]
    return found


def alerts(values: dict[str, Any]) -> dict[str, Any]:
    rules = [rule for group in groups({"rules": values}) for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def test_there_are_no_rules_by_default() -> None:
    assert chart.objects("PrometheusRule") == []


@pytest.mark.parametrize("schemas", ["prometheus-operator-crds", "prometheus-operator-crds-2024"])
def test_every_field_is_in_the_operators_schema(schemas: str) -> None:
    assert crds.faults(resource(), schemas) == []


def test_the_labels_of_the_resource_are_the_common_labels_and_its_own() -> None:
    rule = {"enabled": True, "additionalLabels": {"release": "kube-prometheus-stack", "team": "gpu"}}
    labels = resource({"commonLabels": {"team": "all", "env": "prod"}, "prometheusRule": rule})["metadata"][
        "labels"
    ]
    assert {"release": "kube-prometheus-stack", "team": "gpu", "env": "prod"}.items() <= labels.items()
    assert labels["app.kubernetes.io/component"] == "rules"


def test_with_default_values_the_chart_gives_the_plain_rules() -> None:
    assert groups() == [group for group in rule_groups() if group["rules"]]


def test_a_release_without_any_values_of_rules_gets_the_defaults() -> None:
    assert groups({"rules": None}) == groups()


def test_a_release_upgraded_with_the_values_of_the_older_chart_gets_the_rules() -> None:
    # All values of 0.1.0: `--reuse-values` adds no others.
    older = {"defaultsVersion": "", "rules": {"settings": {"leakHorizonHours": 7}}}
    (leak,) = (rule for group in groups(older) for rule in group["rules"] if rule.get("alert") == LEAK)
    assert "7 * 3600" in leak["expr"]


def test_each_alert_can_be_switched_off_and_on() -> None:
    switches = {alert.name: {"enabled": not alert.enabled} for alert in ALERTS}
    assert alerts({"alerts": switches}).keys() == {alert.name for alert in ALERTS if not alert.enabled}


def test_a_group_without_enabled_rules_is_omitted() -> None:
    off = {"alerts": {alert.name: {"enabled": False} for alert in ALERTS}}
    names = [group["name"] for group in groups({"rules": off})]
    assert names == [group.name for group in GROUPS if group.records and group.enabled]


def test_a_group_of_records_can_be_switched_off() -> None:
    off = {"groups": {"gputally-fleet": {"enabled": False}}}
    assert [group["name"] for group in groups() if group not in groups({"rules": off})] == ["gputally-fleet"]


@pytest.mark.parametrize(
    "on",
    [
        {"groups": {"gputally-anomalies": {"enabled": True}}},
        {"alerts": {"GPUTallyAnomalyGpu": {"enabled": True}}},
    ],
)
def test_the_bands_are_recorded_only_where_they_or_one_of_their_alerts_are_switched_on(on: Any) -> None:
    assert [group["name"] for group in groups({"rules": on}) if group not in groups()] == [
        "gputally-anomalies"
    ]


def test_for_severity_and_keep_firing_for_of_each_alert_are_values() -> None:
    changed = {"enabled": True, "for": "7m", "severity": "info", "keepFiringFor": "9m"}
    rules = alerts({"alerts": dict.fromkeys((alert.name for alert in ALERTS), changed)})
    assert len(rules) == len(ALERTS)
    for rule in rules.values():
        assert (rule["for"], rule["keep_firing_for"], rule["labels"]["severity"]) == ("7m", "9m", "info")


def test_labels_and_the_url_of_runbooks_are_values() -> None:
    rules = alerts({"additionalRuleLabels": {"team": "platform"}, "runbookUrl": "https://wiki.example/gpu"})
    for name, rule in rules.items():
        assert rule["labels"]["team"] == "platform"
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example/gpu/{name}.md"


def test_each_setting_is_a_value_that_changes_the_output() -> None:
    # Each setting gets a number, a share, a duration or codes that occur nowhere else. The values decrease,
    # because the timeout of a scrape must not exceed its interval.
    kinds: dict[type, Any] = {
        int: int,
        float: lambda n: (n + 0.5) / 100_000,
        str: "{}m".format,
        tuple: lambda n: [n, n + 1],
    }
    changed = {
        camel(setting.name): kinds[type(setting.value)](40000 - 2 * number)
        for number, setting in enumerate(SETTINGS)
    }
    rules = {"settings": changed, "alerts": {alert.name: {"enabled": True} for alert in ALERTS}}
    rendered = json.dumps(chart.render({**ENABLED, "scrapeConfig": {"enabled": True}, "rules": rules}))
    written = {
        name: "|".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in changed.items()
    }
    assert [name for name, value in written.items() if value not in rendered] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_row_of_a_table_becomes_a_rule(table: Any) -> None:
    rows = {"one.*": 1.25, "two": 3}
    rendered = json.dumps(groups({"rules": {"tables": {camel(table.name): rows}}}))
    for key, value in rows.items():
        assert key in rendered
        assert str(value) in rendered


def test_templates_of_prometheus_are_not_rendered_by_helm() -> None:
    on = {"alerts": {alert.name: {"enabled": True} for alert in ALERTS}}
    rules = alerts(on)
    filled = {
        alert["alert"]: alert
        for group in rule_groups(disabled_too=True)
        for alert in group["rules"]
        if "alert" in alert
    }
    for name, rule in rules.items():
        assert rule["annotations"] == filled[name]["annotations"]


def test_every_alert_has_defaults_in_files_rules_yaml() -> None:
    defaults = yaml.safe_load(Path(chart.CHART / "files/rules.yaml").read_text())
    assert [*defaults["alerts"]] == [alert.name for alert in ALERTS]
