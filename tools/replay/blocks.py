"""Writes the history of a fleet as blocks that Prometheus serves as its own.

Each node runs in a process of its own and writes a file. The files are then sent, in windows in the order of
time, to an empty Prometheus; a snapshot of it is the result.
"""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tools import Failed
from tools.replay.clones import renamed
from tools.replay.fleet import WINDOW_SECONDS, GpuNode, Period, play
from tools.replay.remote_write import Receiver
from tools.replay.tape import EncodedSeries, encode_series, with_target
from tools.servers.prometheus import Prometheus, serving

_REQUEST_BYTES = 4 * 1024**2
RECEIVER = ("--web.enable-remote-write-receiver", "--web.enable-admin-api")


@dataclass(frozen=True, slots=True)
class Written:
    """The size of a written history, and the time it took."""

    seconds_playing: float
    seconds_loading: float
    samples: int
    block_bytes: int


def write_history(
    nodes: Sequence[GpuNode],
    period: Period,
    data_directory: Path,
    *,
    cluster: str = "simulated",
    job: str = "gputally",
    began_at: float | None = None,
    process_metrics: bool = False,
    processes: int | None = None,
) -> Written:
    """Adds what Prometheus would have scraped from these nodes to the blocks in `data_directory`.

    No Prometheus may run on the directory. `processes` nodes run at a time (default: one per CPU); their
    processes import the main module, which needs a guard (`if __name__ == "__main__"`). The scenarios began
    at `began_at`, or a minute before the period. Raises Failed.
    """
    if period.last > time.time():
        raise Failed("the period ends in the future; Prometheus accepts samples up to now only")
    data_directory.mkdir(parents=True, exist_ok=True)
    # On the file system of the result: blocks are moved and may be large.
    with tempfile.TemporaryDirectory(prefix=".history-", dir=data_directory) as scratch:
        directory = Path(scratch)
        begun = time.monotonic()
        files = [directory / f"{number}.windows" for number in range(len(nodes))]
        play_nodes(
            nodes,
            files,
            period,
            began_at=began_at,
            process_metrics=process_metrics,
            processes=processes,
        )
        played = time.monotonic()
        with serving(directory / "data", *RECEIVER) as prometheus:
            load(prometheus, _requests(nodes, files, job=job, cluster=cluster))
            snapshot = directory / "data" / "snapshots" / prometheus.api("admin/tsdb/snapshot")["name"]
        blocks = move_blocks(snapshot, data_directory)
        return Written(
            seconds_playing=played - begun,
            seconds_loading=time.monotonic() - played,
            samples=sum(_samples(block) for block in blocks),
            block_bytes=sum(file.stat().st_size for block in blocks for file in block.rglob("*")),
        )


def play_nodes(
    nodes: Sequence[GpuNode],
    files: Sequence[Path],
    period: Period,
    *,
    began_at: float | None = None,
    process_metrics: bool = False,
    processes: int | None = None,
    window_seconds: float = WINDOW_SECONDS,
) -> None:
    """Writes what is scraped from each node to its file, for `read_windows`."""
    record = partial(
        _record,
        period=period,
        began_at=began_at,
        process_metrics=process_metrics,
        window_seconds=window_seconds,
    )
    # One process per node: the threads of an exporter end with their process.
    spawn = multiprocessing.get_context("spawn")
    at_a_time = min(len(nodes), processes or os.cpu_count() or 1)
    with spawn.Pool(at_a_time, _leave_interrupts_to_the_parent, maxtasksperchild=1) as pool:
        pool.starmap(record, zip(nodes, files, strict=True), chunksize=1)


def move_blocks(source: Path, data_directory: Path) -> list[Path]:
    """Moves the blocks of a directory to another, and returns their new paths."""
    return [
        Path(shutil.move(meta.parent, data_directory / meta.parent.name))
        for meta in sorted(source.glob("*/meta.json"))
    ]


def _leave_interrupts_to_the_parent() -> None:
    """Ignores Ctrl-C: the parent ends the pool and prints the message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _record(
    node: GpuNode,
    file: Path,
    period: Period,
    began_at: float | None,
    *,
    process_metrics: bool,
    window_seconds: float,
) -> None:
    with file.open("wb") as windows:
        play(
            node,
            period,
            lambda window: pickle.dump(window, windows, pickle.HIGHEST_PROTOCOL),
            began_at=began_at,
            process_metrics=process_metrics,
            window_seconds=window_seconds,
        )


def _requests(
    nodes: Sequence[GpuNode], files: Sequence[Path], *, job: str, cluster: str
) -> Iterator[list[bytes]]:
    """The write requests of all nodes and clones, window by window."""
    targets = [node.target(job=job, cluster=cluster) for node in nodes]
    clones = [
        [(renamed(name), replace(node, name=name).target(job=job, cluster=cluster)) for name in node.clones]
        for node in nodes
    ]
    for windows in zip(*map(read_windows, files), strict=True):
        for window, target, copies in zip(windows, targets, clones, strict=True):
            yield from encode_requests(window, target)
            for rename, target_of_copy in copies:
                yield from encode_requests(
                    ((rename(labels), samples) for labels, samples in window), target_of_copy
                )


def read_windows(file: Path) -> Iterator[list[EncodedSeries]]:
    with file.open("rb") as windows:
        while windows.peek(1):
            yield pickle.load(windows)


def encode_requests(window: Iterable[EncodedSeries], target: Mapping[str, str]) -> Iterator[list[bytes]]:
    request, size = [], 0
    for labels, samples in window:
        request.append(encode_series(with_target(labels, target), samples))
        size += len(request[-1])
        if size > _REQUEST_BYTES:
            yield request
            request, size = [], 0
    if request:
        yield request


def load(prometheus: Prometheus, requests: Iterable[list[bytes]]) -> None:
    """Encodes a request while Prometheus processes the one before."""
    with closing(Receiver(prometheus)) as receiver, ThreadPoolExecutor(max_workers=1) as writer:
        writing: Future[None] | None = None
        for request in requests:
            if writing:
                writing.result()
            writing = writer.submit(receiver.write, request)
        if writing:
            writing.result()


def _samples(block: Path) -> int:
    return int(json.loads((block / "meta.json").read_text())["stats"]["numSamples"])
