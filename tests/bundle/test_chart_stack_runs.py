"""The stack of the chart, as far as one machine can have it: real servers with the files that were rendered.

The API server is real, too, so Prometheus finds an exporter by the chart's own service account and role.
"""

import base64
import json
import re
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from alerts.rules import rule_groups
from dashboards import registry
from tests.bundle import chart
from tests.bundle.kubelet import MountedPod
from tests.support.exporter import Exporter
from tools.dependencies import programs
from tools.servers import control_plane
from tools.servers.children import Child, Children
from tools.servers.control_plane import ControlPlane
from tools.servers.grafana import ALERTMANAGER_UID, PROMETHEUS_UID, installation
from tools.servers.ports import HOST, free_port

NODE = "gpu-1"
NAMESPACE = "monitoring"
SECONDS = 60
SERVICES = {"prometheus": 9090, "alertmanager": 9093, "grafana": 80}
"""Their ports in the cluster."""
VALUES: dict[str, Any] = {
    "stack": {"enabled": True, "prometheus": {"externalLabels": {"region": "north"}}},
    "cluster": "lab",
    "rules": {"settings": {"scrapeInterval": "1s", "scrapeTimeout": "1s"}},
}
OF_PROMETHEUS = ("ServiceAccount", "Role", "RoleBinding")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Server:
    """One of the three, running."""

    pod: MountedPod
    address: str
    child: Child

    def ask(self, path: str, login: str | None = None, body: bytes | None = None) -> Answer:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if login:
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        request = urllib.request.Request(f"http://{self.address}{path}", body, headers)
        try:
            response: HTTPResponse
            with urllib.request.urlopen(request, timeout=10) as response:
                return Answer(response.status, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return Answer(0, b"")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited until {what}; {self.child.log.read_text()[-3000:]}"
            time.sleep(0.1)

    def wait_until_it_answers(self, path: str) -> None:
        self.wait_until(lambda: self.ask(path).status == 200, f"{path} is answered")

    def has_ended(self) -> bool:
        return self.child.process is not None and self.child.process.poll() is not None

    def api(self, path: str) -> Any:
        """What Prometheus's API answers."""
        return self.ask(f"/api/v1/{path}").json["data"]


@dataclass(frozen=True, slots=True)
class Stack:
    prometheus: Server
    alertmanager: Server
    grafana: Server


def objects(values: dict[str, Any] = VALUES) -> list[chart.Object]:
    return chart.render(values, namespace=NAMESPACE)


def workload(component: str) -> chart.Object:
    (found,) = (
        made
        for made in objects()
        if made["kind"] == "StatefulSet" and made["metadata"]["name"] == f"gputally-{component}"
    )
    return found


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    here = {name: f"{HOST}:{free_port(name, 0, 0)}" for name in SERVICES}
    addresses = {f"gputally-{name}.{NAMESPACE}:{port}": here[name] for name, port in SERVICES.items()}
    addresses["localhost:9090"] = here["prometheus"]
    pods = {name: MountedPod(workload(name), folder / name, addresses) for name in SERVICES}
    for pod in pods.values():
        pod.write(objects())
    with ExitStack() as exits:
        children = exits.enter_context(Children())

        def start(name: str, command: Callable[[MountedPod, str], list[str | Path]]) -> Server:
            child = Child(name, command(pods[name], here[name]), folder, folder / f"{name}.log")
            return Server(pods[name], here[name], children.start(child))

        of_grafana, of_alertmanager = start("grafana", grafana), start("alertmanager", alertmanager)
        exporter = exits.enter_context(Exporter(folder / "exporter.log", "simulate"))
        plane = exits.enter_context(control_plane.running(folder / "plane"))
        let_prometheus_find(plane, exporter, pods["prometheus"])
        started = Stack(start("prometheus", prometheus), of_alertmanager, of_grafana)
        give_grafana_a_second_try(started.grafana, children)
        started.prometheus.wait_until_it_answers("/-/ready")
        started.alertmanager.wait_until_it_answers("/-/ready")
        started.grafana.wait_until_it_answers("/api/health")
        yield started


def prometheus(pod: MountedPod, address: str) -> list[str | Path]:
    (container,) = pod.spec["containers"]
    return [
        programs.path("prometheus"),
        *pod.command(container),
        f"--web.listen-address={address}",
        "--config.auto-reload-interval=1s",
    ]


def alertmanager(pod: MountedPod, address: str) -> list[str | Path]:
    (container,) = pod.spec["containers"]
    return [programs.path("alertmanager"), *pod.command(container), f"--web.listen-address={address}"]


def grafana(pod: MountedPod, address: str) -> list[str | Path]:
    """As the image starts it: with the paths that its environment has."""
    make_secrets(pod)
    host, port = address.split(":")
    home, program = installation(programs.path("grafana"))
    for name in ("plugins", "notifiers", "alerting"):
        (pod.root / "etc/grafana/provisioning" / name).mkdir()
    environment = {
        "PATHS_DATA": pod.root / "var/lib/grafana",
        "PATHS_LOGS": pod.root / "var/log/grafana",
        "PATHS_PLUGINS": pod.root / "var/lib/grafana/plugins",
        "PATHS_PROVISIONING": pod.root / "etc/grafana/provisioning",
        "SERVER_HTTP_ADDR": host,
        "SERVER_HTTP_PORT": port,
        # The libraries of these old plugins are not in the Grafana of tools/grafana_build.
        "SECURITY_ANGULAR_SUPPORT_ENABLED": "false",
    }
    settings = [f"GF_{name}={value}" for name, value in environment.items()]
    return [
        "env",
        *settings,
        program,
        "server",
        f"--homepath={home}",
        f"--config={pod.root}/etc/grafana/grafana.ini",
    ]


def give_grafana_a_second_try(server: Server, children: Children) -> None:
    """Now and then Grafana 10 finds in its new database what it has just put there, and gives up."""
    server.wait_until(
        lambda: server.has_ended() or server.ask("/api/health").status == 200, "Grafana starts or ends"
    )
    if server.has_ended():
        children.dismiss(server.child)
        for file in (server.pod.root / "var/lib/grafana").glob("grafana.db*"):
            file.unlink()
        children.start(server.child)


def make_secrets(pod: MountedPod) -> None:
    (container,) = pod.spec["initContainers"]
    subprocess.run(pod.command(container), check=True)


def let_prometheus_find(plane: ControlPlane, exporter: Exporter, pod: MountedPod) -> None:
    """An exporter's pod is in the cluster, and Prometheus has the token that it would have there."""
    plane.kubectl("create", "namespace", NAMESPACE)
    wanted = [made for made in objects() if made["kind"] in OF_PROMETHEUS and is_for(made, "prometheus")]
    (exporters,) = (made for made in objects() if made["kind"] == "DaemonSet")
    ip, port = exporter.address.split(":")
    container = {
        "name": "exporter",
        "image": "gputally",
        "ports": [{"name": "metrics", "containerPort": int(port)}],
    }
    wanted.append(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "exporter",
                "namespace": NAMESPACE,
                "labels": exporters["spec"]["template"]["metadata"]["labels"],
            },
            "spec": {"nodeName": NODE, "containers": [container]},
        }
    )
    plane.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted}))
    running = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}}
    plane.kubectl(
        "patch", "pod", "exporter", "-n", NAMESPACE, "--subresource=status", "-p", json.dumps(running)
    )
    token = plane.folder / "prometheus.token"
    token.write_text(plane.kubectl("create", "token", "gputally-prometheus", "-n", NAMESPACE))
    point_at(plane, token, pod.root / "etc/prometheus/config/prometheus.yml")


