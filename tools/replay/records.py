"""Writes samples of recording rules to a Prometheus, as if it had recorded them."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from tools.replay.blocks import move_blocks
from tools.replay.remote_write import Receiver
from tools.replay.tape import encode_sample, encode_series
from tools.servers.prometheus import Prometheus, serving

_REQUEST_BYTES = 4 * 1024**2
_RECEIVER = ("--web.enable-remote-write-receiver", "--web.enable-admin-api")
Window = Iterable[tuple[Mapping[str, str], bytes]]
"""Series with their encoded samples."""


def encode_samples(samples: Iterable[tuple[int, float]]) -> bytes:
    """Milliseconds since 1970, in their order, and the value at each."""
    return b"".join(encode_sample(value, at_ms) for at_ms, value in samples)


def write_records(windows: Iterable[Window], data_directory: Path) -> None:
    """Adds the samples to the blocks in the directory. The windows are in the order of time, an hour at most.

    No Prometheus may run on the directory. Raises Failed.
    """
    data_directory.mkdir(parents=True, exist_ok=True)
    scratch = data_directory / ".records"
    with serving(scratch, *_RECEIVER) as prometheus:
        with closing(Receiver(prometheus)) as receiver:
            for window in windows:
                _write(receiver, window)
        snapshot = scratch / "snapshots" / _snapshot(prometheus)
    move_blocks(snapshot, data_directory)


def _write(receiver: Receiver, window: Window) -> None:
    request, size = [], 0
    for labels, samples in window:
        request.append(encode_series(labels, samples))
        size += len(request[-1])
        if size > _REQUEST_BYTES:
            receiver.write(request)
            request, size = [], 0
    if request:
        receiver.write(request)


def _snapshot(prometheus: Prometheus) -> str:
    name: str = prometheus.api("admin/tsdb/snapshot")["name"]
    return name
