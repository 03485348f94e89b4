"""docs/performance.md: machine, method, figures and verdicts of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.benchmark.bounds import BoundCost, chart_limit_bytes
from tools.benchmark.contenders import Role
from tools.benchmark.figures import fit_line, number, range_of, ratio, spread, table
from tools.benchmark.fleet import GPUS, HOURS, MINUTES, PIXELS, FleetCost
from tools.benchmark.lint import Faults
from tools.benchmark.live import LiveCosts, live_section
from tools.benchmark.machine import MachineFacts
from tools.benchmark.method import NOT_MEASURED, WHERE_COSTS_GO, method
from tools.benchmark.price import Size, price_section
from tools.benchmark.rounds import Effort, Result
from tools.benchmark.rules import RulesCost
from tools.benchmark.rules_report import rules_section
from tools.benchmark.scaling import Point
from tools.benchmark.targets import MIB, TargetResult, middle

MEASURED_GPUS = 8
RULES = "rules"
"""The part that measures the rules, and the mark of its section."""
_SLOWEST = 10
_MET = {True: "met", False: "**not met**", None: "not measured"}


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """One whole run of the benchmark."""

    machine: MachineFacts
    command: str
    date: str
    seconds: float
    effort: Effort
    results: Sequence[Result]
    missing: Mapping[str, str]
    faults: Mapping[str, Faults]
    by_gpus: Sequence[Point]
    by_processes: Sequence[Point]
    verdicts: Sequence[TargetResult]
    fleet: FleetCost | None = None
    rules: RulesCost | None = None
    bounds: Sequence[BoundCost] = ()
    sets: Sequence[Size] = ()
    live: LiveCosts | None = None


def report(run: BenchmarkRun) -> str:
    parts = [
        "# Performance",
        _introduction(run),
        "## Targets",
        _verdicts(run.verdicts),
        *_exporters(run),
        *live_section(run.live),
        *bounds_section(run.bounds),
        *_fleet(run.fleet),
        *_rules(run),
        "## Where memory and CPU time go",
        WHERE_COSTS_GO,
        "## Method",
        method(run.effort),
        "## Not measured",
        NOT_MEASURED,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduction(run: BenchmarkRun) -> str:
    machine = run.machine
    return (
        f"Written by `{run.command}` on {run.date}, in {run.seconds / 60:.1f} minutes. "
        "Do not edit: run the command again.\n\n"
        f"- Machine: {machine.cores} cores of {machine.cpu}, {machine.memory_bytes / MIB / 1024:.0f} GiB, "
        f"Linux {machine.kernel}\n"
        f"- Python {machine.python} for everything written in Python\n"
        f"- GPUs: {MEASURED_GPUS} x H100, one training process on each, simulated by the driver stand-in "
        "(`tools/standin`), which every exporter loads as `libnvidia-ml.so.1`\n"
        f"- Load of the machine from other programs at the start of the run: {machine.load:.1f}"
    )


def _verdicts(verdicts: Sequence[TargetResult]) -> str:
    if not verdicts:
        return "GPUTally was not part of this run."
    rows = [
        [
            verdict.target,
            f"{number(verdict.measured)} {verdict.unit}" if verdict.measured is not None else "-",
            _limit(verdict),
            _MET[verdict.met],
        ]
        for verdict in verdicts
    ]
    met = sum(verdict.met is True for verdict in verdicts)
    return f"{met} of {len(verdicts)} met.\n\n" + table(["target", "measured", "limit", "verdict"], rows)


def _limit(verdict: TargetResult) -> str:
    if verdict.limit is None:
        return "-"
    sign = "<=" if verdict.inclusive else "<"
    source = f" ({verdict.limit_of})" if verdict.limit_of else ""
    unit = verdict.unit if len(verdict.unit) < 15 else ""
    return f"{sign} {number(verdict.limit)} {unit}".rstrip() + source


def _exporters(run: BenchmarkRun) -> list[str]:
    if not run.results and not run.missing:
        return []
    return [
        "## Side by side",
        _side_by_side(run),
        "### The same figures, as multiples of GPUTally",
        _ratios(run.results),
        *price_section(run.results, run.sets, MEASURED_GPUS),
        *_scaling(run),
        "## promtool on each scrape",
        _lint(run),
    ]


def _side_by_side(run: BenchmarkRun) -> str:
    effort = run.effort
    measured = [result for result in run.results if result.rounds]
    scrapes = table(
        [
            *("a scrape", "series", "kB", "p50 ms", "p99 ms", "CPU s per 1,000"),
            *(f"scrapes/s, {effort.clients} clients", "Prometheus headers: kB", "Prometheus headers: p50 ms"),
        ],
        [
            [
                result.contender.name,
                f"{result.series:,}",
                number(result.body_bytes / 1000),
                _figure(result, "p50_seconds", 1000),
                _figure(result, "p99_seconds", 1000),
                _figure(result, "cpu_seconds_per_thousand"),
                _figure(result, "rate_per_second"),
                number(result.prometheus_bytes / 1000) + (" gzip" if result.gzipped else ""),
                _figure(result, "prometheus_p50_seconds", 1000),
            ]
            for result in measured
        ],
    )
    keeping = table(
        [
            *("running", "RSS idle, MiB", f"RSS after {effort.scrapes:,} scrapes, MiB"),
            f"idle CPU %, sampling every {effort.interval_seconds} s",
            f"idle CPU %, every {effort.fast_interval_seconds} s",
            f"CPU %, sampled and scraped every {effort.interval_seconds} s",
            "start ms",
        ],
        [
            [
                result.contender.name,
                _figure(result, "resident_idle_bytes", 1 / MIB),
                _figure(result, "resident_after_bytes", 1 / MIB),
                number(result.idle_cpu_percent, 2),
                number(result.fast_idle_cpu_percent, 2),
                number(result.scraped_cpu_percent, 2),
                _figure(result, "start_seconds", 1000),
            ]
            for result in measured
        ],
    )
    notes = [f"- **{result.contender.name}**: {_note(result)}" for result in run.results]
    notes += [f"- **{name}** was not measured: {why}" for name, why in run.missing.items()]
    return "\n\n".join([scrapes, keeping, "\n".join(notes)])


def _figure(result: Result, name: str, scale: float = 1.0) -> str:
    return range_of(spread([float(getattr(one, name)) * scale for one in result.rounds]))


def _note(result: Result) -> str:
    if result.trouble:
        return f"{result.contender.what}; left out: {result.trouble}"
    closes = "; closes the connection after every scrape" if result.closes else ""
    sampling = "" if result.contender.samples_on_its_own else "; does not sample at an interval"
    return f"{result.contender.what}{closes}{sampling}; {result.scrapes:,} scrapes timed"


_RATIOS = (
    ("RSS idle", "resident_idle_bytes"),
    ("RSS after", "resident_after_bytes"),
    ("p50", "p50_seconds"),
    ("p99", "p99_seconds"),
    ("CPU per 1,000", "cpu_seconds_per_thousand"),
    ("start", "start_seconds"),
    ("scrapes/s", "rate_per_second"),
    ("p50, Prometheus headers", "prometheus_p50_seconds"),
)


def _ratios(results: Sequence[Result]) -> str:
    measured = [result for result in results if result.rounds]
    ours = next((result for result in measured if result.contender.role is Role.OURS), None)
    floor = next((result for result in measured if result.contender.role is Role.FLOOR), None)
    if ours is None:
        return "GPUTally was not part of this run."
    heads = ["exporter", *(name for name, _ in _RATIOS), "CPU per series scraped", "idle CPU, 5 s"]
    rows = [
        [
            result.contender.name,
            *(ratio(middle(result, figure), middle(ours, figure)) for _, figure in _RATIOS),
            ratio(_cpu_per_series(result), _cpu_per_series(ours)),
            ratio(result.idle_cpu_percent, ours.idle_cpu_percent),
        ]
        for result in measured
    ]
    text = table(heads, rows)
    if floor is not None:
        of_floor = ", ".join(
            f"{name} {ratio(middle(ours, figure), middle(floor, figure))}" for name, figure in _RATIOS
        )
        text += f"\n\nGPUTally as a multiple of the floor, {floor.contender.name}: {of_floor}."
    return text


def _cpu_per_series(result: Result) -> float:
    return middle(result, "cpu_seconds_per_thousand") / max(1, result.series)


def _scaling(run: BenchmarkRun) -> list[str]:
    if not run.by_gpus:
        return []
    return [
        "## Scaling with GPUs and processes",
        "GPUTally alone, with `--process-metrics`, without processes on the GPUs:",
        _points(run.by_gpus, "gpus", "GPUs"),
        _line(run.by_gpus, "gpus", "GPU"),
        "The same on eight GPUs, with processes on them:",
        _points(run.by_processes, "processes", "processes"),
        _line(run.by_processes, "processes", "process"),
    ]


def _points(points: Sequence[Point], unit: str, head: str) -> str:
    heads = [
        *(head, "read the driver once, ms", "CPU per sample, ms", "CPU per sample and scrape, ms"),
        *("series", "kB", "RSS, MiB", "scrape p50, ms"),
    ]
    rows = [
        [
            f"{getattr(point, unit):,}",
            number(point.read_seconds * 1000),
            number(point.sample_cpu_seconds * 1000),
            number(point.scraped_cpu_seconds * 1000),
            f"{point.series:,}",
            number(point.body_bytes / 1000),
            number(point.resident_bytes / MIB),
            number(point.p50_seconds * 1000),
        ]
        for point in points
    ]
    return table(heads, rows)


def _line(points: Sequence[Point], unit: str, one: str) -> str:
    units = [float(getattr(point, unit)) for point in points]
    read = fit_line(units, [point.sample_cpu_seconds * 1000 for point in points])
    served = fit_line(units, [point.scraped_cpu_seconds * 1000 for point in points])
    memory = fit_line(units, [point.resident_bytes / MIB for point in points])
    return (
        f"Linear fit: a sample costs {number(read.base)} ms of CPU and "
        f"{number(read.per_unit)} ms more per {one}; rendered and served once, {number(served.base)} ms and "
        f"{number(served.per_unit)} ms; memory is {number(memory.base)} MiB and "
        f"{number(memory.per_unit)} MiB more per {one}."
    )


def _lint(run: BenchmarkRun) -> str:
    if not run.faults:
        return "`promtool` was not available."
    rows = [
        [name, str(faults.count), faults.verdict, faults.first or "-"] for name, faults in run.faults.items()
    ]
    return table(["exporter", "faults", "verdict", "first fault"], rows)


def bounds_section(costs: Sequence[BoundCost]) -> list[str]:
    if not costs:
        return []
    limit = chart_limit_bytes()
    return [
        "## Memory at the bounds",
        "The highest resident memory of the exporter with as much of each input as it accepts, and with "
        f"twice as much, of which it leaves out the rest. The chart's limit is {number(limit / MIB)} MiB.",
        table(
            ["input", "bound", "MiB at the bound", "MiB at twice the bound", "below the limit"],
            [
                [
                    cost.name,
                    *(
                        ["not stated", "-", "-", "-"]
                        if cost.bound is None
                        else [
                            f"{cost.bound:,} {cost.unit}",
                            number(cost.peak_bytes / MIB),
                            number(cost.over_peak_bytes / MIB),
                            "yes" if max(cost.peak_bytes, cost.over_peak_bytes) < limit else "**no**",
                        ]
                    ),
                ]
                for cost in costs
            ],
        ),
    ]


def _rules(run: BenchmarkRun) -> list[str]:
    """Between marks: `--only rules` replaces this section alone."""
    return [f"<!-- {RULES} -->\n\n{rules_of(run)}\n\n<!-- /{RULES} -->"] if run.rules else []


def rules_of(run: BenchmarkRun) -> str:
    """The section about the rules, of a run that measured them."""
    assert run.rules is not None
    return rules_section(run.rules, run.command, run.date, run.machine.load)


def _fleet(cost: FleetCost | None) -> list[str]:
    if cost is None:
        return []
    slowest = sorted(cost.answers, key=lambda answer: answer.seconds, reverse=True)[:_SLOWEST]
    empty = f" Without results on this fleet: {'; '.join(cost.empty)}." if cost.empty else ""
    return [
        f"## The Fleet dashboard, {cost.nodes:,} nodes x {GPUS} GPUs in one Prometheus",
        f"Prometheus has all series of the last {MINUTES} minutes, {number(cost.samples / 1e6)} million "
        f"samples. Opened over {HOURS} hours on {PIXELS:,} pixels, with All for every variable, the "
        f"dashboard runs {len(cost.answers)} queries. The slowest takes "
        f"{number(cost.slowest.seconds * 1000)} ms, the median {number(cost.middle_seconds * 1000)} ms."
        f"{empty} The slowest {len(slowest)}:",
        table(
            ["query", "ms", "series or values in the result", "samples read"],
            [
                [answer.place, number(answer.seconds * 1000), f"{answer.results:,}", f"{answer.samples:,}"]
                for answer in slowest
            ],
        ),
    ]
