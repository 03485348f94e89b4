"""docs/exporter.md, "What happens on failures": each row is made to happen, and says what is served."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputally import pages
from gputally.attribution import PodReport
from gputally.attribution.owners import ProcessOwners
from gputally.devices import Report
from gputally.ledger import Ledger
from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import StateFile
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Gpu, Process, Reading, Unavailable
from gputally.pages import Endpoints
from gputally.sampling import metrics_file, sources
from gputally.sampling.checkpoint import Checkpoint
from gputally.sampling.collect import Collector
from gputally.sampling.metrics_file import MetricsFile
from gputally.sampling.sources import GuardedPodSource, GuardedReaders
from gputally.server.routes import Health
from tests.support.clock import Clock
from tools.standin.procfs import FakeProcfs

PAGE = Path(__file__).parents[3] / "docs" / "exporter.md"
AMPLE, SHORT = 30.0, 0.2
READING = Reading(
    gpu=Gpu("GPU-0", 0, "nvidia", "H100"),
    power_watts=70.0,
    energy_millijoules=1000,
    processes=(Process(41, "compute", "python3", 7),),
)


def rows() -> list[tuple[str, str, str, str, str]]:
    (table,) = re.findall(r"^## What happens on failures\n.*?\n\n(\|.*?)\n\n", PAGE.read_text(), re.M | re.S)
    found = []
    for line in table.splitlines()[2:]:
        failure, health, ready, metrics, log = (cell.strip() for cell in line.strip("|").split("|"))
        found.append((failure, health, ready, metrics, log))
    return found


class Gate:
    """A call that passes, until it is closed: then it blocks until the end of the test."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def passed(self) -> None:
        assert self._open.wait(AMPLE)


class Source:
    """Of readings or pods, behind a gate."""

    def __init__(self, name: str, result: object, gate: Gate) -> None:
        self.name, self._result, self._gate = name, result, gate

    def read(self) -> object:
        self._gate.passed()
        return self._result

    def close(self) -> None:
        pass


class Node:
    """An exporter without a server and its clocks."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.nvml, self.pods, self.disk = Gate(), Gate(), Gate()
        self.clock = Clock()
        monkeypatch.setattr(sources, "time", self.clock)
        self.boot_ahead_us = 0
        monkeypatch.setattr(pages, "since_boot_us", lambda: since_boot_us() + self.boot_ahead_us)
        self.proc = FakeProcfs(directory / "proc")
        self.proc.start(41, "0::/init.scope")
        self.file = MetricsFile(directory / "gpu.prom")
        fsync = os.fsync

        def fsync_behind_gate(descriptor: int) -> None:
            self.disk.passed()
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync_behind_gate)
        self.endpoints = Endpoints(
            lambda snapshot: build_families(snapshot, read_exporter_facts("1", "node-1")),
            metrics_path="/metrics",
            hostname="node-1",
            max_age_seconds=60,
        )
        self.collector = Collector(
            [GuardedReaders([Source("nvml", Report((READING,)), self.nvml)])],  # type: ignore[list-item]
            timeout_seconds=AMPLE,
            max_age_seconds=60,
            ledger=Ledger(retention_seconds=300, max_window_seconds=60),
            owners=ProcessOwners(self.proc.root),
            pod_sources=[GuardedPodSource(Source("pod_logs", PodReport(), self.pods))],  # type: ignore[arg-type]
            checkpoint=Checkpoint(directory / "ledger", boot_id="boot", valid_seconds=60),
        )

    def sample(self, timeout_seconds: float = AMPLE) -> None:
        self.collector._timeout_seconds = timeout_seconds
        self.endpoints.publish(self.collector.sample())
        body = self.endpoints.metrics.body(openmetrics=False, gzipped=False)
        self.file.write(body, timeout_seconds)

    def release(self) -> None:
        for gate in (self.nvml, self.pods, self.disk):
            gate.release()


@contextmanager
def blocked_file(fifo: Path) -> Iterator[None]:
    content = fifo.read_bytes()
    fifo.unlink()
    os.mkfifo(fifo)
    try:
        yield
    finally:
        writer = os.open(fifo, os.O_RDWR)
        os.write(writer, content)
        fifo.unlink()
        os.close(writer)


def reader_hangs(node: Node) -> None:
    node.nvml.close()
    node.sample(SHORT)


def reader_hangs_for_long(node: Node) -> None:
    reader_hangs(node)
    node.clock.ahead = 61
    node.sample(SHORT)


def pods_hang(node: Node) -> None:
    node.pods.close()
    node.sample(SHORT)


def proc_blocks(node: Node) -> None:
    with blocked_file(node.proc.root / "41" / "stat"):
        node.sample(SHORT)


def file_is_not_saved(node: Node) -> None:
    def fails(*_: object) -> None:
        raise Unavailable("no space left")

    node.patch.setattr(StateFile, "save", fails)
    node.sample()


def disk_hangs(node: Node) -> None:
    node.disk.close()
    node.sample(SHORT)


def metrics_file_hangs(node: Node) -> None:
    node.patch.setattr(metrics_file, "replace_file", lambda *_, **__: node.disk.passed())
    node.disk.close()
    body = node.endpoints.metrics.body(openmetrics=False, gzipped=False)
    node.file.write(body, SHORT)


def sampling_stops(node: Node) -> None:
    node.boot_ahead_us = 61_000_000


FAILURES: dict[str, Callable[[Node], None]] = {
    "a GPU reader hangs, for up to": reader_hangs,
    "a GPU reader hangs for longer": reader_hangs_for_long,
    "a pod source hangs": pods_hang,
    "a read of `/proc` blocks": proc_blocks,
    "the state file cannot be saved": file_is_not_saved,
    "its disk hangs": disk_hangs,
    "the disk of `--metrics-file` hangs": metrics_file_hangs,
    "sampling stops": sampling_stops,
}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_what_is_served_and_logged_is_what_the_table_says(
    row: tuple[str, str, str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure, health, ready, metrics, log = row
    (happens,) = [happens for begin, happens in FAILURES.items() if failure.startswith(begin)]
    node = Node(tmp_path, monkeypatch)
    try:
        node.sample()
        happens(node)
        response = node.endpoints.ready.respond(False, False)
        body = node.endpoints.by_path["/metrics"].respond(False, False).body.decode()
        reason = response.body.decode()
        served = {re.sub(r',uuid="[^"]*"', "", line) for line in body.splitlines()}
        assert str(Health().respond(False, False).status) == health
        assert str(response.status) == ready
        for series in re.findall(r"`(gputally_[^`]*)`", metrics):
            assert series in served
            if 'source="' in series:
                source = series.split('"')[1]
                assert f"{source}: " in reason
        (text,) = re.findall(r"`(.*)`", log)
        assert text in caplog.text
    finally:
        node.release()


def test_every_failure_has_a_row() -> None:
    assert len(rows()) == len(FAILURES)
