"""Routing by the chart's values, checked with amtool and the operator's schemas."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import manifests, messages, routing
from tests.bundle import chart, crds
from tests.support.alerting import amtool
from tools import ROOT

Json = dict[str, Any]
PLAIN: Json = yaml.safe_load((ROOT / manifests.PLAIN / "alertmanager.yml").read_text())
RESOURCE: Json = yaml.safe_load((ROOT / manifests.MANIFESTS / "alertmanagerconfig.yaml").read_text())
WINDOW = [{"weekdays": ["sunday"], "times": [{"start_time": "02:00", "end_time": "04:00"}]}]
EMAIL = {
    "to": "gpu-team@example.com",
    "from": "alertmanager@example.com",
    "smarthost": "smtp.example.com:587",
    "username": "alertmanager@example.com",
}
AS_PLAIN: Json = {
    "secret": "gputally-alerting",
    "default": "slack",
    "critical": "pagerduty",
    "maintenance": WINDOW,
}
"""The values with which the chart renders the plain files."""
WATCHED: Json = {"watchdog": {"enabled": True}}
EVERYTHING: Json = {
    **AS_PLAIN,
    "namespaces": {"nlp|nlp-.+": "email", "vision": "teams", "llm": "opsgenie", r"ci-\d+": "webhook"},
    "email": EMAIL,
    "maintenance": [
        {**WINDOW[0], "days_of_month": ["1:7", "-1"], "months": ["may:august"], "years": ["2027"]}
    ],
}
NO_RECEIVER: Json = {}


def alertmanager(values: Json) -> str:
    """The configuration file of the stack's Alertmanager."""
    rendered = chart.render({"stack": {"enabled": True}, "routing": values})
    (text,) = (
        text
        for made in rendered
        if made["kind"] in ("ConfigMap", "Secret")
        for name, text in {**made.get("data", {}), **made.get("stringData", {})}.items()
        if name == "alertmanager.yml"
    )
    return str(text)


def resource(values: Json, **more: Any) -> Json:
    settings = {"alertmanagerConfig": {"enabled": True}, "routing": values, **more}
    (made,) = chart.objects("AlertmanagerConfig", settings)
    return made


class Routes:
    """The routes of an Alertmanager file."""

    def __init__(self, directory: Path, values: Json) -> None:
        self.file = directory / "alertmanager.yml"
        self.file.write_text(alertmanager(values))

    def receiver(self, **labels: str) -> str:
        given = [f"{name}={value}" for name, value in {"alertname": "GPUTallyAny", **labels}.items()]
        return amtool("config", "routes", "test", f"--config.file={self.file}", *given)

    def of_each_severity(self) -> list[str]:
        return [self.receiver(severity=name, audience="oncall") for name in ("critical", "warning", "info")]


def test_with_the_receivers_of_the_plain_file_the_routes_are_its_routes() -> None:
    made = yaml.safe_load(alertmanager({**AS_PLAIN, **WATCHED}))
    for key in ("route", "time_intervals", "inhibit_rules"):
        assert made[key] == PLAIN[key]


def test_the_resource_has_the_routes_of_the_plain_resource() -> None:
    spec = resource(AS_PLAIN)["spec"]
    for key in ("route", "muteTimeIntervals", "inhibitRules"):
        assert spec[key] == RESOURCE["spec"][key]
    discard, *receivers = spec["receivers"]
    assert discard == {"name": "discard"}
    assert sorted(receivers, key=lambda each: str(each["name"])) == sorted(
        RESOURCE["spec"]["receivers"], key=lambda each: str(each["name"])
    )


def test_every_receiver_is_as_in_the_plain_file() -> None:
    made = yaml.safe_load(alertmanager({**EVERYTHING, **WATCHED}))["receivers"]
    plain = {each["name"]: each for each in PLAIN["receivers"]}
    assert {each["name"]: each for each in made} == plain


def test_only_receivers_that_are_named_are_there() -> None:
    made = yaml.safe_load(alertmanager({"secret": "s", "default": "webhook"}))["receivers"]
    assert [each["name"] for each in made] == ["discard", "webhook"]


