"""Writes the past of a fleet into a folder of blocks that Prometheus serves as its own.

The nodes are played side by side, each in a process of its own and onto a file. The files are then written
window by window, in the order of time, to a Prometheus that starts empty; a snapshot of it is the result.
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
from tools.replay.fleet import Node, Period, play
from tools.replay.remote_write import Receiver
from tools.replay.tape import Series, encode_series, with_target
from tools.servers.prometheus import Prometheus, serving

_REQUEST_BYTES = 4 * 1024**2
_RECEIVER = ("--web.enable-remote-write-receiver", "--web.enable-admin-api")


@dataclass(frozen=True, slots=True)
class Written:
    """What has been written, and what it took."""

    seconds_playing: float
    seconds_loading: float
    samples: int
    block_bytes: int


def write_history(
    nodes: Sequence[Node],
    period: Period,
    data_folder: Path,
    *,
    cluster: str = "simulated",
    job: str = "gputally",
    began_at: float | None = None,
    process_metrics: bool = False,
    processes: int | None = None,
) -> Written:
    """Add what Prometheus would have scraped of these nodes to the blocks in `data_folder`.

    No Prometheus may be running on the folder. `processes` is how many nodes are played at a time, by
    default one on each CPU; they import the main module of the program, which must be ready for that
    (`if __name__ == "__main__"`). The scenarios began at `began_at`, or a minute before the period.
    Raises Failed.
    """
    if period.last > time.time():
        raise Failed("Prometheus takes no samples of the future: let the period end by now")
    data_folder.mkdir(parents=True, exist_ok=True)
    # Beside the blocks to be, which are moved and may be large.
    with tempfile.TemporaryDirectory(prefix=".history-", dir=data_folder) as scratch:
        folder = Path(scratch)
        begun = time.monotonic()
        files = [folder / f"{number}.windows" for number in range(len(nodes))]
        record = partial(_record, period=period, began_at=began_at, process_metrics=process_metrics)
        # One process for each node: the threads of an exporter stay until the end of its process.
        spawn = multiprocessing.get_context("spawn")
        at_a_time = min(len(nodes), processes or os.cpu_count() or 1)
        with spawn.Pool(at_a_time, _leave_interrupts_to_the_parent, maxtasksperchild=1) as pool:
            pool.starmap(record, zip(nodes, files, strict=True), chunksize=1)
        played = time.monotonic()
        with serving(folder / "data", *_RECEIVER) as prometheus:
            _load(prometheus, _requests(nodes, files, job=job, cluster=cluster))
            snapshot = folder / "data" / "snapshots" / prometheus.api("admin/tsdb/snapshot")["name"]
        blocks = move_blocks(snapshot, data_folder)
        return Written(
            seconds_playing=played - begun,
            seconds_loading=time.monotonic() - played,
            samples=sum(_samples(block) for block in blocks),
            block_bytes=sum(file.stat().st_size for block in blocks for file in block.rglob("*")),
        )


def move_blocks(source: Path, data_folder: Path) -> list[Path]:
    """Add the blocks in a folder to those in another; returns where they are now."""
    return [
        Path(shutil.move(meta.parent, data_folder / meta.parent.name))
        for meta in sorted(source.glob("*/meta.json"))
    ]


def _leave_interrupts_to_the_parent() -> None:
    """It ends the pool, and nobody else has to say anything about a Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _record(node: Node, file: Path, period: Period, began_at: float | None, *, process_metrics: bool) -> None:
    with file.open("wb") as windows:
        play(
            node,
            period,
            lambda window: pickle.dump(window, windows, pickle.HIGHEST_PROTOCOL),
            began_at=began_at,
            process_metrics=process_metrics,
        )


def _requests(
    nodes: Sequence[Node], files: Sequence[Path], *, job: str, cluster: str
) -> Iterator[list[bytes]]:
    """The write requests of all nodes and their clones, window by window."""
    targets = [node.target(job=job, cluster=cluster) for node in nodes]
    clones = [
        [(renamed(name), replace(node, name=name).target(job=job, cluster=cluster)) for name in node.clones]
        for node in nodes
    ]
    for windows in zip(*map(_read, files), strict=True):
        for window, target, copies in zip(windows, targets, clones, strict=True):
            yield from _encode(window, target)
            for rename, target_of_copy in copies:
                yield from _encode(((rename(labels), samples) for labels, samples in window), target_of_copy)


def _read(file: Path) -> Iterator[list[Series]]:
    with file.open("rb") as windows:
        while windows.peek(1):
            yield pickle.load(windows)


def _encode(window: Iterable[Series], target: Mapping[str, str]) -> Iterator[list[bytes]]:
    request, size = [], 0
    for labels, samples in window:
        request.append(encode_series(with_target(labels, target), samples))
        size += len(request[-1])
        if size > _REQUEST_BYTES:
            yield request
            request, size = [], 0
    if request:
        yield request


def _load(prometheus: Prometheus, requests: Iterable[list[bytes]]) -> None:
    """One request is made while Prometheus takes in the one before it."""
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
