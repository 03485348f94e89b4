"""Workload shapes: the load of each on a GPU, second by second, and its activity profile.

A workload's load in one minute is a pure function of the seed, the workload, the GPU and the minute of
the day: it does not depend on earlier calls, and repeats daily.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gputally.simulator.scenario import Memory, Shape, Workload

MINUTE = 60
HOUR = 3600
MINUTES_PER_DAY = 1440

LOADING_SECONDS = 20
CHECKPOINT_EVERY = 600
CHECKPOINT_FROM = 570
CHECKPOINT_UNTIL = 590
HANGS_AFTER = 60
WARM_UP = 120
"""Seconds after which a workload depends on the time of day only, not on its age."""

CONTEXT_PERMILLE = 15
"""A process with memory alone keeps the GPU from its deepest idle state."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The activity profile of a shape while it is busy; ratios of its SM time."""

    process: str
    memory: Memory
    memory_steps: tuple[tuple[int, int], ...]
    """(age in seconds, percent of its memory from then on)."""
    memory_copy: float = 0.0
    sm_active: float = 0.0
    sm_occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    fp64: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    links: bool = False
    """It communicates with the other GPUs of its job."""


_TRAINING = Traits(
    process="python3.11",
    memory=Memory(percent=82),
    memory_steps=((0, 10), (5, 45), (LOADING_SECONDS, 100)),
    memory_copy=0.48,
    sm_active=0.86,
    sm_occupancy=0.41,
    tensor=0.47,
    dram=0.44,
    fp64=0.001,
    fp32=0.12,
    fp16=0.09,
    links=True,
)

TRAITS: dict[Shape, Traits] = {
    Shape.TRAINING: _TRAINING,
    Shape.INFERENCE: Traits(
        process="tritonserver",
        memory=Memory(percent=56),
        memory_steps=((0, 5), (8, 100)),
        memory_copy=0.62,
        sm_active=0.58,
        sm_occupancy=0.22,
        tensor=0.21,
        dram=0.55,
        fp32=0.06,
        fp16=0.11,
    ),
    Shape.NOTEBOOK: Traits(
        process="ipykernel",
        memory=Memory(percent=24),
        memory_steps=((0, 20), (300, 45), (900, 70), (1800, 100)),
        memory_copy=0.2,
        sm_active=0.5,
        sm_occupancy=0.25,
        tensor=0.1,
        dram=0.2,
        fp32=0.2,
    ),
    Shape.UNREQUESTED: Traits(
        process="transcode-worker",
        memory=Memory(percent=9),
        memory_steps=((0, 30), (3, 100)),
        memory_copy=0.35,
        sm_active=0.62,
        sm_occupancy=0.3,
        tensor=0.05,
        dram=0.3,
        fp32=0.28,
    ),
    # A kernel that waits for an unresponsive peer: resident, but without progress.
    Shape.HANG: Traits(
        process=_TRAINING.process,
        memory=Memory(percent=78),
        memory_steps=_TRAINING.memory_steps,
        memory_copy=0.0,
        sm_active=0.05,
        sm_occupancy=0.01,
    ),
    Shape.IDLE: Traits(process="", memory=Memory(percent=0), memory_steps=((0, 0),)),
}


@dataclass(frozen=True, slots=True)
class MinuteLoad:
    """One workload on one GPU in one minute, alone: 60 values each."""

    utilization: list[int]
    """SM time in percent."""
    intensity: list[int]
    """Its draw, in thousandths of the range from idle to the maximum of the GPU."""


