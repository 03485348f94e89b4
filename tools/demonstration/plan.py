"""Everything that is decided before the first process of the demo starts."""

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
class Server:
    """A program, and the port that it gets."""

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
    """What is shown, and by whom."""

    machines: Sequence[Machine]
    began: float
    """The story of simulated ones, in seconds since 1970."""
    past_seconds: float
    """How much of it is written down; 0: nothing."""
    prometheus: Server
    pages: Path | None
    """Prometheus's own, where its binary does not have them; None when there is nothing to add."""
    alertmanager: Server | None
    grafana: Server | None


def make_plan(options: Namespace, folder: Path, python: Path = PYTHON) -> Plan:
    """`folder` gets what the simulated machines read. Raises Failed, and ValueError for a wrong scenario."""
    prometheus = programs.path("prometheus")
    pages = _pages(prometheus, options.no_ui)
    alertmanager = _program("alertmanager" if options.no_ui else "alertmanager-with-ui", "Alertmanager")
    grafana = None if options.no_grafana else _program("grafana", "Grafana")
    story = story_seconds(options.history)
    if any(getattr(options, flag) is not None for flag in SIMULATOR_FLAGS):
        _say("simulated GPUs, as asked for")
        machines = [one_simulated(options)]
    elif _host_has_gpus(python):
        _say("this host's GPUs can be read: they are shown, and have no past")
        machines = [this_host(options.port)]
    else:
        _say("no GPU of this host can be read (`gputally check` says why): using SIMULATED GPUs")
        story = story_seconds(options.history, at_least=STORY_SECONDS)
        machines = small_fleet(folder, options.port, story)
    return Plan(
        machines=machines,
        began=time.time() - story,
        past_seconds=options.history if all(machine.scenario for machine in machines) else 0,
        prometheus=Server(prometheus, choose_port("Prometheus", options.prometheus_port, 9090)),
        pages=pages,
        alertmanager=_server(alertmanager, "Alertmanager", options.alertmanager_port, 9093),
        grafana=_server(grafana, "Grafana", options.grafana_port, 3000),
    )


def _host_has_gpus(python: Path) -> bool:
    """What `gputally check` says; no GPU is an answer, a crash is not."""
    command = [str(python), "-P", "-m", "gputally", "check", "--json"]
    looked = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        json.loads(looked.stdout)
    except ValueError:
        raise Failed(f"`gputally check` failed:\n{looked.stderr}") from None
    return looked.returncode == 0


def _server(program: Path | None, who: str, asked: int | None, usual: int) -> Server | None:
    return Server(program, choose_port(who, asked, usual)) if program else None


def _program(name: str, who: str) -> Path | None:
    """None, with the reason on the screen, where it cannot be got."""
    try:
        return programs.path(name)
    except Failed as failure:
        _say(f"{failure}\nGoing on without {who}")
        return None


def _pages(prometheus: Path, without: bool) -> Path | None:
    """Prometheus's pages for a Prometheus that we built; one found on PATH has its own."""
    if programs.cache() not in prometheus.parents:
        return None
    if without:
        _say("without pages, as asked for: the APIs answer")
        return None
    return _program("prometheus-ui", "Prometheus's pages: its API answers, a browser shows nothing")


def _say(text: str) -> None:
    print(text, flush=True)
