"""GPUTally and a real Prometheus that scrapes it, on this machine alone, until Ctrl-C.

On this host's GPUs if it has any that can be read; otherwise, and it says so, on simulated ones.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tools import environment, programs
from tools.children import Child, Children
from tools.progress import Failed

HOST = "127.0.0.1"
SCRAPE_SECONDS = 5
SIMULATOR_FLAGS = ("gpus", "model", "seed", "scenario")
QUERIES = {
    "how busy each GPU is": "gputally_gpu_utilization_ratio",
    "watts, all GPUs together": "sum(gputally_gpu_power_watts)",
    "share of memory in use": "gputally_gpu_memory_used_bytes / gputally_gpu_memory_total_bytes",
}
PROMETHEUS_CONFIG = """\
global:
  scrape_interval: {seconds}s
scrape_configs:
  - job_name: gputally
    honor_labels: true
    static_configs:
      - targets: ["{exporter}"]
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before the first process starts."""

    python: Path
    prometheus: Path
    pages: Path | None
    """Prometheus's pages, where its binary does not have them; None when there is nothing to add."""
    exporter_address: str
    prometheus_address: str
    simulator: Sequence[str] | None
    """Flags of `gputally simulate`; None to read this host's GPUs."""

    def exporter(self, folder: Path) -> Child:
        mode = ["serve"] if self.simulator is None else ["simulate", *self.simulator]
        serving = ["--listen-address", self.exporter_address, "--interval", f"{SCRAPE_SECONDS}s"]
        command: list[str | Path] = [self.python, "-m", "gputally", *mode, *serving]
        return Child("gputally", command, folder, folder / "gputally.log")

    def prometheus_server(self, folder: Path) -> Child:
        config = folder / "prometheus.yml"
        config.write_text(PROMETHEUS_CONFIG.format(seconds=SCRAPE_SECONDS, exporter=self.exporter_address))
        # A Prometheus without pages of its own looks for them here, and only in a folder of this name.
        home = folder / "prometheus"
        (home / "web").mkdir(parents=True)
        if self.pages:
            ui = home / "web" / "ui"
            ui.mkdir()
            (ui / "static").symlink_to(self.pages)
        command: list[str | Path] = [
            self.prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.prometheus_address}",
        ]
        return Child("prometheus", command, home, folder / "prometheus.log")


def plan(options: argparse.Namespace) -> Plan:
    python = environment.python()
    prometheus = programs.path("prometheus")
    simulator = [
        f"--{flag}={value}" for flag in SIMULATOR_FLAGS if (value := getattr(options, flag)) is not None
    ]
    if simulator:
        say("simulated GPUs, as asked for")
    elif _host_has_gpus(python):
        say("this host's GPUs can be read")
    else:
        say("no GPU of this host can be read (`gputally check` says why): using SIMULATED GPUs")
        simulator = ["--gpus=8"]
    return Plan(
        python=python,
        prometheus=prometheus,
        pages=_pages(prometheus, options.no_ui),
        exporter_address=f"{HOST}:{free_port('the exporter', options.port, 9400)}",
        prometheus_address=f"{HOST}:{free_port('Prometheus', options.prometheus_port, 9090)}",
        simulator=simulator or None,
    )


def free_port(who: str, asked: int | None, usual: int) -> int:
    """The port asked for; or the usual one, or, if that is taken, a free one. 0 asks for a free one."""
    port = usual if asked is None else asked
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if asked:
                raise Failed(f"port {port} for {who}: {error.strerror}") from None
        else:
            return int(probe.getsockname()[1])
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        free = int(probe.getsockname()[1])
    say(f"port {port} is taken: {who} gets {free}")
    return free


def run(plan: Plan, exit_after: float | None) -> None:
    with tempfile.TemporaryDirectory(prefix="gputally-demo-") as scratch, Children() as children:
        folder = Path(scratch)
        children.start(plan.exporter(folder))
        _wait(
            "the exporter to be ready", lambda: _answers(f"http://{plan.exporter_address}/readyz"), children
        )
        children.start(plan.prometheus_server(folder))
        ask = Prometheus(plan.prometheus_address)
        _wait("Prometheus to scrape it", lambda: ask.number('up{job="gputally"}') == 1, children)
        say(_welcome(plan))
        _wait("data", lambda: ask.number("count(gputally_gpu_info)"), children)
        gpus, series = ask.number("count(gputally_gpu_info)"), ask.number('count({__name__=~"gputally_.+"})')
        say(f"data has arrived: {gpus:.0f} GPUs, {series:.0f} series. Ctrl-C stops everything.")
        end = time.monotonic() + exit_after if exit_after is not None else float("inf")
        while time.monotonic() < end:
            time.sleep(0.2)
            children.check()


class Prometheus:
    """Asks a Prometheus over its API."""

    def __init__(self, address: str) -> None:
        self.address = address

    def number(self, query: str) -> float | None:
        """The value of a query that gives one sample; None while it gives none."""
        address = f"http://{self.address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=5) as response:
                answer: dict[str, Any] = json.load(response)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None
        result = answer["data"]["result"]
        return float(result[0]["value"][1]) if result else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, help="of the exporter; 0: a free one (default: 9400, if free)")
    parser.add_argument("--prometheus-port", type=int, help="the same (default: 9090, if free)")
    parser.add_argument("--no-ui", action="store_true", help="do not get Prometheus's pages, only its API")
    parser.add_argument("--exit-after", type=float, metavar="SECONDS", help="stop by itself")
    simulator = parser.add_argument_group("simulated GPUs, even if this host has real ones")
    for flag in SIMULATOR_FLAGS:
        simulator.add_argument(f"--{flag}", type=Path if flag == "scenario" else str)
    options = parser.parse_args(arguments)
    if options.scenario:
        options.scenario = options.scenario.absolute()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    try:
        run(plan(options), options.exit_after)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    say("stopped; nothing is left running")
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def _interrupt(*_: object) -> NoReturn:
    # Once is enough: a second Ctrl-C must not cut the cleaning up short.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def _host_has_gpus(python: Path) -> bool:
    """What `gputally check` says; no GPU is an answer, a crash is not."""
    command = [str(python), "-m", "gputally", "check", "--json"]
    looked = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        json.loads(looked.stdout)
    except ValueError:
        raise Failed(f"`gputally check` failed:\n{looked.stderr}") from None
    return looked.returncode == 0


def _pages(prometheus: Path, without: bool) -> Path | None:
    """Prometheus's pages for a Prometheus that we built; one found on PATH has its own."""
    if programs.cache() not in prometheus.parents:
        return None
    if without:
        say("without Prometheus's pages, as asked for: its API answers")
        return None
    try:
        return programs.path("prometheus-ui")
    except Failed as failure:
        say(f"{failure}\nGoing on without Prometheus's pages: its API answers, a browser shows nothing")
        return None


def _welcome(plan: Plan) -> str:
    api = f"http://{plan.prometheus_address}/api/v1/query"
    lines = [
        "",
        f"GPUTally    http://{plan.exporter_address}/         metrics: http://{plan.exporter_address}/metrics",
        f"Prometheus  http://{plan.prometheus_address}/",
        "",
        "Try:",
        *(f"  {query}\n      {what}" for what, query in QUERIES.items()),
        "",
        f"or: curl -G {api} --data-urlencode 'query=sum(gputally_gpu_power_watts)'",
        "",
    ]
    return "\n".join(lines)


def _wait(what: str, done: Callable[[], object], children: Children, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        children.check()
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds:.0f} s for {what}, in vain")
        time.sleep(0.2)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
