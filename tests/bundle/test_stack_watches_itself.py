"""The stack watches itself: its rules on its real Prometheus and Alertmanager, with real faults."""

import base64
import copy
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import schema
from alerts.groups import stack
from tests.bundle import chart
from tests.bundle.kubelet import MountedPod
from tests.bundle.running_stack import NAMESPACE, Server, alertmanager, prometheus
from tools.servers.children import Child, Children
from tools.servers.ports import HOST, free_port

pytestmark = pytest.mark.timeout(600)

WATCHDOG = "GPUTallyWatchdog"
AT_ONCE = {"groupWait": "1s", "groupInterval": "2s"}
VALUES: dict[str, Any] = {
    "stack": {"enabled": True, "prometheus": {"remoteWrite": [{"url": "http://central.example:80/push"}]}},
    # Its discovery would need an API server.
    "exporter": {"enabled": False},
    "cluster": "lab",
    "routing": {
        "default": "webhook",
        "secret": "gputally-alerting",
        "watchdog": {"enabled": True},
        "timing": {"critical": AT_ONCE, "warning": AT_ONCE},
    },
    "rules": {
        "settings": {"scrapeInterval": "1s", "scrapeTimeout": "1s", "remoteWriteDelaySeconds": 20},
        "alerts": {alert.name: {"for": "0s"} for alert in stack.GROUP.alerts},
    },
}
NOT_PROVOKED = {"GPUTallyStackStorageFailing": "needs a full or a damaged disk"}


@dataclass(slots=True)
class Surroundings:
    """What the two servers talk to: Grafana, the receivers of messages, and the long-term storage."""

    address: str = ""
    failing: set[str] = field(default_factory=set)
    """The paths that respond with an error."""
    received: dict[str, list[Any]] = field(default_factory=dict)
    """Path -> messages."""


@dataclass(frozen=True, slots=True)
class Watched:
    prometheus: Server
    alertmanager: Server
    surroundings: Surroundings

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.prometheus.api("alerts")["alerts"]}

    def has(self, name: str, labels: frozenset[str]) -> bool:
        """Whether there are series of this name, all with these labels."""
        found = self.prometheus.api(f"query?query={name}")["result"]
        return bool(found) and all(labels <= one["metric"].keys() for one in found)

    def change(self, name: str, text: str) -> None:
        (self.prometheus.pod.root / "etc/prometheus/config" / name).write_text(text)

    def read(self, name: str) -> Any:
        return yaml.safe_load((self.prometheus.pod.root / "etc/prometheus/config" / name).read_text())


@contextmanager
def listening(surroundings: Surroundings) -> Iterator[http.server.ThreadingHTTPServer]:
    """It responds once it serves, in a thread of the caller."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond(b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/push":
                surroundings.received.setdefault(self.path, []).append(json.loads(body))
            self.respond(b"")

        def respond(self, body: bytes) -> None:
            self.send_response(500 if self.path in surroundings.failing else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the messages are stored."""

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as server:
        surroundings.address = f"{HOST}:{server.server_address[1]}"
        yield server
        server.shutdown()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    surroundings = Surroundings()
    with ExitStack() as exits:
        http_server = exits.enter_context(listening(surroundings))
        here = {name: f"{HOST}:{free_port()}" for name in ("prometheus", "alertmanager")}
        addresses = {
            "localhost:9090": here["prometheus"],
            "gputally-prometheus.monitoring:9090": here["prometheus"],
            "gputally-alertmanager.monitoring:9093": here["alertmanager"],
            "gputally-grafana.monitoring:80": surroundings.address,
            "central.example:80": surroundings.address,
        }
        objects = [*copy.deepcopy(chart.render(VALUES, namespace=NAMESPACE)), secret(surroundings.address)]
        evaluate_each_second(objects)
        children = exits.enter_context(Children())

        def start(name: str) -> Server:
            (workload,) = (
                made
                for made in objects
                if made["kind"] == "StatefulSet" and made["metadata"]["name"] == f"gputally-{name}"
            )
            pod = MountedPod(workload, tmp_path / name, addresses)
            pod.write(objects)
            command = {"prometheus": prometheus, "alertmanager": alertmanager}[name](pod, here[name])
            child = children.start(Child(name, command, tmp_path, tmp_path / f"{name}.log"))
            return Server(pod, here[name], child)

        started = Watched(start("prometheus"), start("alertmanager"), surroundings)
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        started.prometheus.wait_until_it_answers("/-/ready")
        started.alertmanager.wait_until_it_answers("/-/ready")
        yield started


