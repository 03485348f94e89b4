"""Runs GPUTally on this machine until Ctrl-C: first its live page, then Prometheus, Alertmanager and Grafana.

The page shows the GPUs of this host. If none can be read, the demo says so and shows a small simulated fleet
with a history and a few faults. The servers follow as soon as their programs are there: the first start
builds them. Prometheus has our rules, Alertmanager our routes, Grafana our dashboards.
"""

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from tools import ROOT, Failed
from tools.demonstration.builder import Builder
from tools.demonstration.console import Console
from tools.demonstration.containers import COMPOSE_FILE, compose_command
from tools.demonstration.inbox import Inbox
from tools.demonstration.machines import Machine
from tools.demonstration.plan import GRAFANA, PAGE, PROMETHEUS, PYTHON, make_plan
from tools.demonstration.running import Running
from tools.demonstration.words import page_line, sights
from tools.dependencies import environment
from tools.replay.rule_files import parse_duration
from tools.servers.children import Children
from tools.servers.waiting import responds, wait_until

_SECONDS_TO_START = 120
_SECONDS_BETWEEN_LOOKS = 0.2


def run(options: argparse.Namespace, directory: Path, console: Console) -> None:
    plan = make_plan(options, directory, console.say)
    exit_after = float("inf") if options.exit_after is None else options.exit_after
    with Children() as children, Inbox() as inbox:
        running = Running(plan, directory, children, inbox, console)
        _start_pages(running, show=not options.no_open)
        if plan.prometheus is None:
            console.say("Ctrl-C stops everything.")
            _stay(children.check, exit_after)
            return
        builder = Builder(plan.programs, directory)
        _offer_images(builder, console)
        try:
            builder.start()
            _run_stack(running, builder, exit_after)
        finally:
            builder.stop()


def _start_pages(running: Running, *, show: bool) -> None:
    """The first one alone, so that there is something to see as soon as possible."""
    first, *others = running.plan.machines
    _start(running, [first])
    if show:
        _open(first)
    _start(running, others)


def _start(running: Running, machines: Sequence[Machine]) -> None:
    children = running.children
    for machine in machines:
        children.start(machine.exporter(PYTHON, running.directory, running.plan.began))
    for machine in machines:
        ready = partial(responds, f"http://{machine.address}/readyz")
        wait_until(ready, f"{machine.name} is ready", _SECONDS_TO_START, check=children.check)
        running.console.say(page_line(machine))


def _open(machine: Machine) -> None:
    """In a browser, where there is a display."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(f"http://{machine.address}/")


def _offer_images(builder: Builder, console: Console) -> None:
    if builder.missing and (compose := compose_command()):
        console.say(
            f"`{compose} --file {ROOT / COMPOSE_FILE} up` starts the same from official images in a minute; "
            "here it is built from source"
        )


def _run_stack(running: Running, builder: Builder, exit_after: float) -> None:
    # What makes rules and dashboards is installed while the pages are already shown.
    environment.python("bundle")
    importlib.invalidate_caches()
    from tools.demonstration.stack import Stack  # noqa: PLC0415

    console, stack = running.console, Stack(running, builder)
    while not stack.complete:
        if not stack.start_next():
            for name, reason in stack.failures():
                console.say(f"{reason}\nContinuing without {name}")
            console.progress(builder.progress())
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        stack.watch()
    console.say(f"{sights(running.plan)}\nall parts are ready. Ctrl-C stops everything.")
    _stay(stack.watch, exit_after)


def _stay(watch: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        watch()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.scenario:
        options.scenario = options.scenario.absolute()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="gputally-demo-") as scratch:
            run(options, Path(scratch), console)
    except (Failed, ValueError) as failure:
        console.progress("")
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    console.say("stopped; nothing is left running")
    return 0


def _parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="tools/demo", description=first, epilog=rest)
    parser.add_argument(
        "--history",
        type=parse_duration,
        default="6h",
        metavar="DURATION",
        help="length of the history of simulated GPUs, as in 6h or 2d; 0 disables it (default: 6h)",
    )
    parser.add_argument(
        "--only",
        choices=(PAGE, PROMETHEUS, GRAFANA),
        help="page: only the pages; prometheus: and Prometheus; grafana: and Grafana (default: everything)",
    )
    parser.add_argument("--no-grafana", action="store_true", help="do not start Grafana")
    parser.add_argument(
        "--no-open", action="store_true", help="do not open the page in a browser, even if there is a display"
    )
    parser.add_argument(
        "--no-ui",
        action="store_true",
        help="serve only the APIs of Prometheus and Alertmanager, not their pages",
    )
    parser.add_argument("--exit-after", type=float, metavar="SECONDS", help="stop after this time")
    ports = parser.add_argument_group(
        "ports; 0 chooses a free one (default: the usual port, or a free one if that is in use)"
    )
    ports.add_argument(
        "--port", type=int, help="of the first exporter; the others use the next ones (usual: 9400)"
    )
    for server, usual in (("prometheus", 9090), ("alertmanager", 9093), ("grafana", 3000)):
        ports.add_argument(f"--{server}-port", type=int, metavar="PORT", help=f"usual: {usual}")
    simulator = parser.add_argument_group("one simulated machine, even if this host has GPUs")
    simulator.add_argument("--gpus", type=int)
    simulator.add_argument("--model")
    simulator.add_argument("--seed", type=int)
    simulator.add_argument("--scenario", type=Path, help="a scenario file: docs/simulator.md")
    return parser


def _interrupt(*_: object) -> NoReturn:
    # A second Ctrl-C must not interrupt the cleanup.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
