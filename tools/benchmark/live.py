"""The cost of the live page: scrapes and memory without a page, with one, and with many."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tools.benchmark import proc
from tools.benchmark.contenders import OURS
from tools.benchmark.figures import number, percentile, table
from tools.benchmark.http_response import BadResponse
from tools.benchmark.rounds import Effort, Say, wait_until_settled
from tools.benchmark.running import Stage, running
from tools.benchmark.scrape import Scraper, scrape_series

PAGES = (0, 1, 50)
MIB = 1 << 20
_CLIENTS = Path(__file__).with_name("stream_clients.py")


@dataclass(frozen=True, slots=True)
class LiveCost:
    """The medians over the rounds."""

    pages: int
    p50_seconds: float
    p99_seconds: float
    cpu_percent: float
    """Of a core, without scrapes."""
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class LiveCosts:
    """With the page disabled, and with each number of open pages."""

    disabled: LiveCost
    open: Sequence[LiveCost]

    @property
    def p99_ratio(self) -> float:
        """With the most pages, relative to none."""
        return self.open[-1].p99_seconds / self.open[0].p99_seconds


def measure_live(stage: Stage, effort: Effort, say: Say) -> LiveCosts:
    disabled: list[LiveCost] = []
    opened: dict[int, list[LiveCost]] = {pages: [] for pages in PAGES}
    for round_ in range(1, effort.rounds + 1):
        say(f"the live page, {round_} of {effort.rounds}")
        off = replace(OURS, command=(*OURS.command, "--live-page", "false"))
        with running(off, stage, effort.fast_interval_seconds) as child:
            wait_until_settled(child, effort)
            disabled.append(_cost(child.pid, child.port, 0, effort))
        with running(OURS, stage, effort.fast_interval_seconds) as child:
            wait_until_settled(child, effort)
            for pages in PAGES:
                with stream_clients(child.port, pages):
                    opened[pages].append(_cost(child.pid, child.port, pages, effort))
    return LiveCosts(_middle(disabled), [_middle(opened[pages]) for pages in PAGES])


def _cost(pid: int, port: int, pages: int, effort: Effort) -> LiveCost:
    before, began = proc.cpu_seconds(pid), time.monotonic()
    time.sleep(effort.idle_seconds / 5)
    cpu = (proc.cpu_seconds(pid) - before) / (time.monotonic() - began)
    scraper = Scraper(port)
    series = scrape_series(scraper, least=effort.scrapes, least_seconds=effort.scrape_seconds)
    scraper.close()
    return LiveCost(
        pages=pages,
        p50_seconds=percentile(series.seconds, 50),
        p99_seconds=percentile(series.seconds, 99),
        cpu_percent=100 * cpu,
        resident_bytes=proc.resident_bytes(pid),
    )


@contextmanager
def stream_clients(port: int, count: int) -> Iterator[None]:
    """So many pages are open while the block runs. Raises BadResponse when one got no message."""
    if count == 0:
        yield
        return
    command = [sys.executable, str(_CLIENTS), str(port), str(count)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "connected\n":
                raise BadResponse("a stream got no message")
            yield
            process.stdin.close()
            messages = [int(word) for word in process.stdout.readline().split()]
            if len(messages) != count or min(messages) < 2:
                raise BadResponse(f"{count} streams got {messages} messages")
        finally:
            process.kill()


def _middle(costs: Sequence[LiveCost]) -> LiveCost:
    return LiveCost(
        pages=costs[0].pages,
        p50_seconds=median(one.p50_seconds for one in costs),
        p99_seconds=median(one.p99_seconds for one in costs),
        cpu_percent=median(one.cpu_percent for one in costs),
        resident_bytes=round(median(one.resident_bytes for one in costs)),
    )


def live_section(costs: LiveCosts | None) -> list[str]:
    if costs is None:
        return []
    rows = [("disabled", costs.disabled), *((f"{one.pages} open", one) for one in costs.open)]
    return [
        "## The live page",
        f"A sample every second, {PAGES[-1]} streams in another process. Scrape p99 with {PAGES[-1]} open "
        f"pages is {number(costs.p99_ratio)} times that without.",
        table(
            ["pages", "scrape p50, ms", "scrape p99, ms", "idle CPU, % of a core", "RSS, MiB"],
            [
                [
                    name,
                    number(one.p50_seconds * 1000),
                    number(one.p99_seconds * 1000),
                    number(one.cpu_percent),
                    number(one.resident_bytes / MIB),
                ]
                for name, one in rows
            ],
        ),
    ]
