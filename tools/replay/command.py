"""The past of a simulated fleet, as blocks that Prometheus serves.

Writes into FOLDER what Prometheus would have scraped, with --rules also what it would have recorded, and says
which alerts would have fired. Then start Prometheus with --storage.tsdb.path=FOLDER; what is older than its
retention (15 days, if nothing else is said) it deletes.
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
from tools.replay.fleet import Node, Period
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
            options.folder,
            cluster=options.cluster,
            began_at=options.scenario_start,
            process_metrics=options.process_metrics,
        )
        print(
            f"{written.samples:,} samples, {written.block_bytes / 1e6:.1f} MB of blocks: "
            f"{written.seconds_playing:.1f} s to play, {written.seconds_loading:.1f} s to load"
        )
        if options.rules:
            print(f"{record_rules(options.folder, options.rules, period)} rules recorded")
            with serving(options.folder) as prometheus:
                for found in firing(prometheus.url, options.rules, period):
                    print(_sentence(found))
    except (Failed, ValueError) as failure:
        print(f"tools/history: {failure}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="tools/history", description=first, epilog=rest)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the blocks; others there stay")
    parser.add_argument("--last", type=parse_duration, default="6h", help="how long it is (default: 6h)")
    parser.add_argument("--until", type=float, metavar="EPOCH", help="when it ends (default: now)")
    parser.add_argument("--step", type=parse_duration, default="1m", help="between scrapes (default: 1m)")
    parser.add_argument(
        "--scenario-start", type=float, metavar="EPOCH", help="of the scenario (default: just before)"
    )
    parser.add_argument(
        "--rules", type=Path, nargs="+", default=(), metavar="FILE", help="to record and judge"
    )
    parser.add_argument("--process-metrics", action="store_true", help="as that flag of gputally")
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument("--nodes", type=int, default=1, help="how many are simulated, each with its own seed")
    fleet.add_argument("--clones", type=int, default=0, help="of each node: the same values, other names")
    fleet.add_argument("--name", default="node", help="of the nodes, before their number (default: node)")
    fleet.add_argument("--cluster", default="simulated")
    fleet.add_argument(
        "--label",
        dest="labels",
        action="append",
        default=[],
        type=_label,
        metavar="NAME=VALUE",
        help="of all targets, instead of job, instance, node, cluster or beside them; empty: none",
    )
    fleet.add_argument(
        "--state-file",
        type=Path,
        metavar="FILE",
        help="the books of the first node at the end, for an exporter on this host to go on from",
    )
    fleet.add_argument("--scenario", type=Path, help="a file as in docs/simulator.md")
    fleet.add_argument("--gpus", type=int)
    fleet.add_argument("--model", choices=MODEL_NAMES)
    fleet.add_argument("--seed", type=int, help="of the first node")
    return parser


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _nodes(options: argparse.Namespace) -> list[Node]:
    scenario = _scenario(options)
    return [
        Node(
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
