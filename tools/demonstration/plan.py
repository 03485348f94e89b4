"""The plan of the demo: everything that is decided before the first process starts."""

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import Failed
from tools.demonstration.machines import (
    SIMULATOR_FLAGS,
    STORY_SECONDS,
    Machine,
    one_simulated,
    small_fleet,
    story_seconds,
    this_host,
)
from tools.servers.ports import HOST, choose_port

PYTHON = Path(sys.executable)
PAGE, PROMETHEUS, GRAFANA = "page", "prometheus", "grafana"


@dataclass(frozen=True, slots=True)
class DemoServer:
    """Where a server listens, and the program that it is."""

    program: str
    port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The machines, and the servers that follow their pages; None for those that are not wanted."""

    machines: Sequence[Machine]
    began: float
    """Start of the scenarios, in seconds since 1970."""
    now: float
    """When the exporters start, and the history ends."""
    past_seconds: float
    """Length of the history that is written; 0 for none."""
    prometheus: DemoServer | None = None
    pages: str | None = None
    """The program with Prometheus's pages, for a binary without them."""
    alertmanager: DemoServer | None = None
    grafana: DemoServer | None = None

    @property
    def programs(self) -> list[str]:
        """In the order in which they are needed."""
        prometheus = self.prometheus.program if self.prometheus else None
        others = (server.program for server in (self.alertmanager, self.grafana) if server)
        return [name for name in (prometheus, self.pages, *others) if name]


def make_plan(options: Namespace, directory: Path, say: Callable[[str], None], python: Path = PYTHON) -> Plan:
    """Writes the scenarios to `directory`. Raises Failed, and ValueError for a wrong scenario."""
    story = story_seconds(options.history)
    if any(getattr(options, flag) is not None for flag in SIMULATOR_FLAGS):
        say("simulated GPUs, as requested")
        machines = [one_simulated(options)]
    elif _host_has_gpus(python):
        say("showing the GPUs of this host, which have no history")
        machines = [this_host(options.port)]
    else:
        say("no GPU of this host can be read (run `gputally check` for the reason): using SIMULATED GPUs")
        story = story_seconds(options.history, at_least=STORY_SECONDS)
        machines = small_fleet(directory, options.port, story)
    now = time.time()
    prometheus = alertmanager = grafana = None
    if options.only != PAGE:
        prometheus = _server("prometheus", "Prometheus", options.prometheus_port, 9090)
    if options.only is None:
        program = "alertmanager" if options.no_ui else "alertmanager-with-ui"
        alertmanager = _server(program, "Alertmanager", options.alertmanager_port, 9093)
    if options.only == GRAFANA or (options.only is None and not options.no_grafana):
        grafana = _server("grafana", "Grafana", options.grafana_port, 3000)
    return Plan(
        machines=machines,
        began=now - story,
        now=now,
        past_seconds=options.history if all(machine.scenario for machine in machines) else 0,
        prometheus=prometheus,
        pages=None if options.no_ui or not prometheus else "prometheus-ui",
        alertmanager=alertmanager,
        grafana=grafana,
    )


def _host_has_gpus(python: Path) -> bool:
    """The report of `gputally check`. Raises Failed only if the command fails."""
    command = [str(python), "-P", "-m", "gputally", "check", "--json"]
    looked = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        json.loads(looked.stdout)
    except ValueError:
        raise Failed(f"`gputally check` failed:\n{looked.stderr}") from None
    return looked.returncode == 0


def _server(program: str, who: str, asked: int | None, usual: int) -> DemoServer:
    return DemoServer(program, choose_port(who, asked, usual))
