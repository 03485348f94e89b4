"""Runs the benchmark and writes docs/performance.md."""

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tools import ROOT, Failed
from tools.benchmark.bounds import measure_bounds
from tools.benchmark.contenders import NAMES, OURS, Contender, find_peers, floor
from tools.benchmark.fleet import measure_fleet
from tools.benchmark.http_response import BadResponse
from tools.benchmark.internals import measure_rendering, measure_window
from tools.benchmark.lint import Faults, promtool_faults
from tools.benchmark.live import measure_live
from tools.benchmark.machine import this_machine
from tools.benchmark.price import Size, measure_sets
from tools.benchmark.report import MEASURED_GPUS, RULES, BenchmarkRun, report, rules_of
from tools.benchmark.rounds import QUICK, Effort, Result, measure_idle, measure_rounds, wait_until_settled
from tools.benchmark.rules import measure_rules
from tools.benchmark.rules_report import judge_rules
from tools.benchmark.running import DidNotRun, Stage, running, set_stage
from tools.benchmark.scaling import Point, measure_scaling
from tools.benchmark.scrape import Scraper
from tools.benchmark.targets import TargetResult, judge
from tools.dependencies import programs
from tools.rendering.markdown import put_into
from tools.standin.build import build_library

DEFAULT_OUTPUT = ROOT / "docs" / "performance.md"
FLEET = "fleet"
"""The part that measures the Fleet dashboard instead of exporters."""
BOUNDS = "bounds"
"""The part that measures memory at the bounds of the inputs."""
LIVE = "live"
"""The part that measures the live page."""
_PARTS = (*NAMES, FLEET, RULES, BOUNDS, LIVE)


