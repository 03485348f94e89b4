"""The targets of our exporter, and whether a run met them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tools.benchmark import internals
from tools.benchmark.contenders import ALL_SMI, PLAIN, Role
from tools.benchmark.figures import last_step_growth
from tools.benchmark.fleet import GPUS as GPUS_OF_NODE
from tools.benchmark.fleet import FleetCost
from tools.benchmark.rounds import Effort, Result
from tools.benchmark.scaling import Point

PEER_P50_SHARE = 1 / 3
FLOOR_P50_MULTIPLE = 1.5
CPU_SECONDS_PER_THOUSAND = 0.5
FAST_IDLE_CPU_PERCENT = 1.0
SAMPLE_MILLISECONDS = 2.0
PROCESSES_MILLISECONDS = 20.0
START_MILLISECONDS = 200.0
RESIDENT_MIB = 22.0
LEDGER_WINDOW_MILLISECONDS = 1.0
PROFILES_MILLISECONDS = 20.0
FLEET_QUERY_SECONDS = 1.0
LINEAR_GROWTH = 1.5
"""The allowed cost of a unit in the last step as a multiple of earlier ones; noise alone is up to half of it.
"""
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TargetResult:
    """One target. `measured` and `limit` are None when the run did not measure it."""

    target: str
    measured: float | None
    limit: float | None
    unit: str
    limit_of: str = ""
    """The contender whose figure is the limit."""
    inclusive: bool = False

    @property
    def met(self) -> bool | None:
        if self.measured is None or self.limit is None:
            return None
        return self.measured <= self.limit if self.inclusive else self.measured < self.limit


def middle(result: Result, figure: str) -> float:
    """The median over the rounds of one figure of `Round`."""
    return median(float(getattr(one, figure)) for one in result.rounds)


def judge(
    results: Sequence[Result],
    by_gpus: Sequence[Point],
    by_processes: Sequence[Point],
    *,
    ledger_window_seconds: float | None = None,
    profiles_seconds: float | None = None,
    fleet: FleetCost | None = None,
) -> list[TargetResult]:
    """Every target with its verdict."""
    measured = [result for result in results if result.rounds]
    ours = next((result for result in measured if result.contender.role is Role.OURS), None)
    if ours is None:
        return _fleet(fleet) if fleet else []
    peers = [result for result in measured if result.contender.role is Role.PEER]
    floor = next((result for result in measured if result.contender.role is Role.FLOOR), None)
    plain = next((result for result in peers if result.contender.name == PLAIN.name), None)
    all_smi = next((result for result in peers if result.contender.name == ALL_SMI.name), None)
    p50_peer, p50_best = _best(peers, "p50_seconds")
    p99_peer, p99_best = _best(peers, "p99_seconds")
    return [
        TargetResult(
            "scrape p50: a third of the fastest peer's, or less",
            _milliseconds(middle(ours, "p50_seconds")),
            _milliseconds(p50_best, PEER_P50_SHARE),
            "ms",
            p50_peer,
            inclusive=True,
        ),
        TargetResult(
            f"scrape p50: within {FLOOR_P50_MULTIPLE:g} times that of static bytes",
            _milliseconds(middle(ours, "p50_seconds")),
            _milliseconds(middle(floor, "p50_seconds"), FLOOR_P50_MULTIPLE) if floor else None,
            "ms",
            floor.contender.name if floor else "",
            inclusive=True,
        ),
        TargetResult(
            "scrape p99: below the best peer's",
            _milliseconds(middle(ours, "p99_seconds")),
            _milliseconds(p99_best),
            "ms",
            p99_peer,
        ),
        TargetResult(
            "CPU per 1,000 scrapes",
            middle(ours, "cpu_seconds_per_thousand"),
            CPU_SECONDS_PER_THOUSAND,
            "s",
        ),
        TargetResult(
            "idle CPU, a sample every 5 s: at or below all-smi's",
            ours.idle_cpu_percent,
            all_smi.idle_cpu_percent if all_smi else None,
            "% of a core",
            ALL_SMI.name,
            inclusive=True,
        ),
        TargetResult(
            "idle CPU, a sample every 1 s", ours.fast_idle_cpu_percent, FAST_IDLE_CPU_PERCENT, "% of a core"
        ),
        TargetResult(
            "CPU per sample of 8 GPUs",
            _milliseconds(_sample_cpu_seconds(by_gpus, gpus=8)),
            SAMPLE_MILLISECONDS,
            "ms",
        ),
        TargetResult(
            "CPU per sample of 8 GPUs and 1,000 processes",
            _milliseconds(_sample_cpu_seconds(by_processes, processes=1000)),
            PROCESSES_MILLISECONDS,
            "ms",
        ),
        TargetResult(
            "start to the first scrape",
            _milliseconds(middle(ours, "start_seconds")),
            START_MILLISECONDS,
            "ms",
        ),
        TargetResult("resident memory", middle(ours, "resident_after_bytes") / MIB, RESIDENT_MIB, "MiB"),
        *(
            TargetResult(
                f"resident memory {when}: below the plain script's",
                middle(ours, figure) / MIB,
                middle(plain, figure) / MIB if plain else None,
                "MiB",
                PLAIN.name,
            )
            for when, figure in (("idle", "resident_idle_bytes"), ("after scrapes", "resident_after_bytes"))
        ),
        _growth("CPU per sample grows linearly with GPUs", by_gpus, "gpus"),
        _growth("CPU per sample grows linearly with processes", by_processes, "processes"),
        TargetResult(
            f"ledger: a window of 1 s, {internals.GPUS} GPUs and {internals.LEDGER_PROCESSES} processes",
            _milliseconds(ledger_window_seconds),
            LEDGER_WINDOW_MILLISECONDS,
            "ms",
        ),
        TargetResult(
            f"all profiles of --compat: {internals.GPUS} GPUs and {internals.RENDERED_PROCESSES} processes",
            _milliseconds(profiles_seconds),
            PROFILES_MILLISECONDS,
            "ms",
        ),
        *_fleet(fleet),
    ]


def _fleet(cost: FleetCost | None) -> list[TargetResult]:
    size = f"{cost.nodes if cost else Effort().fleet_nodes:,} nodes x {GPUS_OF_NODE} GPUs"
    return [
        TargetResult(
            f"Fleet dashboard, {size}: its slowest query",
            cost.slowest.seconds if cost else None,
            FLEET_QUERY_SECONDS,
            "s",
        )
    ]


def _best(peers: Sequence[Result], figure: str) -> tuple[str, float | None]:
    if not peers:
        return "", None
    best = min(peers, key=lambda peer: middle(peer, figure))
    return best.contender.name, middle(best, figure)


def _sample_cpu_seconds(points: Sequence[Point], **size: int) -> float | None:
    """Of the point with this number of GPUs or processes."""
    return next(
        (
            point.sample_cpu_seconds
            for point in points
            if all(getattr(point, unit) == count for unit, count in size.items())
        ),
        None,
    )


def _milliseconds(seconds: float | None, factor: float = 1.0) -> float | None:
    return None if seconds is None else seconds * factor * 1000


def _growth(target: str, points: Sequence[Point], unit: str) -> TargetResult:
    growth = None
    if len(points) > 2:
        growth = last_step_growth(
            [getattr(point, unit) for point in points], [point.scraped_cpu_seconds for point in points]
        )
    return TargetResult(
        target, growth, LINEAR_GROWTH, "times the cost per unit of the steps before", inclusive=True
    )
