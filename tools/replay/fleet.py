"""Nodes of simulated GPUs, played through the real exporter as fast as the machine can.

Reader, owners, collector, ledger and metrics are those of `gputally simulate`; only their clock is another.
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
from gputally.devices.host import read_boot_id
from gputally.ledger import Ledger
from gputally.ledger.state_file import encode
from gputally.metrics.compat import Options, ProfileInput, load_profile
from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.sampling import collect, guard, sources
from gputally.simulator import SimulatedReader
from gputally.simulator.engine import Engine
from gputally.simulator.owners import SimulatedOwners, SimulatedPods
from gputally.simulator.scenario import Scenario
from gputally.simulator.scenario_file import load_scenario, parse_scenario
from tools.replay.tape import Series, Tape

WINDOW_SECONDS = 3600
"""Nodes are loaded window by window: Prometheus takes no sample that is an hour older than its newest."""
WARM_UP_SECONDS = 60
"""Scrapes may be far apart, and the ledger tests an energy counter against power when it first meets it: it
does that in this time, with samples as close as usual."""
_INTERVAL_SECONDS = 5
PORT = 9400
_RETENTION_SECONDS = 300.0
_TIMEOUT_SECONDS = 60.0
"""A look takes no time by the simulated clock; by the real one it must end, even on a busy machine."""

# What the exporter and its scrapes cost, in a past in which nobody could measure it: about what is usual.
_SCRAPE_SECONDS = 0.004
_CPU_SECONDS_PER_SAMPLE = 0.01
_RESIDENT_MEMORY_BYTES = 40 * 1024**2
_OPEN_FDS = 12


@dataclass(frozen=True, slots=True)
class Period:
    """One scrape every `step` seconds from `first` to `last`, in seconds since 1970, both included."""

    first: float
    last: float
    step: float

    def __post_init__(self) -> None:
        if self.step <= 0 or self.last < self.first:
            raise ValueError(f"not a period: from {self.first} to {self.last} in steps of {self.step} s")

    def __len__(self) -> int:
        return int((self.last - self.first) / self.step + 1e-9) + 1

    def at(self, number: int) -> float:
        """The time of a scrape, from 0."""
        return self.first + number * self.step

    def times(self) -> Iterator[float]:
        return map(self.at, range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One exporter. Nodes whose scenarios have the same seed have the same GPUs: give each its own."""

    name: str
    scenario: Scenario | Path | str
    """A file, or the text of one."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the target: beside job, instance, node and cluster, or instead of them; an empty one is none."""
    down: tuple[tuple[float, float], ...] = ()
    """From when and until when (not included), in seconds since 1970, the exporter does not run. It goes on
    with its books, as one with a --state-file."""
    compat: tuple[str, ...] = ()
    """Profiles of --compat that it serves beside its own names."""
    pcie_throughput: bool = False
    clones: tuple[str, ...] = ()
    """Nodes that do the same, on GPUs and with pods of their own."""
    state_file: Path | None = None
    """The ledger at the end. An exporter on this host with this --state-file and the same --scenario-start
    continues every counter."""

    def is_down(self, at: float) -> bool:
        return any(first <= at < end for first, end in self.down)

    def target(self, *, job: str, cluster: str) -> dict[str, str]:
        usual = {"job": job, "instance": f"{self.name}:{PORT}", "node": self.name, "cluster": cluster}
        return {**usual, **self.labels}


class Clock:
    """Takes the place of the module `time` where the exporter asks what time it is."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    monotonic = time


def play(
    node: Node,
    period: Period,
    keep: Callable[[list[Series]], object],
    *,
    began_at: float | None = None,
    process_metrics: bool = False,
) -> None:
    """Hand over what is scraped of the node, in windows of an hour. Takes one sample for each scrape.

    The scenario began at `began_at`, or `WARM_UP_SECONDS` before the period: so long has the exporter been up
    when it is scraped first. Other exporters in this process would get the simulated time as well, so whoever
    is not alone in it plays in a process of its own.
    """
    clock = Clock(period.first)
    tape, window_end = Tape(_SCRAPE_SECONDS), period.first + WINDOW_SECONDS
    started_at: float | None = period.first - WARM_UP_SECONDS
    with _telling_time(clock):
        ledger = Ledger(
            retention_seconds=_RETENTION_SECONDS,
            max_window_seconds=max(60.0, 3 * period.step),
            process_accounts=process_metrics,
            boot_id=read_boot_id(Path("/proc")),
        )
        began_at = period.first - WARM_UP_SECONDS if began_at is None else began_at
        collector = _collector(node, ledger, clock, began_at)
        for seconds in range(WARM_UP_SECONDS, 0, -_INTERVAL_SECONDS):
            clock.now = period.first - seconds
            if clock.now >= began_at and not node.is_down(clock.now):
                collector.sample()
        for number, clock.now in enumerate(period.times()):
            if clock.now >= window_end:
                keep(tape.take())
                window_end += WINDOW_SECONDS
            at_ms = round(clock.now * 1000)
            if node.is_down(clock.now):
                started_at = None
                tape.miss(at_ms)
                continue
            started_at = clock.now if started_at is None else started_at
            facts = _exporter_facts(node.name, started_at, number * _CPU_SECONDS_PER_SAMPLE)
            snapshot = collector.sample()
            scene = ProfileInput(snapshot, Options(node.name))
            others = [family for profile in node.compat for family in load_profile(profile)(scene)]
            tape.scrape([*build_families(snapshot, facts), *others], at_ms)
        collector.close(_TIMEOUT_SECONDS)
    keep(tape.take())
    if node.state_file:
        node.state_file.write_bytes(encode(ledger.state()))


@contextmanager
def _telling_time(clock: Clock) -> Iterator[None]:
    with ExitStack() as patches:
        for module in (collect, guard, sources, owners):
            patches.enter_context(mock.patch.object(module, "time", clock))
        yield


def _collector(node: Node, ledger: Ledger, clock: Clock, began_at: float) -> collect.Collector:
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


def _exporter_facts(hostname: str, started_at: float, cpu_seconds: float) -> ExporterFacts:
    return ExporterFacts(
        version=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        hostname=hostname,
        cpu_seconds=cpu_seconds,
        resident_memory_bytes=_RESIDENT_MEMORY_BYTES,
        open_fds=_OPEN_FDS,
        start_time_seconds=started_at,
    )
