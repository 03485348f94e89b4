"""Writes the history of a simulated fleet as blocks that Prometheus serves.

DIRECTORY gets what Prometheus would have scraped and, with --rules, recorded; the alerts that would have
fired are printed. Then start Prometheus with --storage.tsdb.path=DIRECTORY and a retention that covers the
history (default of Prometheus: 15 days).
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gputally.simulator import MODEL_NAMES
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.scenario import DEFAULT_GPUS, DEFAULT_MODEL, Scenario
from gputally.simulator.scenario_file import load_scenario
from tools import Failed
from tools.replay.blocks import write_history
from tools.replay.firing import Firing, firing
from tools.replay.fleet import GpuNode, Period
from tools.replay.rule_files import parse_duration
from tools.replay.rules import record_rules
from tools.servers.prometheus import serving


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    last = options.until if options.until is not None else time.time()
    try:
        period = Period(last - options.last, last, options.step)
        written = write_history(
            _nodes(options),
            period,
            options.directory,
            cluster=options.cluster,
            began_at=options.scenario_start,
            process_metrics=options.process_metrics,
        )
        print(
            f"{written.samples:,} samples, {written.block_bytes / 1e6:.1f} MB of blocks: "
            f"{written.seconds_playing:.1f} s to play, {written.seconds_loading:.1f} s to load"
        )
        if options.rules:
            print(f"{record_rules(options.directory, options.rules, period)} rules recorded")
            with serving(options.directory) as prometheus:
                for found in firing(prometheus.url, options.rules, period):
                    print(_sentence(found))
    except (Failed, ValueError) as failure:
        print(f"tools/history: {failure}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="tools/history", description=first, epilog=rest)
    parser.add_argument(
        "directory", type=Path, metavar="DIRECTORY", help="for the blocks; existing blocks stay"
    )
    parser.add_argument(
        "--last", type=parse_duration, default="6h", help="length of the history (default: 6h)"
    )
    parser.add_argument("--until", type=float, metavar="EPOCH", help="end of the history (default: now)")
    parser.add_argument(
        "--step", type=parse_duration, default="1m", help="time between scrapes (default: 1m)"
    )
    parser.add_argument(
        "--scenario-start", type=float, metavar="EPOCH", help="of the scenario (default: just before)"
    )
    parser.add_argument(
        "--rules",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="rule files to record and to evaluate",
    )
    parser.add_argument(
        "--process-metrics", action="store_true", help="export series per process, as the flag of gputally"
    )
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument(
        "--nodes", type=int, default=1, help="number of simulated nodes, each with its own seed (default: 1)"
    )
    fleet.add_argument(
        "--clones",
        type=int,
        default=0,
        help="copies of each node with other names and the same values (default: 0)",
    )
    fleet.add_argument("--name", default="node", help="prefix of the node names (default: node)")
    fleet.add_argument("--cluster", default="simulated")
    fleet.add_argument(
        "--label",
        dest="labels",
        action="append",
        default=[],
        type=_label,
        metavar="NAME=VALUE",
        help="label of all targets; may replace job, instance, node or cluster; an empty value removes it",
    )
    fleet.add_argument(
        "--state-file",
        type=Path,
        metavar="FILE",
        help="write the ledger of the first node at the end, for an exporter on this host to continue",
    )
    fleet.add_argument("--scenario", type=Path, help="a scenario file: docs/simulator.md")
    fleet.add_argument("--gpus", type=int)
    fleet.add_argument("--model", choices=MODEL_NAMES)
    fleet.add_argument("--seed", type=int, help="seed of the first node")
    return parser


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it takes NAME=VALUE")
    return name, value


def _nodes(options: argparse.Namespace) -> list[GpuNode]:
    scenario = _scenario(options)
    return [
        GpuNode(
            name=f"{options.name}-{number}",
            scenario=replace(scenario, seed=scenario.seed + number),
            labels=dict(options.labels),
            clones=tuple(f"{options.name}-{number}-{clone}" for clone in range(options.clones)),
            state_file=None if number else options.state_file,
        )
        for number in range(options.nodes)
    ]


def _scenario(options: argparse.Namespace) -> Scenario:
    if options.scenario:
        return load_scenario(options.scenario, gpus=options.gpus, model=options.model, seed=options.seed)
    return default_scenario(
        DEFAULT_GPUS if options.gpus is None else options.gpus,
        options.model or DEFAULT_MODEL,
        options.seed or 0,
    )


def _sentence(found: Firing) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in found.labels)
    first, last = (time.strftime("%F %T", time.gmtime(at)) for at in (found.first, found.last))
    return f"{found.alert} from {first} to {last} UTC: {labels}"


if __name__ == "__main__":
    sys.exit(main())