@pytest.mark.parametrize("values", [NO_RECEIVER, AS_PLAIN, EVERYTHING], ids=["none", "two", "all"])
def test_alertmanager_accepts_the_file(values: Json, tmp_path: Path) -> None:
    receivers = len(yaml.safe_load(alertmanager(values))["receivers"])
    assert f"{receivers} receivers" in amtool("check-config", Routes(tmp_path, values).file)


def test_without_a_receiver_alerts_are_discarded(tmp_path: Path) -> None:
    routes = Routes(tmp_path, NO_RECEIVER)
    assert routes.of_each_severity() == ["discard"] * 3
    assert routes.receiver(audience="team", severity="warning") == "discard"


def test_critical_alerts_go_to_the_default_receiver_by_default(tmp_path: Path) -> None:
    assert Routes(tmp_path, {"secret": "s", "default": "slack"}).of_each_severity() == ["slack"] * 3


def test_only_critical_alerts_may_be_sent(tmp_path: Path) -> None:
    routes = Routes(tmp_path, {"secret": "s", "critical": "pagerduty"})
    assert routes.of_each_severity() == ["pagerduty", "discard", "discard"]


def test_the_watchdog_is_discarded_or_repeated_to_its_own_receiver(tmp_path: Path) -> None:
    watchdog = {"alertname": "GPUTallyWatchdog", "severity": "none", "audience": "oncall"}
    assert Routes(tmp_path, AS_PLAIN).receiver(**watchdog) == "discard"
    often = {"watchdog": {"enabled": True, "repeatInterval": "2m"}}
    routes = Routes(tmp_path, {**AS_PLAIN, **often})
    assert routes.receiver(**watchdog) == "watchdog"
    assert routes.of_each_severity() == ["pagerduty", "slack", "slack"]
    (ours,) = yaml.safe_load(routes.file.read_text())["route"]["routes"]
    assert ours["routes"][0]["repeat_interval"] == "2m"


def test_a_watchdog_without_the_stack_or_a_secret_is_refused() -> None:
    assert "stack.enabled" in chart.refusal({"routing": {**WATCHED, "secret": "s"}})
    assert "watchdog-url" in chart.refusal({"routing": WATCHED, "stack": {"enabled": True}})


@pytest.mark.parametrize(
    ("namespace", "receiver"),
    [
        ("nlp", "email"),
        ("nlp-prod", "email"),
        ("vision", "teams"),
        ("visions", "slack"),
        ("ci-42", "webhook"),
        ("ci-x", "slack"),
    ],
)
def test_a_team_gets_the_alerts_about_its_own_pods(namespace: str, receiver: str, tmp_path: Path) -> None:
    routes = Routes(tmp_path, EVERYTHING)
    for severity in ("critical", "warning", "info"):
        assert routes.receiver(audience="team", severity=severity, namespace=namespace) == receiver
    assert routes.of_each_severity() == ["pagerduty", "slack", "slack"]


def test_alerts_of_other_products_are_discarded(tmp_path: Path) -> None:
    assert Routes(tmp_path, EVERYTHING).receiver(alertname="KubePodCrashLooping") == "discard"


def test_without_a_window_nothing_is_ever_muted() -> None:
    for text in (alertmanager(NO_RECEIVER), json.dumps(resource({"secret": "s", "default": "slack"}))):
        for word in ("maintenance", "time_intervals", "TimeIntervals"):
            assert word not in text


def test_the_resource_has_the_same_window_in_the_operators_format() -> None:
    (interval,) = resource(EVERYTHING)["spec"]["muteTimeIntervals"]
    assert interval["timeIntervals"] == [
        {
            "weekdays": ["sunday"],
            "times": [{"startTime": "02:00", "endTime": "04:00"}],
            "daysOfMonth": [{"start": 1, "end": 7}, {"start": -1, "end": -1}],
            "months": ["may:august"],
            "years": ["2027"],
        }
    ]


@pytest.mark.parametrize("kind", routing.RECEIVERS)
def test_every_field_of_each_receiver_is_in_the_operators_schema(kind: str) -> None:
    made = resource({**EVERYTHING, "namespaces": {}, "critical": "", "default": kind})
    assert crds.faults(made, "prometheus-operator-crds") == []
    if kind != "teams":
        # Receivers for Teams workflows were added after that version.
        assert crds.faults(made, "prometheus-operator-crds-2024") == []


