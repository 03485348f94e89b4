"""The GPUs of the benchmark: simulated H100s in the driver stand-in."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gputally.model import Reading
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Memory, Scenario, Shape, Workload
from tools.benchmark.running import Stage
from tools.standin.scenario import Frame, environment, write_scenario

MODEL = "h100"
MOST_PROCESSES_OF_A_WORKLOAD = 100
FRAMES = 40
FRAME_SECONDS = 1.0
_WARM_SECONDS = 600.0
"""The age of the workloads when the scenario begins."""
_PID_SHIFT = 4_000_000
"""Near the highest pid of Linux: most likely no process of this host has it."""


def set_stage(directory: Path, library: Path, *, gpus: int, processes: int | None) -> Stage:
    """Writes the scenario; `processes` is the number on all GPUs together, or None for one on each.

    `library` is the directory of the stand-in.
    """
    counts = spread_out(gpus if processes is None else processes, gpus)
    engine = Engine(Scenario(gpus=gpus, model=MODEL, workloads=_workloads(counts)))
    frames = []
    for number in range(FRAMES):
        second = number * FRAME_SECONDS
        now = _WARM_SECONDS + second
        readings = engine.readings(now, since=now - FRAME_SECONDS, epoch_seconds=-_WARM_SECONDS)
        frames.append(Frame(second, tuple(_foreign_pids(reading) for reading in readings)))
    scenario = write_scenario(directory / f"{gpus}-gpus-{sum(counts)}-processes", frames, clock_zero=0.0)
    present = frames[0].readings
    path = f"{_lspci(directory / f'bin-{gpus}', present)}{os.pathsep}{os.environ['PATH']}"
    variables = {**environment(scenario, library=library), "PATH": path}
    return Stage(variables, [reading.gpu.uuid for reading in present], directory, library)


def _lspci(directory: Path, readings: Sequence[Reading]) -> Path:
    """A directory with an `lspci` that lists the GPUs: all-smi runs it before it reads any."""
    directory.mkdir(exist_ok=True)
    lines = [f"{reading.gpu.pci_bus_id} 3D controller: NVIDIA Corporation {MODEL}" for reading in readings]
    command = directory / "lspci"
    command.write_text("\n".join(["#!/bin/sh", "cat <<GPUS", *lines, "GPUS", ""]))
    command.chmod(0o755)
    return directory


def spread_out(processes: int, gpus: int) -> list[int]:
    """The number of processes on each GPU."""
    each, rest = divmod(processes, gpus)
    return [each + (index < rest) for index in range(gpus)]


def _workloads(counts: Sequence[int]) -> tuple[Workload, ...]:
    return tuple(
        Workload(shape=Shape.TRAINING, gpus=(index,), count=part, memory=Memory(percent=80 * part // count))
        for index, count in enumerate(counts)
        for part in in_parts(count, MOST_PROCESSES_OF_A_WORKLOAD)
    )


def in_parts(count: int, most: int) -> list[int]:
    """The count, divided into parts up to the allowed size."""
    return [min(most, count - done) for done in range(0, count, most)]


def _foreign_pids(reading: Reading) -> Reading:
    return replace(
        reading,
        processes=tuple(replace(one, pid=one.pid + _PID_SHIFT) for one in reading.processes or ()),
        process_samples=tuple(
            replace(one, pid=one.pid + _PID_SHIFT) for one in reading.process_samples or ()
        ),
    )
