"""Exporter and stack as the README installs them, and looked at as their user does: with what Helm says to do
after the installation, with `helm test` and tools/verify, and in a browser.

Screenshots of pages with faults are in build/screenshots afterwards, with $GPUTALLY_SCREENSHOTS those of all
pages in that directory.
"""

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.rules import rule_groups
from dashboards import registry
from dashboards.reading import (
    fill_variables,
    label_values_query,
    panel_name,
    panel_queries,
    panels,
    variables,
)
from dashboards.variables import ALL
from gputally.commands.servers import Login, LoginRequired, PrometheusApi, RemoteServer, RequestFailed
from tests.e2e.conftest import Keeper
from tests.e2e.kubernetes import SECONDS, TIMEOUT, Namespace, until
from tests.support.browser import Page, Seen, User, blank, empty, errors, look, missing, strays, unfilled
from tests.support.command_line import levels
from tools import ROOT
from tools.dependencies import programs
from tools.replay.rule_files import parse_duration
from tools.servers.grafana import ADMINISTRATOR

Json = dict[str, Any]

pytestmark = pytest.mark.timeout(900)

RELEASE = "gputally"
PARTS = ("prometheus", "alertmanager", "grafana")
WIDTH = 1920
STEP_SECONDS = 15
"""What lies between two points of a graph over a quarter of an hour: the chart's interval between scrapes."""
SECONDS_FOR_RATES = 75
"""What graphs call a rate is over a minute, and some things happen once in a minute only."""
STORY = Path(__file__).with_name("pages.toml")
STORY_SECONDS = 3600
"""How long it has been going on when the exporter starts."""
GPUS = 8
WARNINGS = {"gpus": "warning", "pods": "warning"}
"""In the scenario one GPU is lost, and one process is unattributed."""
DASHBOARDS: dict[str, Json] = {name: json.loads(text) for name, text in registry.texts().items()}
RECORDED = {
    rule["record"]
    for group in rule_groups()
    for rule in group["rules"]
    if rule.get("record", "").startswith("cluster:")
}
READ_RECORDS = [
    name
    for name, dashboard in DASHBOARDS.items()
    if any(":gputally_" in query.expr for panel in panels(dashboard) for query in panel_queries(panel))
]
"""Dashboards that show what rules have recorded."""
EMPTY = {
    ("idle", "Idle pods"): "it needs pods that have run for an hour",
    ("idle", "Right-sizing hints"): "it needs pods that have run for an hour",
    **{
        ("capacity", panel): "it needs kube-state-metrics, or Kueue"
        for panel in ("GPU quotas of namespaces", "Kueue queues", "Nodes with free GPUs", "Pending pods")
    },
}
"""Dashboard and panel -> why it is still empty."""


