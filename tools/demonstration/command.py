"""Runs GPUTally with Prometheus, Alertmanager and Grafana on this machine until Ctrl-C.

Prometheus has our rules, Alertmanager our routes, Grafana our dashboards. They show the GPUs of this host. If
none can be read, the demo says so and shows a small simulated fleet with a history and a few faults.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from tools import Failed
from tools.demonstration import servers
from tools.demonstration.inbox import Inbox
from tools.demonstration.past import write_past, write_rules
from tools.demonstration.plan import PYTHON, Plan, make_plan
from tools.demonstration.words import alert_line, welcome
from tools.replay.rule_files import parse_duration
from tools.servers.children import Children
from tools.servers.prometheus import Prometheus
from tools.servers.waiting import responds, wait_until

_SECONDS_TO_START = 120


def run(plan: Plan, directory: Path, exit_after: float | None) -> None:
    with Children() as children, Inbox() as inbox:
        rule_files = write_rules(directory)
        if plan.alertmanager:
            children.start(servers.alertmanager(plan.alertmanager, directory, inbox.url))
        if plan.grafana:
            say("starting Grafana")
            servers.grafana(plan, plan.grafana, directory).start(children)
        for machine in plan.machines:
            children.start(machine.exporter(PYTHON, directory, plan.began))
        for machine in plan.machines:
            _wait(partial(responds, f"http://{machine.address}/readyz"), f"{machine.name} is ready", children)
        # The exporters already run: their counters have no gap between the history and the first scrape.
        if plan.past_seconds:
            write_past(plan.machines, directory, rule_files, plan.past_seconds, plan.began)
        children.start(servers.prometheus(plan, directory, rule_files))
        prometheus = Prometheus(plan.prometheus.url)
        _wait(lambda: _targets_up(prometheus) == len(plan.machines), "Prometheus scrapes", children)
        say(welcome(plan))
        _wait(lambda: prometheus.query("gputally_gpu_info"), "Prometheus has data", children)
        gpus = _number(prometheus, "count(count by (node, uuid) (gputally_gpu_info))")
        series = _number(prometheus, 'count({__name__=~"gputally_.+"})')
        say(f"data has arrived: {gpus:.0f} GPUs, {series:.0f} series. Ctrl-C stops everything.")
        # Threads may only start after the last child.
        inbox.start()
        _stay(prometheus, children, time.monotonic() + exit_after if exit_after is not None else float("inf"))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.scenario:
        options.scenario = options.scenario.absolute()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="gputally-demo-") as scratch:
            directory = Path(scratch)
            run(make_plan(options, directory), directory, options.exit_after)
    except (Failed, ValueError) as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    say("stopped; nothing is left running")
    return 0


def say(text: str) -> None:
    print(text, flush=True)


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
    parser.add_argument("--no-grafana", action="store_true", help="do not start Grafana")
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


def _stay(prometheus: Prometheus, children: Children, end: float) -> None:
    """Returns at the end; prints each alert that fires, once."""
    printed: set[str] = set()
    next_query = time.monotonic()
    while time.monotonic() < end:
        time.sleep(0.2)
        children.check()
        if time.monotonic() >= next_query:
            next_query = time.monotonic() + servers.EVALUATION_SECONDS
            with suppress(Failed):
                new = _firing(prometheus) - printed
                printed |= new
                for alert in sorted(new):
                    say(f"alert fires: {alert}")


def _number(prometheus: Prometheus, expression: str) -> float:
    (series,) = prometheus.query(expression)
    return float(series["value"][1])


def _targets_up(prometheus: Prometheus) -> int:
    """How many have been scraped; the metric `up` would also count what the written history says."""
    return sum(target["health"] == "up" for target in prometheus.api("targets")["activeTargets"])


def _firing(prometheus: Prometheus) -> set[str]:
    alerts = prometheus.api("alerts")["alerts"]
    return {alert_line(alert["labels"]) for alert in alerts if alert["state"] == "firing"}


def _interrupt(*_: object) -> NoReturn:
    # A second Ctrl-C must not interrupt the cleanup.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def _wait(condition: Callable[[], object], what: str, children: Children) -> None:
    wait_until(condition, what, _SECONDS_TO_START, check=children.check, ignore=(Failed,))


if __name__ == "__main__":
    sys.exit(main())
