"""The comparison: every contender in turn, in several rounds, so that noise affects all alike.

Each exporter is started anew and runs alone. Only idle costs are measured with all exporters at the same
time.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from tools.benchmark import proc
from tools.benchmark.contenders import Contender, Role
from tools.benchmark.figures import percentile
from tools.benchmark.http_response import BadResponse
from tools.benchmark.running import DidNotRun, RunningExporter, Stage, running
from tools.benchmark.scrape import Scraper, scrape_rate, scrape_series

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """The extent of the measurements."""

    rounds: int = 4
    scrapes: int = 1000
    """Scrapes to warm up; at least half as many are measured."""
    scrape_seconds: float = 3.0
    """Minimum duration of a series of scrapes: a fast exporter serves a thousand in a tenth of a second."""
    prometheus_scrapes: int = 100
    prometheus_seconds: float = 1.0
    clients: int = 16
    clients_seconds: float = 1.5
    interval_seconds: int = 5
    fast_interval_seconds: int = 1
    settle_seconds: float = 1.0
    idle_seconds: float = 25.0
    """A multiple of the interval, so that every exporter has the same number of samples."""
    scaling_rounds: int = 2
    scaling_samples: int = 10
    fleet_nodes: int = 1000
    rules_minutes: float = 6.0
    """Groups with an interval of five minutes are evaluated once."""


QUICK = Effort(
    rounds=1,
    scrapes=100,
    scrape_seconds=0.5,
    prometheus_scrapes=20,
    prometheus_seconds=0.3,
    clients_seconds=0.5,
    settle_seconds=0.5,
    idle_seconds=5.0,
    scaling_rounds=1,
    scaling_samples=4,
    fleet_nodes=8,
    rules_minutes=2.0,
)


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one contender in one round."""

    start_seconds: float
    resident_idle_bytes: int
    resident_after_bytes: int
    p50_seconds: float
    p99_seconds: float
    cpu_seconds_per_thousand: float
    prometheus_p50_seconds: float
    rate_per_second: float


@dataclass(slots=True)
class Result:
    """All figures of one contender."""

    contender: Contender
    rounds: list[Round] = field(default_factory=list)
    scrapes: int = 0
    series: int = 0
    body_bytes: int = 0
    prometheus_bytes: int = 0
    gzipped: bool = False
    closes: bool = False
    idle_cpu_percent: float | None = None
    fast_idle_cpu_percent: float | None = None
    scraped_cpu_percent: float | None = None
    body: bytes = b""
    trouble: str = ""
    """The reason for missing figures."""


def measure_rounds(contenders: Sequence[Contender], stage: Stage, effort: Effort, say: Say) -> list[Result]:
    """Runs all rounds. An exporter that fails is left out from then on; raises DidNotRun if it is ours."""
    results = [Result(contender) for contender in contenders]
    for number in range(effort.rounds + 1):
        for result in results:
            if result.trouble:
                continue
            name = result.contender.name
            say(f"round {number} of {effort.rounds}: {name}" if number else f"first start: {name}")
            try:
                with running(result.contender, stage, effort.interval_seconds) as child:
                    if number:
                        result.rounds.append(_one_round(child, result, effort))
            except (DidNotRun, BadResponse, OSError) as failure:
                if result.contender.role is not Role.PEER:
                    raise DidNotRun(f"{name}: {failure}") from failure
                result.trouble = str(failure)
                say(f"{name} is left out: {failure}")
    return results


