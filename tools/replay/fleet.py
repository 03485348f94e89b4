"""Runs nodes with simulated GPUs through the real exporter, faster than real time.

Reader, owners, collector, ledger and metrics are those of `gputally simulate`, with another clock.
"""

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from gputally import __version__
from gputally.attribution import owners
from gputally.declarations import FULL
from gputally.devices.host import read_boot_id
from gputally.ledger import Ledger
from gputally.metrics.compat import Options, ProfileInput, load_profile
from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts, MachineFacts
from gputally.metrics.sets import choose
from gputally.sampling import collect, guard, sources
from gputally.sampling.checkpoint import Checkpoint
from gputally.simulator import SimulatedReader
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Scenario
from gputally.simulator.scenario_file import load_scenario, parse_scenario
from gputally.simulator.scenario_owners import SimulatedOwners, SimulatedPods
from tools.replay.tape import EncodedSeries, Tape

WINDOW_SECONDS = 3600
"""Nodes are loaded window by window: Prometheus rejects samples an hour older than its newest."""
WARM_UP_SECONDS = 60
"""The ledger tests an energy counter against power when it is first read. It does so in this time, with
samples at the usual distance, because scrapes may be far apart.
"""
_INTERVAL_SECONDS = 5
PORT = 9400
_RETENTION_SECONDS = 300.0
_TIMEOUT_SECONDS = 60.0
"""Sampling takes no time by the simulated clock; this is its limit by the real clock."""

# The costs of an exporter and its scrapes cannot be measured for the past: these are usual values.
_SCRAPE_SECONDS = 0.004
_CPU_SECONDS_PER_SAMPLE = 0.01
_RESIDENT_MEMORY_BYTES = 40 * 1024**2
_OPEN_FDS = 12


@dataclass(frozen=True, slots=True)
class Period:
    """Scrapes every `step` seconds from `first` to `last`, in seconds since 1970, both included."""

    first: float
    last: float
    step: float

    def __post_init__(self) -> None:
        if self.step <= 0 or self.last < self.first:
            raise ValueError(f"not a period: from {self.first} to {self.last} in steps of {self.step} s")

    def __len__(self) -> int:
        return int((self.last - self.first) / self.step + 1e-9) + 1

    def at(self, number: int) -> float:
        """The time of the scrape with this number; the first is 0."""
        return self.first + number * self.step

    def times(self) -> Iterator[float]:
        return map(self.at, range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """One exporter. Nodes with the same seed have the same GPUs: each node needs its own seed."""

    name: str
    scenario: Scenario | Path | str
    """The path of a scenario file, or its text."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the target, added to or replacing job, instance, node and cluster; an empty value removes
    one.
    """
    down: tuple[tuple[float, float], ...] = ()
    """Periods without the exporter (start included, end excluded), in seconds since 1970. Its ledger
    continues, as with --state-file.
    """
    compat: tuple[str, ...] = ()
    """Profiles of --compat that it serves too."""
    pcie_throughput: bool = False
    metrics: str = FULL
    """The set of metrics that it serves, as --metrics."""
    clones: tuple[str, ...] = ()
    """Nodes with the same values, on GPUs and with pods of their own."""
    state_file: Path | None = None
    """The ledger at the end. An exporter on this host with this --state-file and the same --scenario-start
    continues every counter."""

    def is_down(self, at: float) -> bool:
        return any(first <= at < end for first, end in self.down)

    def target(self, *, job: str, cluster: str) -> dict[str, str]:
        usual = {"job": job, "instance": f"{self.name}:{PORT}", "node": self.name, "cluster": cluster}
        return {**usual, **self.labels}


class Clock:
    """Replaces the module `time` in the exporter."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    monotonic = time


def play(
    node: GpuNode,
    period: Period,
    keep: Callable[[list[EncodedSeries]], object],
    *,
    began_at: float | None = None,
    process_metrics: bool = False,
    window_seconds: float = WINDOW_SECONDS,
) -> None:
    """Calls `keep` with what is scraped from the node, in windows; one sample per scrape.

    The scenario, and the exporter, began at `began_at` or `WARM_UP_SECONDS` before the period. All exporters
    of this process get the simulated time: a node must be alone in its process.
    """
    clock = Clock(period.first)
    tape, window_end = Tape(_SCRAPE_SECONDS), period.first + window_seconds
    chosen = choose(node.metrics)
    started_at: float | None = period.first - WARM_UP_SECONDS
    with telling_time(clock):
        ledger = Ledger(
            retention_seconds=_RETENTION_SECONDS,
            max_window_seconds=max(60.0, 3 * period.step),
            process_accounts=process_metrics,
            boot_id=read_boot_id(Path("/proc")),
        )
        began_at = period.first - WARM_UP_SECONDS if began_at is None else began_at
        collector = collector_of(node, ledger, clock, began_at)
        for seconds in range(WARM_UP_SECONDS, 0, -_INTERVAL_SECONDS):
            clock.now = period.first - seconds
            if clock.now >= began_at and not node.is_down(clock.now):
                collector.sample()
        for number, clock.now in enumerate(period.times()):
            if clock.now >= window_end:
                keep(tape.take())
                window_end += window_seconds
            at_ms = round(clock.now * 1000)
            if node.is_down(clock.now):
                started_at = None
                tape.miss(at_ms)
                continue
            started_at = clock.now if started_at is None else started_at
            facts = _exporter_facts(node.name, began_at, started_at, number * _CPU_SECONDS_PER_SAMPLE)
            snapshot = collector.sample()
            scene = ProfileInput(snapshot, Options(node.name))
            others = [family for profile in node.compat for family in load_profile(profile)(scene)]
            tape.scrape([*build_families(snapshot, facts, chosen), *others], at_ms)
        collector.close(_TIMEOUT_SECONDS)
    keep(tape.take())
    if node.state_file:
        checkpoint = Checkpoint(node.state_file, boot_id=read_boot_id(Path("/proc")), valid_seconds=0)
        checkpoint.write(ledger.state(), _TIMEOUT_SECONDS)
        checkpoint.close(_TIMEOUT_SECONDS)


@contextmanager
def telling_time(clock: Clock) -> Iterator[None]:
    with ExitStack() as patches:
        for module in (collect, guard, sources, owners):
            patches.enter_context(mock.patch.object(module, "time", clock))
        yield


def collector_of(node: GpuNode, ledger: Ledger, clock: Clock, began_at: float) -> collect.Collector:
    engine = Engine(_scenario(node.scenario), pcie_throughput=node.pcie_throughput)
    reader = SimulatedReader(engine, clock.time, began_at=began_at)
    return collect.Collector(
        [sources.GuardedReaders([reader])],
        timeout_seconds=_TIMEOUT_SECONDS,
        max_age_seconds=_TIMEOUT_SECONDS,
        ledger=ledger,
        owners=SimulatedOwners(reader),
        pod_sources=[sources.GuardedPodSource(SimulatedPods(reader))],
    )


def _scenario(given: Scenario | Path | str) -> Scenario:
    if isinstance(given, Path):
        return load_scenario(given)
    return parse_scenario(tomllib.loads(given)) if isinstance(given, str) else given


def _exporter_facts(hostname: str, booted_at: float, started_at: float, cpu_seconds: float) -> ExporterFacts:
    return ExporterFacts(
        version=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        hostname=hostname,
        cpu_seconds=cpu_seconds,
        resident_memory_bytes=_RESIDENT_MEMORY_BYTES,
        open_fds=_OPEN_FDS,
        start_time_seconds=started_at,
        machine=MachineFacts(boot_time_seconds=booted_at),
    )