def minute_load(workload: Workload, key: str, minute: int) -> MinuteLoad | None:
    """The load of that minute; None when the workload is absent. `key` names seed, workload, GPU."""
    first = minute * MINUTE
    span = workload.span
    if workload.shape is Shape.IDLE or not span.touches(first, first + MINUTE):
        return None
    seconds = range(first, first + MINUTE)
    whole = span.overlap(first + MINUTE) - span.overlap(first) == MINUTE
    began = span.began(first) if whole and span.began(first) == span.began(first + MINUTE - 1) else None
    ages: Sequence[int | None]
    if began is not None:
        ages = range(first - began, first - began + MINUTE)
    else:
        begins = [span.began(second) for second in seconds]
        ages = [
            None if begin is None else second - begin for second, begin in zip(seconds, begins, strict=True)
        ]
    minute_of_day = minute % MINUTES_PER_DAY
    # A repeatable seed, not a secret.
    rng = Random(f"{key}:{minute_of_day}")  # noqa: S311
    load = _SHAPES[workload.shape](rng, minute_of_day, ages)
    if workload.load_percent != 100:
        share = workload.load_percent
        load = MinuteLoad(
            [(value * share + 50) // 100 for value in load.utilization],
            [(value * share + 50) // 100 for value in load.intensity],
        )
    if workload.power_percent != 100:
        power = workload.power_percent
        load = MinuteLoad(load.utilization, [value * power // 100 for value in load.intensity])
    if began is not None:
        least = CONTEXT_PERMILLE
        return MinuteLoad(load.utilization, [v if v > least else least for v in load.intensity])
    return MinuteLoad(
        [0 if age is None else value for age, value in zip(ages, load.utilization, strict=True)],
        [
            0 if age is None else max(CONTEXT_PERMILLE, value)
            for age, value in zip(ages, load.intensity, strict=True)
        ],
    )


def held_mib(workload: Workload, age: int, available_mib: int) -> int:
    """The memory of the workload on one GPU at this age: in steps while it loads, plus leaks."""
    traits = TRAITS[workload.shape]
    percent = 0
    for since, step in traits.memory_steps:
        if age >= since:
            percent = step
    leaked = workload.leak_mib * age // HOUR
    return (workload.memory or traits.memory).of(available_mib) * percent // 100 + leaked


def _training(rng: Random, _: int, ages: Sequence[int | None]) -> MinuteLoad:
    noise = rng.randbytes(MINUTE)
    utilization = [96 + value % 5 for value in noise]
    intensity = [880 + value * 120 // 255 for value in noise]
    for slot in _special_slots(ages):
        if (age := ages[slot]) is None:
            continue
        if age < LOADING_SECONDS:
            utilization[slot] = noise[slot] % 25
            intensity[slot] = utilization[slot] * 2
        elif CHECKPOINT_FROM <= age % CHECKPOINT_EVERY < CHECKPOINT_UNTIL:
            utilization[slot] = 3 + noise[slot] % 12
            intensity[slot] = 90 + noise[slot] % 30
    return MinuteLoad(utilization, intensity)


def _special_slots(ages: Sequence[int | None]) -> range:
    """The seconds of the minute that may be in a checkpoint or the loading: most minutes have none."""
    if not isinstance(ages, range) or ages.start < LOADING_SECONDS:
        return range(MINUTE)
    phase = ages.start % CHECKPOINT_EVERY
    return range(max(0, CHECKPOINT_FROM - phase), min(MINUTE, CHECKPOINT_UNTIL - phase))


def _inference(rng: Random, minute_of_day: int, ages: Sequence[int | None]) -> MinuteLoad:
    demand = 0.5 + 0.5 * math.sin(2 * math.pi * minute_of_day / MINUTES_PER_DAY)
    per_second = 0.25 + 1.75 * demand
    busy = [0.0] * MINUTE
    # Requests that came before the minute still run in it.
    arrival = -4.0
    while (arrival := arrival + rng.expovariate(per_second)) < MINUTE:
        end = arrival + 0.5 + 2.5 * rng.random()
        if end > MINUTE:
            end = float(MINUTE)
        at = arrival if arrival > 0.0 else 0.0
        while at < end:
            slot = int(at)
            until = end if end < slot + 1.0 else slot + 1.0
            busy[slot] += 24.0 * (until - at)
            at = until
    utilization = [min(100, int(value)) for value in busy]
    if not isinstance(ages, range) or ages.start < LOADING_SECONDS:
        for slot, age in enumerate(ages):
            if age is not None and age < LOADING_SECONDS:
                utilization[slot] = min(utilization[slot], 2)
    return MinuteLoad(utilization, [value * 13 // 2 for value in utilization])


def _notebook(rng: Random, _: int, __: Sequence[int | None]) -> MinuteLoad:
    utilization = [0] * MINUTE
    if rng.random() < 0.08:
        first, level = rng.randrange(50), rng.randrange(30, 90)
        for slot in range(first, min(MINUTE, first + rng.randrange(3, 15))):
            utilization[slot] = level
    return MinuteLoad(utilization, [value * 5 for value in utilization])


def _unrequested(rng: Random, _: int, __: Sequence[int | None]) -> MinuteLoad:
    level = rng.randrange(16, 42)
    utilization = [level + value % 9 - 4 for value in rng.randbytes(MINUTE)]
    return MinuteLoad(utilization, [value * 6 for value in utilization])


def _hang(rng: Random, minute_of_day: int, ages: Sequence[int | None]) -> MinuteLoad:
    before = _training(rng, minute_of_day, ages)
    hung = [age is not None and age >= HANGS_AFTER for age in ages]
    return MinuteLoad(
        [100 if stuck else value for stuck, value in zip(hung, before.utilization, strict=True)],
        [35 + value % 8 if stuck else value for stuck, value in zip(hung, before.intensity, strict=True)],
    )


_SHAPES = {
    Shape.TRAINING: _training,
    Shape.INFERENCE: _inference,
    Shape.NOTEBOOK: _notebook,
    Shape.UNREQUESTED: _unrequested,
    Shape.HANG: _hang,
}