def _one_round(child: RunningExporter, result: Result, effort: Effort) -> Round:
    wait_until_settled(child, effort)
    resident_idle = proc.resident_bytes(child.pid)
    scraper = Scraper(child.port)
    first = scrape_series(scraper, least=effort.scrapes, least_seconds=0)
    resident_after = proc.resident_bytes(child.pid)
    cpu_before = proc.cpu_seconds(child.pid)
    series = scrape_series(scraper, least=effort.scrapes // 2, least_seconds=effort.scrape_seconds)
    cpu = proc.cpu_seconds(child.pid) - cpu_before
    if not result.body:
        result.body = scraper.body()
        result.series = count_series(result.body)
        result.body_bytes = series.body_bytes
        result.closes = series.closes
    scraper.close()
    prometheus = Scraper(child.port, like_prometheus=True)
    asked = scrape_series(
        prometheus, least=effort.prometheus_scrapes, least_seconds=effort.prometheus_seconds
    )
    prometheus.close()
    result.gzipped, result.prometheus_bytes = asked.gzipped, asked.body_bytes
    result.scrapes += len(first.seconds) + len(series.seconds)
    return Round(
        start_seconds=child.start_seconds,
        resident_idle_bytes=resident_idle,
        resident_after_bytes=resident_after,
        p50_seconds=percentile(series.seconds, 50),
        p99_seconds=percentile(series.seconds, 99),
        cpu_seconds_per_thousand=cpu / len(series.seconds) * 1000,
        prometheus_p50_seconds=percentile(asked.seconds, 50),
        rate_per_second=scrape_rate(child.port, clients=effort.clients, seconds=effort.clients_seconds),
    )


def wait_until_settled(child: RunningExporter, effort: Effort) -> None:
    """Waits until work of the start-up is done; some values need a second sample."""
    time.sleep(effort.settle_seconds)
    if child.contender.samples_on_its_own:
        time.sleep(effort.interval_seconds)


def measure_idle(results: Sequence[Result], stage: Stage, effort: Effort, say: Say) -> None:
    """CPU use without scrapes and with those of one Prometheus; all exporters at once."""
    runners = [result for result in results if not result.trouble]
    say(f"idle for {effort.idle_seconds:g} s, with a sample every {effort.interval_seconds} s")
    for result, percent in _idle(runners, stage, effort, effort.interval_seconds, scraped=False):
        result.idle_cpu_percent = percent
    say(f"scraped every {effort.interval_seconds} s for {effort.idle_seconds:g} s")
    for result, percent in _idle(runners, stage, effort, effort.interval_seconds, scraped=True):
        result.scraped_cpu_percent = percent
    say(f"idle for {effort.idle_seconds:g} s, with a sample every {effort.fast_interval_seconds} s")
    samplers = [result for result in runners if result.contender.samples_on_its_own]
    for result, percent in _idle(samplers, stage, effort, effort.fast_interval_seconds, scraped=False):
        result.fast_idle_cpu_percent = percent


def _idle(
    results: Sequence[Result], stage: Stage, effort: Effort, interval_seconds: int, *, scraped: bool
) -> list[tuple[Result, float]]:
    """CPU use of each in percent of a core; exporters that fail are left out."""
    with ExitStack() as stack:
        started: list[tuple[Result, RunningExporter, Scraper]] = []
        for result in results:
            with suppress(DidNotRun):
                child = stack.enter_context(running(result.contender, stage, interval_seconds))
                scraper = Scraper(child.port, like_prometheus=True)
                stack.callback(scraper.close)
                started.append((result, child, scraper))
        time.sleep(effort.settle_seconds)
        before = [proc.cpu_seconds(child.pid) for _, child, _ in started]
        begin = time.monotonic()
        while (left := begin + effort.idle_seconds - time.monotonic()) > 0.1:
            for _, _, scraper in started if scraped else ():
                scraper.scrape()
            time.sleep(min(left, effort.interval_seconds))
        elapsed = time.monotonic() - begin
        return [
            (result, 100 * (proc.cpu_seconds(child.pid) - used) / elapsed)
            for (result, child, _), used in zip(started, before, strict=True)
        ]


def count_series(body: bytes) -> int:
    """Sample lines of a text exposition."""
    return sum(1 for line in body.splitlines() if line.strip() and not line.startswith(b"#"))