class Progress:
    """Prints progress, with the elapsed time, to standard error."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def __call__(self, text: str) -> None:
        print(f"bench {self.seconds:5.0f} s  {text}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    effort = Effort()
    arguments = argparse.ArgumentParser(
        prog="tools/bench",
        description="Compares the costs of GPUTally and other GPU exporters on the driver stand-in.",
    )
    arguments.add_argument("--rounds", type=int, metavar="N", help=f"rounds (default {effort.rounds})")
    arguments.add_argument(
        "--scrapes",
        type=int,
        metavar="N",
        help=f"scrapes to warm up; half as many are measured (default {effort.scrapes})",
    )
    arguments.add_argument(
        "--quick", action="store_true", help="one short round, as a test of the benchmark itself"
    )
    arguments.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=_PARTS,
        default=[],
        help=f"only these: {', '.join(_PARTS)}",
    )
    arguments.add_argument(
        "--no-scaling",
        action="store_true",
        help="skip the measurements with growing numbers of GPUs and processes",
    )
    arguments.add_argument(
        "--no-fleet", action="store_true", help="skip the dashboard and the rules on a large fleet"
    )
    arguments.add_argument(
        "--fleet-nodes",
        type=int,
        metavar="N",
        help=f"nodes of the large fleet (default {effort.fleet_nodes:,})",
    )
    arguments.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="FILE",
        help="path of the report (default docs/performance.md)",
    )
    arguments.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    effort = QUICK if options.quick else Effort()
    effort = replace(
        effort,
        rounds=options.rounds or effort.rounds,
        scrapes=options.scrapes or effort.scrapes,
        fleet_nodes=options.fleet_nodes or effort.fleet_nodes,
    )
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with tempfile.TemporaryDirectory(prefix="gputally-bench-") as directory:
            run = measure(
                Path(directory),
                effort,
                only=options.only,
                scaling=not options.no_scaling,
                fleet=not options.no_fleet,
                command=shlex.join(["tools/bench", *given]),
            )
    except (DidNotRun, BadResponse, Failed) as failure:
        print(f"tools/bench: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.only == [RULES] and options.output.exists():
        put_into(options.output, RULES, rules_of(run))
    else:
        # Errors of other exporters may contain paths.
        options.output.write_text(report(run).replace(str(Path.home()), "~"))
    print(f"{options.output} is written", file=sys.stderr)
    missed = [verdict for verdict in run.verdicts if verdict.met is False]
    _tell(run.verdicts)
    return 1 if options.check and missed else 0


def measure(
    directory: Path, effort: Effort, *, only: Collection[str], scaling: bool, fleet: bool, command: str
) -> BenchmarkRun:
    say = Progress()
    machine = this_machine()
    found = _Exporters()
    if not only or set(only) - {FLEET, RULES, BOUNDS, LIVE}:
        found = _measure_exporters(directory, effort, say, only=only, scaling=scaling)
    cost = (
        measure_fleet(directory, effort.fleet_nodes, say) if fleet and (not only or FLEET in only) else None
    )
    rules = (
        measure_rules(directory / RULES, effort.fleet_nodes, effort.rules_minutes, say)
        if fleet and (not only or RULES in only)
        else None
    )
    bounds = measure_bounds(directory, build_library(), say) if not only or BOUNDS in only else []
    live = None
    if not only or LIVE in only:
        stage = set_stage(directory, build_library(), gpus=MEASURED_GPUS, processes=None)
        live = measure_live(stage, effort, say)
    return BenchmarkRun(
        machine=machine,
        command=command,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=say.seconds,
        effort=effort,
        results=found.results,
        missing=found.missing,
        faults=_faults(found.results),
        by_gpus=found.by_gpus,
        by_processes=found.by_processes,
        verdicts=[
            *judge(
                found.results,
                found.by_gpus,
                found.by_processes,
                ledger_window_seconds=measure_window(),
                profiles_seconds=measure_rendering(),
                fleet=cost,
            ),
            *(judge_rules(rules) if rules else ()),
        ],
        fleet=cost,
        rules=rules,
        bounds=bounds,
        sets=found.sets,
        live=live,
    )


@dataclass(frozen=True, slots=True)
class _Exporters:
    results: Sequence[Result] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    by_gpus: Sequence[Point] = ()
    by_processes: Sequence[Point] = ()
    sets: Sequence[Size] = ()


def _measure_exporters(
    directory: Path, effort: Effort, say: Progress, *, only: Collection[str], scaling: bool
) -> _Exporters:
    say("building the stand-in and finding the exporters")
    stage = set_stage(directory, build_library(), gpus=MEASURED_GPUS, processes=None)
    peers, missing = find_peers(only)
    wanted: list[Contender] = []
    if not only or OURS.name in only:
        wanted.append(OURS)
    body = directory / "body"
    if not only or "static-bytes" in only:
        say("storing a response of GPUTally for the static server")
        body.write_bytes(_our_answer(stage, effort))
        wanted.append(floor(body))
    results = measure_rounds([*wanted, *peers], stage, effort, say)
    measure_idle(results, stage, effort, say)
    by_gpus, by_processes = measure_scaling(stage, effort, say) if scaling and OURS in wanted else ([], [])
    sets = measure_sets(stage, effort, say) if OURS in wanted else []
    return _Exporters(results, missing, by_gpus, by_processes, sets)


def _our_answer(stage: Stage, effort: Effort) -> bytes:
    with running(OURS, stage, effort.interval_seconds) as child:
        wait_until_settled(child, effort)
        scraper = Scraper(child.port)
        scraper.scrape()
        scraper.close()
        return scraper.body()


def _faults(results: Sequence[Result]) -> dict[str, Faults]:
    promtool = programs.find("promtool")
    if promtool is None:
        return {}
    return {
        result.contender.name: promtool_faults(promtool, result.body) for result in results if result.body
    }


def _tell(verdicts: Sequence[TargetResult]) -> None:
    for verdict in verdicts:
        word = {True: "met    ", False: "NOT MET", None: "unknown"}[verdict.met]
        shown = [f"{value:.3g}" if value is not None else "-" for value in (verdict.measured, verdict.limit)]
        print(f"{word}  {verdict.target}: {shown[0]} against {shown[1]} {verdict.unit}")


if __name__ == "__main__":  # the nodes of the fleet are played in processes that import this module
    sys.exit(main())
