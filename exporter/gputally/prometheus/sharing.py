"""The metrics of several processes that serve one service: one of them samples, all serve its samples."""

import fcntl
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric

from gputally.files import read_regular, replace_file

_POLL_SECONDS = 0.05
_MAX_BYTES = 64 << 20


class Shared:
    """A directory that all processes of the service have, as PROMETHEUS_MULTIPROC_DIR."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = directory / "gputally.lock"
        self._samples = directory / "gputally_samples.json"
        self._held: int | None = None

    def is_leader(self) -> bool:
        """Whether this process is the one that samples: the kernel frees the place of one that has ended."""
        if self._held is None:
            held = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(held)
                return False
            self._held = held
        return True

    def release(self) -> None:
        """Lets another process sample. In a child of the leader, the leader goes on."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def write(self, metrics: Iterable[Metric]) -> None:
        content = [
            [one.name, one.documentation, one.type, [[*sample[:3]] for sample in one.samples]]
            for one in metrics
        ]
        replace_file(
            self._samples,
            json.dumps(content).encode(),
            unfinished=f".{self._samples.name}.tmp",
            mode=0o600,
            sync=False,
        )

    def read(self, timeout_seconds: float, max_age_seconds: float) -> list[Metric]:
        """The newest sample of the leader, for whose first one it waits. Empty if the leader hangs."""
        deadline = time.monotonic() + timeout_seconds
        while not self._samples.exists() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        try:
            if time.time() - self._samples.stat().st_mtime > max_age_seconds:
                return []
            content = json.loads(read_regular(self._samples, _MAX_BYTES))
        except FileNotFoundError:
            return []
        metrics = []
        for name, documentation, kind, samples in content:
            metric = Metric(name, documentation, kind)
            for sample in samples:
                metric.add_sample(*sample)
            metrics.append(metric)
        return metrics