def test_every_secret_of_the_resource_is_a_key_of_the_named_secret() -> None:
    refs = re.findall(
        r'\{"name": "my-secret", "key": "([a-z-]+)"\}',
        json.dumps(resource({**EVERYTHING, "secret": "my-secret"})),
    )
    assert sorted(refs) == [
        "email-password",
        "opsgenie-key",
        "pagerduty-key",
        "slack-url",
        "teams-url",
        "webhook-url",
    ]


def test_a_mail_server_without_login_and_tls_needs_no_secret() -> None:
    email = {**EMAIL, "username": "", "requireTls": False}
    values = {"default": "email", "email": email}
    _, made = yaml.safe_load(alertmanager(values))["receivers"]
    (settings,) = made["email_configs"]
    assert settings["require_tls"] is False
    assert not {"auth_username", "auth_password_file"} & settings.keys()
    _, of_resource = resource(values)["spec"]["receivers"]
    assert of_resource["emailConfigs"][0]["requireTLS"] is False
    assert "authPassword" not in of_resource["emailConfigs"][0]


@pytest.mark.parametrize(
    "more",
    [
        {"stack": {"grafana": {"rootUrl": "https://grafana.example.com/"}}},
        {"routing": {"grafanaUrl": "https://grafana.example.com"}},
    ],
    ids=["stack", "routing"],
)
def test_notifications_link_to_the_node_if_the_url_of_grafana_is_known(more: Mapping[str, Json]) -> None:
    values = {"secret": "s", "default": "slack", **more.get("routing", {})}
    made = resource(values, **{key: value for key, value in more.items() if key != "routing"})
    _, slack = made["spec"]["receivers"]
    assert slack["slackConfigs"][0]["text"] == messages.text("https://grafana.example.com")


@pytest.mark.parametrize(
    ("values", "terms"),
    [
        ({"default": "slack"}, ("routing.secret", "slack")),
        ({"default": "email", "secret": "s"}, ("routing.email.to",)),
        ({"default": "email", "secret": "s", "email": {**EMAIL, "from": ""}}, ("routing.email.from",)),
        (
            {"default": "email", "secret": "s", "email": {**EMAIL, "smarthost": ""}},
            ("routing.email.smarthost",),
        ),
        ({"default": "email", "email": EMAIL}, ("routing.secret", "email")),
        ({}, ("alertmanagerConfig.enabled", "routing.default")),
        ({**AS_PLAIN, "namespaces": {"team-*": "slack"}}, ("routing.namespaces", '"team-*"')),
        ({**AS_PLAIN, "namespaces": {"a(b": "slack"}}, ("error parsing regexp: missing closing ): `a(b`",)),
        (
            {**AS_PLAIN, "maintenance": [{**WINDOW[0], "location": "Europe/Berlin"}]},
            ("routing.maintenance", "location"),
        ),
    ],
)
def test_values_that_cannot_work_are_refused(values: Json, terms: tuple[str, ...]) -> None:
    refusal = chart.refusal({"alertmanagerConfig": {"enabled": True}, "routing": values})
    assert [term for term in terms if term not in refusal] == []


def test_receivers_without_an_alertmanager_are_refused() -> None:
    refusal = chart.refusal({"routing": {"default": "slack", "secret": "s"}})
    assert "alertmanagerConfig.enabled" in refusal
    assert "stack.enabled" in refusal


def test_each_interval_of_each_route_is_a_value() -> None:
    timing = {"critical": {"groupWait": "1s", "repeatInterval": "1h"}, "team": {"groupInterval": "2h"}}
    values = {**AS_PLAIN, "namespaces": {"nlp": "slack"}, "timing": timing}

    (ours,) = yaml.safe_load(alertmanager(values))["route"]["routes"]
    _, *of_faults = ours["routes"]
    routes = resource(values)["spec"]["route"]["routes"]

    keys = ("group_wait", "group_interval", "repeat_interval")
    given = [[route[key] for key in keys] for route in of_faults]
    assert given == [["5m", "2h", "24h"], ["5m", "2h", "24h"], ["1s", "5m", "1h"], *given[3:]]
    assert given[3:] == [["2m", "15m", "12h"], ["5m", "1h", "24h"]]
    assert [[r["groupWait"], r["groupInterval"], r["repeatInterval"]] for r in routes] == given
