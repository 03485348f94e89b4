"""The running stack: Prometheus, Alertmanager and Grafana with the rendered files."""

import io
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from alerts.rules import rule_groups
from dashboards import registry
from gputally.commands.verify import run
from tests.bundle.running_stack import NODE, VALUES, Server, Stack, generate_secrets, objects, running_stack
from tools.servers.grafana import ALERTMANAGER_UID, PROMETHEUS_UID

# The first test starts the servers, on a busy machine for minutes.


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def password(stack: Stack) -> str:
    return (stack.grafana.pod.root / "var/lib/grafana/admin-password").read_text()


def loaded_rules(prometheus: Server) -> list[tuple[str, str, str]]:
    """(group, alert or record, expression) of each rule."""
    return [
        (group["name"], rule["name"], promql_parser.parse(rule["query"]).prettify())
        for group in prometheus.api("rules")["groups"]
        for rule in group["rules"]
    ]


def test_prometheus_scrapes_the_exporter_and_the_stack(stack: Stack) -> None:
    def up() -> dict[str, str]:
        targets = stack.prometheus.api("targets?state=active")["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in targets}

    all_up = dict.fromkeys(("gputally", "prometheus", "alertmanager", "grafana"), "up")
    stack.prometheus.wait_until(lambda: up() == all_up, "all are up")


def test_series_have_the_node_the_cluster_and_the_pod_that_uses_the_gpu(stack: Stack) -> None:
    def series() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = stack.prometheus.api("query?query=gputally_pod_active")["result"]
        return found

    stack.prometheus.wait_until(lambda: bool(series()), "there are series of pods")
    labels = [found["metric"] for found in series()]
    ours = {"job": "gputally", "node": NODE, "instance": NODE, "cluster": "lab"}
    for each in labels:
        assert each.items() >= ours.items()
        assert not [name for name in each if name.startswith("exported_")]
    assert "exporter" not in {each["pod"] for each in labels}


def test_the_loaded_rules_are_the_plain_rules_and_those_about_the_stack(stack: Stack) -> None:
    rules = [
        (group["name"], rule.get("alert") or rule["record"], promql_parser.parse(rule["expr"]).prettify())
        for group in rule_groups(stack=True)
        for rule in group["rules"]
    ]
    assert sorted(loaded_rules(stack.prometheus)) == sorted(rules)


def test_retention_is_half_a_year_and_less_than_the_volume(stack: Stack) -> None:
    assert stack.prometheus.api("status/runtimeinfo")["storageRetention"] == "180d or 40GiB"


def test_external_labels_contain_the_cluster(stack: Stack) -> None:
    config = yaml.safe_load(stack.prometheus.api("status/config")["yaml"])
    assert config["global"]["external_labels"] == {"cluster": "lab", "region": "north"}


def test_prometheus_cannot_be_stopped_or_reloaded_over_http(stack: Stack) -> None:
    for path in ("/-/quit", "/-/reload", "/api/v1/admin/tsdb/snapshot"):
        assert stack.prometheus.ask(path, body=b"").status in (403, 404, 405, 500)
    assert not stack.prometheus.has_ended()


def test_prometheus_sends_alerts_to_alertmanager(stack: Stack) -> None:
    stack.prometheus.wait_until(
        lambda: bool(stack.prometheus.api("alertmanagers")["activeAlertmanagers"]), "it knows Alertmanager"
    )
    (known,) = stack.prometheus.api("alertmanagers")["activeAlertmanagers"]
    assert known["url"] == f"http://{stack.alertmanager.address}/api/v2/alerts"
    assert stack.alertmanager.ask("/api/v2/status").status == 200


def test_changed_rules_are_loaded_without_a_restart(stack: Stack) -> None:
    def is_loaded() -> bool:
        return "GPUTallyGpuLost" in {name for _, name, _ in loaded_rules(stack.prometheus)}

    def write(rules: dict[str, Any]) -> None:
        file = stack.prometheus.pod.root / "etc/prometheus/config/prometheus.yml"
        before = file.read_text()
        stack.prometheus.pod.write(objects({**VALUES, "rules": rules}))
        file.write_text(before)

    assert is_loaded()
    write({**VALUES["rules"], "alerts": {"GPUTallyGpuLost": {"enabled": False}}})
    stack.prometheus.wait_until(lambda: not is_loaded(), "the rule has gone")
    write(VALUES["rules"])
    stack.prometheus.wait_until(is_loaded, "the rule is there again")
    assert not stack.prometheus.has_ended()


def test_grafana_requires_the_generated_password(stack: Stack) -> None:
    for login in (None, "admin:admin", "admin:"):
        assert stack.grafana.ask("/api/search", login).status == 401
    assert stack.grafana.ask("/api/user", f"admin:{password(stack)}").json["isGrafanaAdmin"]
    assert stack.grafana.ask("/api/user/signup", body=b'{"email": "a@example.com"}').status == 401
    assert re.fullmatch(r"[A-Za-z0-9]{32}", password(stack))


def test_the_password_is_generated_once_and_readable_by_grafana_only(stack: Stack) -> None:
    directory = stack.grafana.pod.root / "var/lib/grafana"
    files = [directory / "admin-password", directory / "secret-key"]
    before = [file.read_text() for file in files]
    generate_secrets(stack.grafana.pod)
    assert [file.read_text() for file in files] == before
    assert len(set(before)) == len(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_grafana_reaches_prometheus_and_alertmanager(stack: Stack) -> None:
    login = f"admin:{password(stack)}"
    sources = stack.grafana.ask("/api/datasources", login).json
    assert {(source["uid"], source["isDefault"], source["readOnly"]) for source in sources} == {
        (PROMETHEUS_UID, True, True),
        (ALERTMANAGER_UID, False, True),
    }
    asked = stack.grafana.ask(f"/api/datasources/proxy/uid/{PROMETHEUS_UID}/api/v1/query?query=up", login)
    assert asked.json["status"] == "success"
    status = stack.grafana.ask(f"/api/alertmanager/{ALERTMANAGER_UID}/api/v2/status", login)
    assert status.status == 200


def test_every_dashboard_is_in_the_folder_and_read_only(stack: Stack) -> None:
    login = f"admin:{password(stack)}"

    def found() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = stack.grafana.ask("/api/search?type=dash-db", login).json
        return listed

    stack.grafana.wait_until(lambda: len(found()) >= len(registry.DASHBOARDS), "all dashboards are there")
    assert {dashboard["uid"] for dashboard in found()} == {made.uid for made in registry.DASHBOARDS.values()}
    assert {dashboard["folderTitle"] for dashboard in found()} == {"GPUTally"}
    fleet = stack.grafana.ask("/api/dashboards/uid/gputally-fleet", login).json["dashboard"]
    saved = stack.grafana.ask(
        "/api/dashboards/db", login, json.dumps({"dashboard": {**fleet, "title": "Mine"}}).encode()
    )
    assert (saved.status, saved.json["message"]) == (400, "Cannot save provisioned dashboard")


def test_the_home_dashboard_is_fleet(stack: Stack) -> None:
    home = stack.grafana.ask("/api/dashboards/home", f"admin:{password(stack)}").json
    assert home["dashboard"]["title"] == "GPUTally / Fleet"


def test_the_command_of_helm_test_succeeds(stack: Stack, tmp_path: Path) -> None:
    """Except for the addresses and the password, which Grafana generated.

    Without the password, the number of dashboards comes from a metric that this Grafana updates twice an
    hour.
    """

    def exporters() -> list[str]:
        return [
            target["scrapeUrl"].removesuffix("/metrics")
            for target in stack.prometheus.api("targets")["activeTargets"]
            if target["labels"]["job"] == "gputally"
        ]

    stack.prometheus.wait_until(lambda: bool(exporters()), "the exporter is found")
    (tmp_path / "username").write_text("admin")
    (tmp_path / "password").write_text(password(stack))
    (pod,) = (made for made in objects() if made["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    _, *flags = container["args"]
    here = {
        f"--{name}": f"http://{getattr(stack, name).address}"
        for name in ("prometheus", "alertmanager", "grafana")
    }
    given = {
        **dict(flag.split("=", 1) for flag in flags),
        **here,
        "--exporter": exporters()[0],
        "--grafana-login": str(tmp_path),
    }
    out = io.StringIO()
    status = run([f"{name}={value}" for name, value in given.items()], out)
    assert status == 0, out.getvalue()
    said = [line for line in out.getvalue().splitlines() if not line.startswith("waiting for")]
    # Of 203 rules some may still wait for their turn.
    assert [line for line in said if not re.match(r"ok |warning +rules | ", line)] == []
    assert len([line for line in said if not line.startswith(" ")]) == 11
