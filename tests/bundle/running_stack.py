"""The stack of the chart on one machine: real servers with the rendered files.

The API server is real, so Prometheus discovers an exporter with the chart's own service account and role.
"""

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import yaml

from tests.bundle import chart
from tests.bundle.kubelet import MountedPod
from tests.support.exporter import Exporter
from tools.dependencies import programs
from tools.servers import control_plane
from tools.servers.children import Child, Children
from tools.servers.control_plane import ControlPlane
from tools.servers.grafana import installation
from tools.servers.ports import HOST, free_port
from tools.servers.waiting import wait_until

NODE = "gpu-1"
NAMESPACE = "monitoring"
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
    """A running server of the stack."""

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
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return Answer(0, b"")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, 180, state=lambda: self.child.log.read_text()[-3000:])

    def wait_until_it_answers(self, path: str) -> None:
        self.wait_until(lambda: self.ask(path).status == 200, f"{path} is answered")

    def has_ended(self) -> bool:
        return self.child.process is not None and self.child.process.poll() is not None

    def api(self, path: str) -> Any:
        """The data in the response of Prometheus's API."""
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


@contextmanager
def running_stack(folder: Path) -> Iterator[Stack]:
    here = {name: f"{HOST}:{free_port()}" for name in SERVICES}
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
    """With the paths from the environment of the image."""
    generate_secrets(pod)
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
        # The Grafana that tools/programs builds does not contain the libraries of Angular plugins.
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
    """Grafana 10 sometimes exits at the first start, with an error about rows that it has just inserted."""
    server.wait_until(
        lambda: server.has_ended() or server.ask("/api/health").status == 200, "Grafana starts or ends"
    )
    if server.has_ended():
        children.dismiss(server.child)
        for file in (server.pod.root / "var/lib/grafana").glob("grafana.db*"):
            file.unlink()
        children.start(server.child)


def generate_secrets(pod: MountedPod) -> None:
    (container,) = pod.spec["initContainers"]
    subprocess.run(pod.command(container), check=True)


def let_prometheus_find(plane: ControlPlane, exporter: Exporter, pod: MountedPod) -> None:
    """Adds an exporter's pod to the cluster, and gives Prometheus the token of its service account."""
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
    token = plane.directory / "prometheus.token"
    token.write_text(plane.kubectl("create", "token", "gputally-prometheus", "-n", NAMESPACE))
    point_at(plane, token, pod.root / "etc/prometheus/config/prometheus.yml")


def point_at(plane: ControlPlane, token: Path, file: Path) -> None:
    """Sets the API server's URL and the token, which a pod gets from its environment and a fixed path."""
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
