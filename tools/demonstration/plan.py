"""The plan of the demo: everything that is decided before the first process starts."""

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import Failed
from tools.demonstration.machines import (
    SIMULATOR_FLAGS,
    Machine,
    one_simulated,
    small_fleet,
    this_host,
)
from tools.demonstration.past import STORY_SECONDS, story_seconds
from tools.dependencies import programs
from tools.servers.ports import HOST, choose_port

PYTHON = Path(sys.executable)


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A program and its port."""

    program: Path
    port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The machines and the servers."""

    machines: Sequence[Machine]
    began: float
    """Start of the scenarios, in seconds since 1970."""
    past_seconds: float
    """Length of the history that is written; 0 for none."""
    prometheus: DemoServer
    pages: Path | None
    """Prometheus's pages, for a binary without them; None if it has them."""
    alertmanager: DemoServer | None
    grafana: DemoServer | None


def make_plan(options: Namespace, directory: Path, python: Path = PYTHON) -> Plan:
    """Writes the scenarios to `directory`. Raises Failed, and ValueError for a wrong scenario."""
    prometheus = programs.path("prometheus")
    pages = _pages(prometheus, options.no_ui)
    alertmanager = _program("alertmanager" if options.no_ui else "alertmanager-with-ui", "Alertmanager")
    grafana = None if options.no_grafana else _program("grafana", "Grafana")
    story = story_seconds(options.history)
    if any(getattr(options, flag) is not None for flag in SIMULATOR_FLAGS):
        _say("simulated GPUs, as requested")
        machines = [one_simulated(options)]
    elif _host_has_gpus(python):
        _say("showing the GPUs of this host, which have no history")
        machines = [this_host(options.port)]
    else:
        _say("no GPU of this host can be read (run `gputally check` for the reason): using SIMULATED GPUs")
        story = story_seconds(options.history, at_least=STORY_SECONDS)
        machines = small_fleet(directory, options.port, story)
    return Plan(
        machines=machines,
        began=time.time() - story,
        past_seconds=options.history if all(machine.scenario for machine in machines) else 0,
        prometheus=DemoServer(prometheus, choose_port("Prometheus", options.prometheus_port, 9090)),
        pages=pages,
        alertmanager=_server(alertmanager, "Alertmanager", options.alertmanager_port, 9093),
        grafana=_server(grafana, "Grafana", options.grafana_port, 3000),
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


def _server(program: Path | None, who: str, asked: int | None, usual: int) -> DemoServer | None:
    return DemoServer(program, choose_port(who, asked, usual)) if program else None


def _program(name: str, who: str) -> Path | None:
    """The program; None, with a printed reason, if it cannot be installed."""
    try:
        return programs.path(name)
    except Failed as failure:
        _say(f"{failure}\nContinuing without {who}")
        return None


def _pages(prometheus: Path, without: bool) -> Path | None:
    """Prometheus's pages for a Prometheus that tools/programs built; one on PATH has its own."""
    if programs.cache() not in prometheus.parents:
        return None
    if without:
        _say("without web pages, as requested; the APIs are available")
        return None
    return _program("prometheus-ui", "Prometheus's web pages; its API is available")


def _say(text: str) -> None:
    print(text, flush=True)
