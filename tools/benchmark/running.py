"""Starts exporters on simulated GPUs of the driver stand-in, and always ends them."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gputally.model import Reading
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Memory, Scenario, Shape, Workload
from tools.benchmark.contenders import Contender
from tools.benchmark.http_response import BadResponse
from tools.benchmark.scrape import Scraper
from tools.servers.ports import free_port
from tools.standin.scenario import Frame, environment, write_scenario

START_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.002
MODEL = "h100"
MOST_PROCESSES_OF_A_WORKLOAD = 100
FRAMES = 40
FRAME_SECONDS = 1.0
_WARM_SECONDS = 600.0
"""The age of the workloads when the scenario begins."""
_PID_SHIFT = 4_000_000
"""Near the highest pid of Linux: most likely no process of this host has it."""


class DidNotRun(Exception):
    """An exporter ended or never served the GPUs; the text has the last line of its log."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The environment of the exporters, its GPUs, a directory for logs, and the stand-in's directory."""

    environment: Mapping[str, str]
    uuids: Sequence[str]
    directory: Path
    library: Path


@dataclass(frozen=True, slots=True)
class RunningExporter:
    """A running exporter."""

    contender: Contender
    pid: int
    port: int
    start_seconds: float
    """From its start to its first response with all GPUs."""


@contextmanager
def running(contender: Contender, stage: Stage, interval_seconds: float) -> Iterator[RunningExporter]:
    """The exporter, from its first GPU data until the block ends. Raises DidNotRun."""
    port = free_port()
    log = stage.directory / f"{contender.name}.log"
    with log.open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            contender.started_as(port, interval_seconds),
            env=_environment(contender, stage),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its children end with it
        )
    try:
        _wait_for_gpus(process, port, stage.uuids, log)
        yield RunningExporter(contender, process.pid, port, time.perf_counter() - started)
    finally:
        _end(process)


def _environment(contender: Contender, stage: Stage) -> dict[str, str]:
    # Another home: settings and state of the user stay unused and unchanged.
    unused = ("XDG_", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(unused)}
    own = {
        "HOME": str(stage.directory),
        # As installed: pip compiles what it installs. The first start of each exporter does it here.
        "PYTHONPYCACHEPREFIX": str(stage.directory / "bytecode"),
    }
    return {**inherited, **own, **stage.environment, **contender.environment}


def _wait_for_gpus(process: subprocess.Popen[bytes], port: int, uuids: Sequence[str], log: Path) -> None:
    # Some exporters omit "GPU-".
    wanted = [uuid.removeprefix("GPU-").encode() for uuid in uuids]
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    seen = "no answer"
    scraper = Scraper(port)
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DidNotRun(f"it ended with exit code {process.returncode}{_last_words(log)}")
        try:
            status = scraper.scrape().status
            body = scraper.body().lower()
            if status == 200 and all(uuid in body for uuid in wanted):
                scraper.close()
                return
            seen = f"status {status} and {sum(uuid in body for uuid in wanted)} of {len(wanted)} GPUs"
        except (OSError, BadResponse):
            scraper.close()
        time.sleep(_POLL_SECONDS)
    scraper.close()
    raise DidNotRun(f"{seen} after {START_TIMEOUT_SECONDS:g} s{_last_words(log)}")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(process.pid, ending)
        try:
            process.wait(3)
            break
        except subprocess.TimeoutExpired:
            continue
    _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


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
