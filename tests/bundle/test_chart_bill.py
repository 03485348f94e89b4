"""The bill as a CronJob: its flags, files and claims, and what the chart refuses."""

from typing import Any

import pytest
import yaml

from gputally.commands.bill.settings import SETTINGS
from tests.bundle import chart, pod_security

BILL: dict[str, Any] = {"prometheusUrl": "https://prometheus.example:9090", "bill": {"enabled": True}}
TEAMS = {
    "vision": {"namespaces": ["vision", "vision-*"], "receiver": "slack", "namespaceBudget": 500},
    "nlp": {"podLabels": {"team": "nlp"}},
}


def bill(**more: Any) -> dict[str, Any]:
    return {**BILL, "bill": {"enabled": True, **more}}


def pod(values: dict[str, Any]) -> chart.Pod:
    (found,) = chart.pods(chart.objects("CronJob", values))
    return found


def flags(values: dict[str, Any]) -> dict[str, str]:
    (container,) = pod(values).containers
    command, *arguments = container["args"]
    assert (container["command"], command) == (["gputally"], "bill")
    return {name: value for name, _, value in (one.partition("=") for one in arguments)}


def test_it_is_off_by_default() -> None:
    assert list(chart.objects("CronJob", {})) == []


def test_every_flag_is_one_of_the_command() -> None:
    values = {
        **bill(by="team", format="focus", currency="EUR", prometheusSecret="a", webhookSecret="b"),
        "teams": TEAMS,
        "cluster": "west",
        "alertmanagerConfig": {"enabled": True},
        "routing": {"secret": "receivers"},
    }
    known = {one.metadata["flag"] for one in SETTINGS.kind.__dataclass_fields__.values()}
    given = flags(values)
    assert set(given) <= known
    assert given["--cluster"] == "west"
    assert given["--prometheus"] == "https://prometheus.example:9090"


def test_the_pod_has_no_privileges() -> None:
    made = pod(bill())
    assert pod_security.level(made) == "restricted"
    assert made.spec["automountServiceAccountToken"] is False


def test_the_bills_stay_when_the_chart_is_uninstalled() -> None:
    (claim,) = chart.objects("PersistentVolumeClaim", BILL)
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    existing = bill(persistence={"existingClaim": "mine"})
    assert list(chart.objects("PersistentVolumeClaim", existing)) == []
    assert {"name": "bills", "persistentVolumeClaim": {"claimName": "mine"}} in pod(existing).spec["volumes"]


def test_teams_are_the_file_of_the_command_routes_and_budgets() -> None:
    values = {
        **bill(by="team"),
        "teams": TEAMS,
        "routing": {
            "secret": "r",
            "default": "email",
            "email": {"to": "a@b.c", "from": "d@e.f", "smarthost": "h:25"},
        },
        "stack": {"enabled": True},
    }
    (file,) = (
        made["data"]["teams.yaml"]
        for made in chart.objects("ConfigMap", values)
        if made["metadata"]["name"] == "gputally-teams"
    )
    assert yaml.safe_load(file) == {
        "teams": {"vision": {"namespaces": ["vision", "vision-*"]}, "nlp": {"podLabels": {"team": "nlp"}}}
    }
    text = chart.text(values)
    assert 'namespace=~\\"vision|vision-.*\\"' in text
    assert "vector(500)" in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"bill": {"enabled": True}}, "bill.enabled needs prometheusUrl or stack.enabled"),
        (
            bill(persistence={"enabled": False}),
            "bill.enabled needs bill.persistence.enabled or bill.webhookSecret",
        ),
        (bill(by="team"), "bill.by team needs teams"),
        (bill(format="focus"), "bill.format focus needs bill.currency"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], said: str) -> None:
    assert said in chart.refusal(values)
