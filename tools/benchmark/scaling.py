"""The costs of our exporter with growing numbers of GPUs and processes."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tools.benchmark import proc
from tools.benchmark.contenders import OURS
from tools.benchmark.figures import percentile
from tools.benchmark.http_response import BadResponse
from tools.benchmark.rounds import Effort, Say, count_series
from tools.benchmark.running import Stage, running, set_stage
from tools.benchmark.scrape import Scraper, scrape_series

GPUS = (1, 2, 4, 8, 16)
PROCESSES = (0, 100, 500, 1000)
PROCESSES_ON_GPUS = 8
INTERVAL_SECONDS = 0.25
_DURATION = re.compile(rb'^gputally_source_duration_seconds\{[^}]*source="nvml"[^}]*\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Point:
    """The figures with a number of GPUs and processes."""

    gpus: int
    processes: int
    read_seconds: float
    """Duration of one sample of all GPUs: the median of several."""
    sample_cpu_seconds: float
    """CPU time of one sample without scrapes."""
    scraped_cpu_seconds: float
    """CPU time of one sample that is also rendered and served once."""
    series: int
    body_bytes: int
    resident_bytes: int
    p50_seconds: float


def measure_scaling(stage: Stage, effort: Effort, say: Say) -> tuple[list[Point], list[Point]]:
    """By number of GPUs without processes, and by number of processes on eight GPUs."""
    sizes = [(gpus, 0) for gpus in GPUS] + [(PROCESSES_ON_GPUS, count) for count in PROCESSES if count]
    measured: dict[tuple[int, int], list[Point]] = {size: [] for size in sizes}
    for number in range(1, effort.scaling_rounds + 1):
        for gpus, processes in sizes:
            say(f"scaling {number} of {effort.scaling_rounds}: {gpus} GPUs, {processes} processes")
            measured[gpus, processes].append(_point(gpus, processes, stage, effort))
    points = {size: least(rounds) for size, rounds in measured.items()}
    return (
        [points[gpus, 0] for gpus in GPUS],
        [points[PROCESSES_ON_GPUS, processes] for processes in PROCESSES],
    )


def least(points: Sequence[Point]) -> Point:
    """The minimum of each figure: noise only adds to a cost."""
    return replace(
        points[0],
        **{
            figure: min(getattr(point, figure) for point in points)
            for figure in (
                "read_seconds",
                "sample_cpu_seconds",
                "scraped_cpu_seconds",
                "resident_bytes",
                "p50_seconds",
            )
        },
    )


def _point(gpus: int, processes: int, stage: Stage, effort: Effort) -> Point:
    ours = replace(OURS, command=(*OURS.command, "--process-metrics"))
    played = set_stage(stage.directory, stage.library, gpus=gpus, processes=processes)
    with running(ours, played, INTERVAL_SECONDS) as child:
        scraper = Scraper(child.port)
        _watch(child.pid, scraper, 3)  # caches fill with the first samples
        scraped_cpu, durations = _watch(child.pid, scraper, effort.scaling_samples)
        resident = proc.resident_bytes(child.pid)
        _watch(child.pid, None, 2)  # a format without requests is no longer rendered
        sample_cpu, _ = _watch(child.pid, None, effort.scaling_samples)
        series = scrape_series(scraper, least=100, least_seconds=0.5)
        body = scraper.body()
        scraper.close()
    return Point(
        gpus=gpus,
        processes=processes,
        read_seconds=median(durations),
        sample_cpu_seconds=sample_cpu,
        scraped_cpu_seconds=scraped_cpu,
        series=count_series(body),
        body_bytes=len(body),
        resident_bytes=resident,
        p50_seconds=percentile(series.seconds, 50),
    )


def _watch(pid: int, scraper: Scraper | None, samples: int) -> tuple[float, list[float]]:
    """CPU time per sample over a number of samples, and the exporter's own durations."""
    durations: list[float] = []
    begin = time.monotonic()
    before = proc.cpu_seconds(pid)
    for number in range(1, samples + 1):
        if scraper is not None:
            scraper.scrape()
            durations.append(read_duration(scraper.body()))
        time.sleep(max(0.0, begin + number * INTERVAL_SECONDS - time.monotonic()))
    return (proc.cpu_seconds(pid) - before) / samples, durations


def read_duration(body: bytes) -> float:
    """The exporter's own duration of the last sample, in seconds."""
    found = _DURATION.search(body)
    if found is None:
        raise BadResponse("the exporter has no duration of the driver's source")
    return float(found[1])
