"""Starts exporters on the driver stand-in, waits for their first GPU data, and always ends them."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.benchmark.contenders import Contender
from tools.benchmark.http_answer import BadResponse
from tools.benchmark.scrape import Scraper
from tools.servers.ports import free_port

START_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.002


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
class Child:
    """A running exporter."""

    contender: Contender
    pid: int
    port: int
    start_seconds: float
    """From its start to its first response with all GPUs."""


@contextmanager
def running(contender: Contender, stage: Stage, interval_seconds: float) -> Iterator[Child]:
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
        yield Child(contender, process.pid, port, time.perf_counter() - started)
    finally:
        _end(process)


def _environment(contender: Contender, stage: Stage) -> dict[str, str]:
    # Another home: settings and state of the user stay unused and unchanged.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return {**inherited, "HOME": str(stage.directory), **stage.environment, **contender.environment}


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