def point_at(plane: ControlPlane, token: Path, file: Path) -> None:
    """Of the API server, a pod learns the address from its environment, and the token from a fixed place."""
    config = yaml.safe_load(file.read_text())
    (discovery,) = (
        found for job in config["scrape_configs"] for found in job.get("kubernetes_sd_configs", [])
    )
    discovery["api_server"] = plane.url
    discovery["tls_config"] = {"ca_file": str(plane.authority)}
    discovery["authorization"] = {"credentials_file": str(token)}
    file.write_text(json.dumps(config))


def is_for(made: chart.Object, component: str) -> bool:
    return bool(made["metadata"]["labels"]["app.kubernetes.io/component"] == component)


def password(stack: Stack) -> str:
    return (stack.grafana.pod.root / "var/lib/grafana/admin-password").read_text()


def loaded_rules(prometheus: Server) -> list[tuple[str, str, str]]:
    """(group, alert or record, expression) of each rule."""
    return [
        (group["name"], rule["name"], promql_parser.parse(rule["query"]).prettify())
        for group in prometheus.api("rules")["groups"]
        for rule in group["rules"]
    ]


def test_prometheus_finds_the_exporter_and_all_of_the_stack(stack: Stack) -> None:
    def up() -> dict[str, str]:
        targets = stack.prometheus.api("targets?state=active")["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in targets}

    all_up = dict.fromkeys(("gputally", "prometheus", "alertmanager", "grafana"), "up")
    stack.prometheus.wait_until(lambda: up() == all_up, f"all are up, of {up()}")


def test_series_name_the_node_the_cluster_and_the_pod_that_uses_the_gpu(stack: Stack) -> None:
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


def test_the_rules_are_the_plain_ones(stack: Stack) -> None:
    plain = [
        (group["name"], rule.get("alert") or rule["record"], promql_parser.parse(rule["expr"]).prettify())
        for group in rule_groups()
        for rule in group["rules"]
    ]
    assert sorted(loaded_rules(stack.prometheus)) == sorted(plain)


def test_data_is_kept_for_half_a_year_and_never_fills_the_disk(stack: Stack) -> None:
    assert stack.prometheus.api("status/runtimeinfo")["storageRetention"] == "180d or 40GiB"


def test_what_leaves_prometheus_names_its_cluster(stack: Stack) -> None:
    config = yaml.safe_load(stack.prometheus.api("status/config")["yaml"])
    assert config["global"]["external_labels"] == {"cluster": "lab", "region": "north"}


def test_nobody_can_end_or_reload_prometheus_over_the_network(stack: Stack) -> None:
    for path in ("/-/quit", "/-/reload", "/api/v1/admin/tsdb/snapshot"):
        assert stack.prometheus.ask(path, body=b"").status in (403, 404, 405, 500)
    assert not stack.prometheus.has_ended()


def test_prometheus_tells_alertmanager_of_alerts(stack: Stack) -> None:
    stack.prometheus.wait_until(
        lambda: bool(stack.prometheus.api("alertmanagers")["activeAlertmanagers"]), "it knows Alertmanager"
    )
    (known,) = stack.prometheus.api("alertmanagers")["activeAlertmanagers"]
    assert known["url"] == f"http://{stack.alertmanager.address}/api/v2/alerts"
    assert stack.alertmanager.ask("/api/v2/status").status == 200


def test_changed_rules_are_loaded_without_a_restart(stack: Stack) -> None:
    assert "GPUTallyGpuLost" in {name for _, name, _ in loaded_rules(stack.prometheus)}
    off = {**VALUES["rules"], "alerts": {"GPUTallyGpuLost": {"enabled": False}}}
    file = stack.prometheus.pod.root / "etc/prometheus/config/prometheus.yml"
    before = file.read_text()
    stack.prometheus.pod.write(objects({**VALUES, "rules": off}))
    file.write_text(before)
    stack.prometheus.wait_until(
        lambda: "GPUTallyGpuLost" not in {name for _, name, _ in loaded_rules(stack.prometheus)},
        "the rule has gone",
    )
    assert not stack.prometheus.has_ended()


def test_grafana_lets_nobody_in_without_the_password_that_was_made_for_it(stack: Stack) -> None:
    for login in (None, "admin:admin", "admin:"):
        assert stack.grafana.ask("/api/search", login).status == 401
    assert stack.grafana.ask("/api/user", f"admin:{password(stack)}").json["isGrafanaAdmin"]
    assert stack.grafana.ask("/api/user/signup", body=b'{"email": "a@example.com"}').status == 401
    assert re.fullmatch(r"[A-Za-z0-9]{32}", password(stack))


def test_the_password_is_made_once_and_only_grafana_can_read_it(stack: Stack) -> None:
    folder = stack.grafana.pod.root / "var/lib/grafana"
    files = [folder / "admin-password", folder / "secret-key"]
    before = [file.read_text() for file in files]
    make_secrets(stack.grafana.pod)
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


def test_every_dashboard_is_in_our_folder_and_cannot_be_changed(stack: Stack) -> None:
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


def test_the_fleet_is_what_one_sees_first(stack: Stack) -> None:
    home = stack.grafana.ask("/api/dashboards/home", f"admin:{password(stack)}").json
    assert home["dashboard"]["title"] == "GPUTally / Fleet"
