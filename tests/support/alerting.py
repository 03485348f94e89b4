"""A real Prometheus with our rules, a real Alertmanager with our routes, and a receiver.

Rules and routes are ours, with seconds instead of minutes and hours.
"""

import http.server
import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from alerts import manifests
from alerts.rules import rule_groups
from tests.support.prometheus import prometheus_in
from tools.dependencies import programs
from tools.servers.ports import free_port
from tools.servers.prometheus import Prometheus
from tools.servers.waiting import wait_until

TEAMS = {"nlp": "email"}


def amtool(*arguments: str | Path) -> str:
    """The output of a successful run of amtool."""
    run = subprocess.run([programs.path("amtool"), *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


@dataclass(frozen=True, slots=True)
class Message:
    """One received notification."""

    receiver: str
    status: str
    common: Mapping[str, str]
    alerts: tuple[tuple[str, str, str], ...]
    """(alert, node, GPU or ""), sorted."""
    whole: Mapping[str, Any]


@dataclass(slots=True)
class Inbox:
    """The receiver of Alertmanager's notifications: the path of the URL is the receiver's name."""

    port: int = 0
    messages: list[Message] = field(default_factory=list)

    def wait_for(self, wanted: Callable[[Message], object], what: str, seconds: float = 60) -> Message:
        return wait_until(
            lambda: next(filter(wanted, list(self.messages)), None),
            f"{what} is received",
            seconds,
            state=lambda: "\n".join(f"{m.receiver} {m.status} {m.alerts}" for m in self.messages),
        )

    def alert_names(self) -> set[str]:
        return {alert for message in self.messages for alert, _, _ in message.alerts}


@contextmanager
def inbox(host: str = "127.0.0.1") -> Iterator[Inbox]:
    """An inbox at this address of the machine."""
    box = Inbox()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            alerts = sorted(
                (a["labels"]["alertname"], a["labels"].get("node", ""), a["labels"].get("gpu", ""))
                for a in body["alerts"]
            )
            box.messages.append(
                Message(self.path[1:], body["status"], body["commonLabels"], tuple(alerts), body)
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the messages are stored."""

    with http.server.ThreadingHTTPServer((host, 0), Handler) as server:
        box.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield box
        finally:
            server.shutdown()


def write_alertmanager_config(path: Path, inbox: Inbox, *, maintenance: bool = False) -> None:
    """Writes our routes and inhibitions; every receiver is a webhook, and waiting times are short."""
    config = yaml.safe_load(manifests.alertmanager(TEAMS))
    (ours,) = config["route"]["routes"]
    for route in (config["route"], *ours["routes"]):
        route |= {"group_wait": "1s", "group_interval": "2s", "repeat_interval": "1h"}
    always: dict[str, Any] = {} if maintenance else {"years": ["1970"]}
    config["time_intervals"] = [{"name": "maintenance", "time_intervals": [always]}]
    config["receivers"] = [
        {
            "name": receiver["name"],
            "webhook_configs": [{"url": f"http://127.0.0.1:{inbox.port}/{receiver['name']}"}],
        }
        for receiver in config["receivers"]
    ]
    path.write_text(json.dumps(config))


def write_rules(path: Path) -> None:
    """Writes all our rules without waiting times."""
    groups = rule_groups(disabled_too=True)
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "alert" in rule:
                rule["for"] = "0s"
                rule.pop("keep_firing_for", None)
    path.write_text(json.dumps({"groups": groups}))


class Alertmanager:
    """An Alertmanager that keeps its state in a directory; use start and stop to restart it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            str(programs.path("alertmanager")),
            f"--config.file={self.directory / 'alertmanager.yml'}",
            f"--storage.path={self.directory / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]
        with (self.directory / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(30)

    def tell(self, alerts: list[dict[str, str]]) -> None:
        """Sends alerts with these labels, as Prometheus does."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})

        def send() -> bool:
            with urllib.request.urlopen(request, timeout=10):
                return True

        wait_until(send, "Alertmanager accepts alerts", ignore=(OSError,))

    def inhibited(self, clusters: str = "") -> list[dict[str, str]]:
        """The labels of inhibited alerts of clusters whose names end with this."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            listed = json.load(answer)
        return [
            alert["labels"]
            for alert in listed
            if alert["status"]["inhibitedBy"] and alert["labels"]["cluster"].endswith(clusters)
        ]

    def wait_for_inhibited(self, clusters: str) -> list[dict[str, str]]:
        return wait_until(lambda: self.inhibited(clusters), "an alert is inhibited", ignore=(OSError,))

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v2/alerts"


@contextmanager
def stack(
    directory: Path, targets: Mapping[str, str], *, maintenance: bool = False
) -> Iterator[tuple[Prometheus, Alertmanager, Inbox]]:
    """Prometheus scrapes these targets (node -> address) and evaluates the rules each second."""
    with inbox() as box:
        write_rules(directory / "rules.yml")
        write_alertmanager_config(directory / "alertmanager.yml", box, maintenance=maintenance)
        alertmanager = Alertmanager(directory)
        listed = [
            {"targets": [address], "labels": {"node": node, "cluster": "test"}}
            for node, address in targets.items()
        ]
        job = {"job_name": "gputally", "honor_labels": True, "static_configs": listed}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(directory / "rules.yml")],
            "scrape_configs": [job],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager.port}"]}]}]
            },
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        alertmanager.start()
        try:
            with prometheus_in(directory) as prometheus:
                yield prometheus, alertmanager, box
        finally:
            alertmanager.stop()
