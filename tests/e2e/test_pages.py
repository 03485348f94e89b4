"""Exporter and stack as the README installs them, and looked at as their user does: with what Helm says to do
after the installation, with `helm test` and tools/verify, and in a browser.
"""

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.rules import rule_groups
from dashboards import every
from dashboards.reading import called, panels, variables
from gputally.verify.asking import Login, LoginNeeded, NotAnswered, Server
from gputally.verify.prometheus import Prometheus
from tests.browser import Page, Seen, User, empty, errors, look, missing, unfilled
from tests.e2e.conftest import Keeper
from tests.e2e.kubernetes import Namespace, until
from tests.system.test_verify import levels
from tools import environment, programs
from tools.grafana import ADMINISTRATOR

Json = dict[str, Any]

pytestmark = pytest.mark.timeout(900)

RELEASE = "gputally"
PARTS = ("prometheus", "alertmanager", "grafana")
WIDTH = 1920
STORY = Path(__file__).with_name("pages.toml")
STORY_SECONDS = 3600
"""How long it has been going on when the exporter starts."""
GPUS = 8
WARNINGS = {"gpus": "warning", "pods": "warning"}
"""In the story one GPU is lost, and one process is nobody's."""
DASHBOARDS: dict[str, Json] = {name: json.loads(text) for name, text in every.texts().items()}
RECORDED = {
    rule["record"]
    for group in rule_groups()
    for rule in group["rules"]
    if rule.get("record", "").startswith("cluster:")
}
EMPTY = {
    ("waste", "Idle now"): "it is about pods that have been there for an hour",
    ("waste", "Hints"): "it is about pods that have been there for an hour",
    ("trends", "Growth"): "it looks weeks back",
    ("trends", "In 30 days"): "it looks weeks back",
}
"""Dashboard and panel -> why it has nothing to show so soon."""
# A column of the heatmap there is 5 minutes, and Grafana 10.0 fails to draw none or a single one.
FAILING = {
    "fleet": (
        "How busy the GPUs are fails",
        "TypeError: Cannot read properties of undefined (reading 'rect')",
    )
}


def values() -> Json:
    story = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "story"},
        "data": {STORY.name: STORY.read_text()},
    }
    return {
        "exporter": {
            "reader": "simulated",
            "gpuNodesOnly": False,
            "compat": ["dcgm", "nvidia-smi"],
            "processMetrics": True,
            "pcieThroughput": True,
            "extraArgs": [
                f"--scenario=/story/{STORY.name}",
                f"--began={int(time.time()) - STORY_SECONDS}",
            ],
            "extraVolumes": [{"name": "story", "configMap": {"name": "story"}}],
            "extraVolumeMounts": [{"name": "story", "mountPath": "/story", "readOnly": True}],
        },
        "state": {"hostPath": "/var/lib/gputally/pages"},
        "stack": {
            "enabled": True,
            # The libraries of these old plugins are not in the Grafana of tools/grafana_build.
            "grafana": {"extraEnv": [{"name": "GF_SECURITY_ANGULAR_SUPPORT_ENABLED", "value": "false"}]},
        },
        "extraObjects": [story],
    }


@pytest.fixture(scope="module")
def installed(keeper: Keeper) -> Iterator[Namespace]:
    with Namespace.made(keeper.cluster().plane, __name__) as namespace:
        namespace.install(RELEASE, values())
        namespace.wait_for_exporter(RELEASE)
        for part in PARTS:
            wait_for(namespace, part)
        yield namespace
        namespace.uninstall(RELEASE)


def wait_for(namespace: Namespace, part: str) -> None:
    namespace.kubectl("rollout", "status", f"statefulset/{RELEASE}-{part}", "--timeout=120s")


@pytest.fixture(scope="module")
def password(installed: Namespace) -> str:
    """By the command that Helm's notes have for it."""
    (command,) = re.findall(r"^ *kubectl (exec .+)$", installed.notes(RELEASE), re.MULTILINE)
    return installed.plane.kubectl(*shlex.split(command)).strip()


def server(namespace: Namespace, part: str, login: Login | None = None) -> Server:
    return Server(f"http://{namespace.address(f'{RELEASE}-{part}')}", login)


@pytest.fixture(scope="module")
def recorded(installed: Namespace) -> Prometheus:
    """Once all that the dashboards read is there: groups of rules read what others have recorded before."""
    prometheus = Prometheus(server(installed, "prometheus"), RELEASE)

    def names() -> set[str]:
        try:
            rows = prometheus.rows('count by (__name__) ({__name__=~"cluster:.+"})')
        except NotAnswered:
            return set()
        return {row.labels["__name__"] for row in rows}

    until("everything is recorded", lambda: names() >= RECORDED, seconds=300)
    return prometheus