def values() -> Json:
    story = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "story"},
        "data": {STORY.name: STORY.read_text()},
    }
    return {
        "cluster": "pages",
        "exporter": {
            "reader": "simulated",
            "gpuNodesOnly": False,
            "compat": ["dcgm", "nvidia-smi"],
            "processMetrics": True,
            "pcieThroughput": True,
            "extraArgs": [
                f"--scenario=/story/{STORY.name}",
                f"--scenario-start={int(time.time()) - STORY_SECONDS}",
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
        # The dashboard Trends shows its bands.
        "rules": {"groups": {"gputally-anomalies": {"enabled": True}}},
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
    namespace.kubectl("rollout", "status", f"statefulset/{RELEASE}-{part}", TIMEOUT)


@pytest.fixture(scope="module")
def password(installed: Namespace) -> str:
    """By the command that Helm's notes have for it."""
    (command,) = re.findall(r"^ *kubectl (exec .+)$", installed.notes(RELEASE), re.MULTILINE)
    return installed.plane.kubectl(*shlex.split(command)).strip()


def server(namespace: Namespace, part: str, login: Login | None = None) -> RemoteServer:
    return RemoteServer(f"http://{namespace.address(f'{RELEASE}-{part}')}", login)


@pytest.fixture(scope="module")
def prometheus(installed: Namespace) -> PrometheusApi:
    return PrometheusApi(server(installed, "prometheus"), RELEASE)


@pytest.fixture(scope="module")
def recorded(prometheus: PrometheusApi, seen_early: Future[Seen]) -> float:
    """When all that the dashboards read was there: groups of rules read what others have recorded before.

    Graphs see it a step later: their last point is at the step before now.
    """

    def names() -> set[str]:
        try:
            rows = prometheus.rows(f'count by (__name__) ({{__name__=~"cluster:.+"}} offset {STEP_SECONDS}s)')
        except RequestFailed:
            return set()
        return {row.labels["__name__"] for row in rows}

    until("everything is recorded", lambda: names() >= RECORDED, seconds=SECONDS)
    return time.time()


@dataclass(frozen=True, slots=True)
class Viewer:
    """Looks at the Grafana of the installation."""

    address: str
    password: str
    directory: Path

    def look(self, names: Sequence[str]) -> Seen:
        # There are only minutes of data, so minutes are looked at.
        times = "from=now-15m&to=now"
        pages = [Page(name, (WIDTH,), times, f"cluster-{name}", follow=True) for name in names]
        return look(self.directory, self.address, pages, User(ADMINISTRATOR, self.password))


@pytest.fixture(scope="module")
def viewer(installed: Namespace, password: str, tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    return Viewer(server(installed, "grafana").url, password, tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def seen_early(prometheus: PrometheusApi, viewer: Viewer) -> Iterator[Future[Seen]]:
    """What can be looked at while the rest is still being recorded."""
    until("there are rates", lambda: seconds_of_data(prometheus) >= SECONDS_FOR_RATES, seconds=SECONDS)
    with ThreadPoolExecutor(1) as executor:
        yield executor.submit(viewer.look, [name for name in DASHBOARDS if name not in READ_RECORDS])


def seconds_of_data(prometheus: PrometheusApi) -> float:
    first = "min(min_over_time(timestamp(gputally_snapshot_age_seconds)[1h:5s]))"
    try:
        return prometheus.number(f"time() - {first}") or 0
    except RequestFailed:
        return 0


@pytest.fixture(scope="module")
def seen(recorded: float, seen_early: Future[Seen], viewer: Viewer) -> Seen:
    return seen_early.result() | viewer.look(READ_RECORDS)


def test_only_the_generated_password_logs_in(installed: Namespace, password: str) -> None:
    user = server(installed, "grafana", Login(ADMINISTRATOR, password)).get_json("/api/user")
    assert user["isGrafanaAdmin"]
    for login in (None, Login(ADMINISTRATOR, ADMINISTRATOR)):
        with pytest.raises(LoginRequired):
            server(installed, "grafana", login).get("/api/search")


def test_a_password_survives_a_restart_of_grafana_and_helm_test_passes(
    installed: Namespace, password: str
) -> None:
    # Without a login this Grafana reports only what it counted when it started.
    installed.kubectl("rollout", "restart", f"statefulset/{RELEASE}-grafana")
    wait_for(installed, "grafana")

    said = levels(installed.test(RELEASE))

    # Right after the installation, not every rule has had its turn.
    assert said.pop("rules") in ("ok", "warning")
    assert said == {**dict.fromkeys(said, "ok"), **WARNINGS, "data source": "not checked"}
    assert said.keys() >= {"exporter", "targets", "records", "alertmanager", "dashboards"}
    assert server(installed, "grafana", Login(ADMINISTRATOR, password)).get_json("/api/user")


def test_verify_reports_no_fault(installed: Namespace, recorded: float) -> None:
    path = f"{programs.path('kubectl').parent}:{os.environ['PATH']}"

    ran = subprocess.run(
        [ROOT / "tools/verify", "--namespace", installed.name, "--wait", "1m"],
        env={**installed.plane.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = levels(ran.stdout)
    # Some rules have their first turn after five minutes.
    assert said.pop("rules") in ("ok", "warning")
    assert said == {**dict.fromkeys(said, "ok"), **WARNINGS}, ran.stdout
    assert said.keys() >= {*PARTS, "records", "dashboards", "data source"}
    lines = {
        "targets": "all 1 exporters are up",
        "dashboards": f"{len(DASHBOARDS)} of gputally",
        "data source": f"Prometheus shows {GPUS} GPUs",
    }
    for subject, text in lines.items():
        assert re.search(rf"^ok +{subject} +{text}$", ran.stdout, re.MULTILINE), ran.stdout


def not_due(name: str, page: Json, since: float) -> set[str]:
    """Panels with a point every 5 minutes, hour or day, none of which has been due since."""
    steps = {
        panel_name(panel): panel["interval"] for panel in panels(DASHBOARDS[name]) if "interval" in panel
    }
    opened: float = page["opened"]
    return {panel for panel, step in steps.items() if opened - opened % parse_duration(step) < since}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_shows_all_its_panels_without_an_error(name: str, seen: Seen) -> None:
    page = seen[name, WIDTH]
    assert errors(page) == []
    assert missing(page, DASHBOARDS[name]) == []
    assert blank(page) == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_shows_data(name: str, seen: Seen, recorded: float) -> None:
    page = seen[name, WIDTH]
    known = {panel for dashboard, panel in EMPTY if dashboard == name}
    assert empty(page, DASHBOARDS[name]) - not_due(name, page, recorded) == known


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_has_a_value(name: str, seen: Seen) -> None:
    assert unfilled(seen[name, WIDTH], DASHBOARDS[name]) == []


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_column_has_a_name(name: str, seen: Seen) -> None:
    assert strays(seen[name, WIDTH], DASHBOARDS[name]) == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_links_open_existing_pages(name: str, seen: Seen, prometheus: PrometheusApi) -> None:
    links = seen[name, WIDTH]["links"]
    assert links
    for link in links:
        target = dashboard_of(link)
        assert target in DASHBOARDS, link
        chosen = chosen_by(link, target)
        for variable, values in chosen.items():
            assert set(values) <= {"All", *offered(prometheus, target, variable)}, link


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_link_selects_the_clicked_object(name: str, seen: Seen) -> None:
    followed = seen[name, WIDTH]["followed"]
    assert "failed" not in followed
    wanted, reached = urlsplit(followed["link"]), urlsplit(followed["address"])
    target = dashboard_of(followed["link"])
    assert reached.path.startswith(f"{wanted.path}/")
    assert errors(followed) == []
    assert blank(followed) == []
    assert unfilled(followed, DASHBOARDS[target]) == []
    shown = dict(zip(variables(DASHBOARDS[target]), followed["variables"], strict=True))
    chosen = chosen_by(followed["link"], target)
    assert chosen == {variable: [shown[variable]] for variable in chosen}


def dashboard_of(link: str) -> str:
    return urlsplit(link).path.rpartition("/gputally-")[2]


def chosen_by(link: str, target: str) -> dict[str, list[str]]:
    """Variables of the dashboard to which the link leads, and what it chooses."""
    asked = parse_qs(urlsplit(link).query, keep_blank_values=True)
    names = variables(DASHBOARDS[target]).keys() - {"datasource"}
    return {name: asked[f"var-{name}"] for name in names if f"var-{name}" in asked}


@cache
def offered(prometheus: PrometheusApi, target: str, variable: str) -> set[str]:
    """What one can choose there."""
    known = variables(DASHBOARDS[target])
    selector, label = label_values_query(known[variable])
    rows = prometheus.rows(f"group by ({label}) ({fill_variables(selector, dict.fromkeys(known, ALL))})")
    return {row.labels.get(label, "") for row in rows}
