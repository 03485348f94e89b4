"""The series of each exporter and of each of our sets of metrics, and the price of their samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gputally.metrics.sets import SETS
from tools.benchmark.contenders import OURS, Role
from tools.benchmark.figures import number, table
from tools.benchmark.rounds import Effort, Result, Say, count_series, wait_until_settled
from tools.benchmark.running import Stage, running
from tools.benchmark.scrape import Scraper

DOLLARS_PER_MILLION_SAMPLES = 0.06
"""Google Cloud Managed Service for Prometheus, the first 50 billion samples of a month."""
PRICE_SOURCE = "https://cloud.google.com/stackdriver/pricing"
INTERVALS_SECONDS = (15, 30)
_MONTH_SECONDS = 30 * 86400


@dataclass(frozen=True, slots=True)
class Size:
    """One scrape of a node."""

    name: str
    series: int
    body_bytes: int
    prometheus_bytes: int
    """As Prometheus requests it: compressed where the exporter can."""


def measure_sets(stage: Stage, effort: Effort, say: Say) -> list[Size]:
    """Our exporter with each set of metrics."""
    sizes = []
    for name in SETS:
        say(f"the set {name}")
        ours = replace(OURS, command=(*OURS.command, "--metrics", name))
        with running(ours, stage, effort.fast_interval_seconds) as child:
            wait_until_settled(child, effort)
            body, _ = _scrape(Scraper(child.port))
            _, compressed = _scrape(Scraper(child.port, like_prometheus=True))
            sizes.append(Size(f"{OURS.name}, {name}", count_series(body), len(body), compressed))
    return sizes


def _scrape(scraper: Scraper) -> tuple[bytes, int]:
    """The response, and the bytes that were sent for it."""
    scraper.scrape()
    scraper.close()
    return scraper.body(), scraper.body_size


def size_of(result: Result) -> Size:
    return Size(result.contender.name, result.series, result.body_bytes, result.prometheus_bytes)


def dollars_per_month(series: int, interval_seconds: int) -> float:
    return series * _MONTH_SECONDS / interval_seconds / 1e6 * DOLLARS_PER_MILLION_SAMPLES


def price_section(results: Sequence[Result], sets: Sequence[Size], gpus: int) -> list[str]:
    """The sets in place of our exporter's default, where they were measured."""
    others = [one for one in results if one.rounds and one.contender.role is Role.PEER]
    ours = [one for one in results if one.rounds and one.contender.role is Role.OURS]
    sizes = [*(sets or map(size_of, ours)), *map(size_of, others)]
    if not sizes:
        return []
    return [
        "## Series and their price",
        f"A node with {gpus} GPUs for 30 days, at {DOLLARS_PER_MILLION_SAMPLES:.2f} USD per million samples: "
        "the list price of Google Cloud Managed Service for Prometheus for the first 50 billion samples of a "
        f"month ({PRICE_SOURCE}). GPUTally's default set is `standard`.",
        table(
            [
                *("exporter", "series", "series per GPU", "kB per scrape", "kB, Prometheus headers"),
                *(f"USD per month, every {seconds} s" for seconds in INTERVALS_SECONDS),
            ],
            [
                [
                    size.name,
                    f"{size.series:,}",
                    number(size.series / gpus),
                    number(size.body_bytes / 1000),
                    number(size.prometheus_bytes / 1000),
                    *(f"{dollars_per_month(size.series, seconds):.2f}" for seconds in INTERVALS_SECONDS),
                ]
                for size in sizes
            ],
        ),
    ]