@pytest.fixture(scope="module")
def seen(
    recorded: Prometheus, installed: Namespace, password: str, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    # There are only minutes of data, so minutes are looked at.
    times = "from=now-15m&to=now"
    pages = [Page(name, WIDTH, times, f"cluster-{name}-{WIDTH}.png", follow=True) for name in DASHBOARDS]
    address = server(installed, "grafana").url
    return look(tmp_path_factory.mktemp("pictures"), address, pages, User(ADMINISTRATOR, password))


def test_the_made_password_lets_its_reader_in_and_nobody_else(installed: Namespace, password: str) -> None:
    user = server(installed, "grafana", Login(ADMINISTRATOR, password)).get_json("/api/user")
    assert user["isGrafanaAdmin"]
    for login in (None, Login(ADMINISTRATOR, ADMINISTRATOR)):
        with pytest.raises(LoginNeeded):
            server(installed, "grafana", login).get("/api/search")


def test_a_password_outlives_grafanas_pod_and_the_charts_test_passes(
    installed: Namespace, password: str
) -> None:
    # Nobody tells the test the password, and to strangers this Grafana tells what it counted when it started.
    installed.kubectl("rollout", "restart", f"statefulset/{RELEASE}-grafana")
    wait_for(installed, "grafana")

    said = levels(installed.test(RELEASE))

    # Right after the installation, not every rule has had its turn.
    assert said.pop("rules") in ("ok", "warning")
    assert said == {**dict.fromkeys(said, "ok"), **WARNINGS, "data source": "not checked"}
    assert said.keys() >= {"exporter", "targets", "records", "alertmanager", "dashboards"}
    assert server(installed, "grafana", Login(ADMINISTRATOR, password)).get_json("/api/user")


def test_seen_from_outside_all_is_well(installed: Namespace, recorded: Prometheus) -> None:
    path = f"{programs.path('kubectl').parent}:{os.environ['PATH']}"

    ran = subprocess.run(
        [environment.ROOT / "tools/verify", "--namespace", installed.name, "--wait", "1m"],
        env={**installed.plane.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = levels(ran.stdout)
    assert said == {**dict.fromkeys(said, "ok"), **WARNINGS}, ran.stdout
    assert said.keys() >= {*PARTS, "records", "dashboards", "data source"}
    lines = {
        "targets": "all 1 exporters are up",
        "dashboards": f"{len(DASHBOARDS)} of gputally",
        "data source": f"Prometheus shows {GPUS} GPUs",
    }
    for subject, text in lines.items():
        assert re.search(rf"^ok +{subject} +{text}$", ran.stdout, re.MULTILINE), ran.stdout


def unexpected_errors(page: Json, name: str) -> list[str]:
    return [error for error in errors(page) if error not in FAILING.get(name, ())]


def may_be_empty(name: str) -> set[str]:
    """Also panels with a point every 5 minutes, hour or day, as long as no such step has ended."""
    slow = {called(panel) for panel in panels(DASHBOARDS[name]) if panel.get("interval")}
    return slow | {panel for dashboard, panel in EMPTY if dashboard == name}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_shows_all_its_panels_without_an_error(name: str, seen: Seen) -> None:
    page = seen[name, WIDTH]
    assert unexpected_errors(page, name) == []
    assert missing(page, DASHBOARDS[name]) == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_there_is_something_to_see_in_every_panel(name: str, seen: Seen) -> None:
    assert empty(seen[name, WIDTH], DASHBOARDS[name]) - may_be_empty(name) == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_has_a_value(name: str, seen: Seen) -> None:
    assert unfilled(seen[name, WIDTH], DASHBOARDS[name]) == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_link_leads_to_what_it_was_clicked_on(name: str, seen: Seen) -> None:
    followed = seen[name, WIDTH]["followed"]
    assert "failed" not in followed
    wanted, reached = urlsplit(followed["link"]), urlsplit(followed["address"])
    target = wanted.path.rpartition("/gputally-")[2]
    assert reached.path.startswith(f"{wanted.path}/")
    assert unexpected_errors(followed, target) == []
    assert unfilled(followed, DASHBOARDS[target]) == []
    asked = parse_qs(wanted.query)
    shown = dict(zip(variables(DASHBOARDS[target]), followed["variables"], strict=True))
    chosen = {name: asked[f"var-{name}"] for name in shown if f"var-{name}" in asked and name != "datasource"}
    assert chosen == {name: [shown[name]] for name in chosen}
