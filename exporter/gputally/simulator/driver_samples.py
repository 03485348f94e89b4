"""The utilisation samples of processes, as NVIDIA's driver takes them.

The resource manager keeps 72 samples, about six a second. Each has the busy share of the engine in that time,
and the one process that was active when the sample was taken (NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE in
ctrl2080perf.h of open-gpu-kernel-modules). NVML returns one mean per process over all samples since the last
call, in whole percent (nvtop#110). The work of MPS clients counts for their server (dcgm-exporter#388).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from gputally.model import ProcessSample
from gputally.simulator.physics import GpuPhysics
from gputally.simulator.workload_processes import WorkloadProcesses, deal, memory_percent, video_percent

SAMPLES_PER_SECOND = 6
RING_SECONDS = 72 // SAMPLES_PER_SECOND


@dataclass(slots=True)
class _Load:
    """One process in one second, in percent."""

    pid: int
    sm: int = 0
    memory: int = 0
    encoder: int = 0
    decoder: int = 0


@dataclass(slots=True)
class _Won:
    """The samples that one process was given, in percent."""

    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    last_us: int = 0

    def add(self, at_us: int, values: Iterable[int]) -> None:
        self.last_us = at_us
        self.sums = [total + value for total, value in zip(self.sums, values, strict=True)]

    def mean(self, pid: int, samples: int, covers_us: int) -> ProcessSample:
        sm, memory, encoder, decoder = (round(total / samples) / 100 for total in self.sums)
        return ProcessSample(pid, self.last_us, sm, memory, encoder, decoder, covers_us)


def samples_between(
    places: Iterable[WorkloadProcesses],
    physics: GpuPhysics,
    since: int,
    until: int,
    epoch_us: int,
    *,
    long_turns: bool = False,
) -> tuple[ProcessSample, ...]:
    """One sample per process that ran in the seconds from `since` up to `until`, over all of that time.

    Processes that share the GPU take turns of milliseconds, so that each sample has work of all of them. With
    `long_turns` each sample has the work of one process.
    """
    places = list(places)
    first = max(since, until - RING_SECONDS, 0)
    won: dict[int, _Won] = {}
    for second in range(first, until):
        loads = _loads(places, physics, second)
        if not loads:
            continue
        if len(loads) == 1:
            for pid, load in loads.items():
                values = [SAMPLES_PER_SECOND * value for value in _values(load)]
                won.setdefault(pid, _Won()).add(epoch_us + (second + 1) * 1_000_000, values)
            continue
        rng = Random(f"{places[0].resident.key}:{second}")  # noqa: S311  # repeatable, not a secret
        for number in range(1, SAMPLES_PER_SECOND + 1):
            at_us = epoch_us + second * 1_000_000 + number * 1_000_000 // SAMPLES_PER_SECOND
            for pid, values in _one_sample(rng, loads, long_turns=long_turns):
                won.setdefault(pid, _Won()).add(at_us, values)
    taken = SAMPLES_PER_SECOND * (until - first)
    return tuple(one.mean(pid, taken, (until - since) * 1_000_000) for pid, one in sorted(won.items()))


def _loads(places: Iterable[WorkloadProcesses], physics: GpuPhysics, second: int) -> Mapping[int, _Load]:
    loads: dict[int, _Load] = {}
    for place in places:
        if not place.present(second):
            continue
        workload = place.resident.workload
        (share,) = physics.shares(place.resident.number, second, second + 1)
        if not share:
            continue
        pids = place.pids(workload.span.run(second))
        for own_pid, part in zip(pids, deal(share, workload.count), strict=True):
            pid = place.mps_server_pid if workload.kind == "mps" else own_pid
            load = loads.setdefault(pid, _Load(pid))
            load.sm += part
            load.memory += memory_percent(workload, part)
            if workload.video:
                decoder, encoder = video_percent(part)
                load.decoder += decoder
                load.encoder += encoder
    return loads


def _values(load: _Load) -> list[int]:
    return [load.sm, load.memory, load.encoder, load.decoder]


def _one_sample(
    rng: Random, loads: Mapping[int, _Load], *, long_turns: bool
) -> Iterator[tuple[int, list[int]]]:
    """The values of one sample: SM and memory go to one process, video engines have one process each."""
    total = sum(load.sm for load in loads.values())
    draw = rng.random() * (100 if long_turns else total)
    for load in loads.values():
        if load.encoder or load.decoder:
            yield load.pid, [0, 0, load.encoder, load.decoder]
        if 0 <= draw < load.sm:
            if long_turns:
                yield load.pid, [100, 100 * load.memory // load.sm, 0, 0]
            else:
                yield load.pid, [total, sum(each.memory for each in loads.values()), 0, 0]
        draw -= load.sm