def secret(address: str) -> chart.Object:
    urls = {f"{name}-url": f"http://{address}/{name}" for name in ("watchdog", "webhook")}
    data = {name: base64.b64encode(url.encode()).decode() for name, url in urls.items()}
    return {"kind": "Secret", "metadata": {"name": "gputally-alerting"}, "data": data}


def evaluate_each_second(objects: list[chart.Object]) -> None:
    """Only the rules of the stack: the others need exporters."""
    for made in objects:
        if rules := made.get("data", {}).get("gputally.rules.yml"):
            groups = [
                {**group, "interval": "1s"}
                for group in yaml.safe_load(rules)["groups"]
                if group["name"] == stack.GROUP.name
            ]
            made["data"]["gputally.rules.yml"] = json.dumps({"groups": groups})


def discover_pods_nowhere(config: Any) -> None:
    """Adds a job to a configuration of Prometheus whose API server does not listen."""
    nowhere = {"role": "pod", "api_server": f"http://{HOST}:{free_port()}"}
    config["scrape_configs"].append({"job_name": "pods", "kubernetes_sd_configs": [nowhere]})


def test_every_series_that_the_rules_read_is_there_with_its_labels(watched: Watched) -> None:
    config = watched.read("prometheus.yml")
    discover_pods_nowhere(config)
    watched.change("prometheus.yml", json.dumps(config))
    for name, labels in schema.STACK.items():
        watched.prometheus.wait_until(partial(watched.has, name, labels), f"there is {name} with {labels}")


def test_a_healthy_stack_repeats_the_watchdog_and_sends_nothing_else(watched: Watched) -> None:
    received = watched.surroundings.received
    watched.prometheus.wait_until(lambda: "/watchdog" in received, "the watchdog is received")
    # Remote write has delivered nothing at the start.
    watched.prometheus.wait_until(lambda: watched.firing() == {WATCHDOG}, "only the watchdog fires")
    (alert,) = received["/watchdog"][0]["alerts"]
    assert alert["labels"]["alertname"] == WATCHDOG
    assert alert["labels"]["cluster"] == "lab"
    assert WATCHDOG not in json.dumps(received.get("/webhook", []))


def test_each_fault_of_the_stack_fires_its_alert(watched: Watched) -> None:
    def fires(name: str) -> None:
        seen.add(name)
        watched.prometheus.wait_until(lambda: name in watched.firing(), f"{name} fires")

    seen = {WATCHDOG}
    watched.prometheus.wait_until(lambda: watched.firing() == {WATCHDOG}, "only the watchdog fires")

    rules = watched.read("gputally.rules.yml")
    joined = {"record": "many:to:many", "expr": "scrape_duration_seconds + on () up"}
    rules["groups"].append({"name": "wrong", "interval": "1s", "rules": [joined]})
    watched.change("gputally.rules.yml", json.dumps(rules))
    fires("GPUTallyStackRulesFailing")

    config = watched.read("prometheus.yml")
    config["storage"]["tsdb"]["retention"]["size"] = "1KB"
    discover_pods_nowhere(config)
    watched.change("prometheus.yml", json.dumps(config))
    for name in ("VolumeNearlyFull", "RetentionShort", "DiscoveryFailing"):
        fires(f"GPUTallyStack{name}")

    watched.surroundings.failing |= {"/metrics", "/push", "/webhook"}
    for name in ("GrafanaDown", "RemoteWriteFailing", "NotificationsFailing"):
        fires(f"GPUTallyStack{name}")

    watched.change("prometheus.yml", "wrong: true")
    fires("GPUTallyStackReloadFailing")

    assert watched.alertmanager.child.process
    watched.alertmanager.child.process.terminate()
    for name in ("TargetDown", "AlertsNotDelivered"):
        fires(f"GPUTallyStack{name}")
    assert seen | NOT_PROVOKED.keys() == {alert.name for alert in stack.GROUP.alerts}
