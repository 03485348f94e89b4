"""Writes --metrics-file on its own thread, so that a disk that hangs delays no sample."""

import os
from pathlib import Path

from gputally.files import replace_file
from gputally.model import Unavailable
from gputally.sampling.guard import Record, Worker, attempt

NAME = "metrics_file"


class MetricsFile:
    """The file, guarded. A body that comes while a write hangs is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = Record(NAME)
        self._worker = Worker(NAME, lambda: [attempt(NAME, self._replace)])
        self._body = b""

    @property
    def up(self) -> bool:
        return self._record.up

    def write(self, body: bytes, timeout_seconds: float) -> None:
        """A failure is logged."""
        if not self._worker.busy:
            self._worker.take()
            self._body = body
            self._worker.start()
            if self._worker.wait(timeout_seconds):
                (tried,) = self._worker.take()
                if tried.reason:
                    self._record.fail(tried)
                else:
                    self._record.succeed(tried, str(self._path))
                return
        self._record.overrun(timeout_seconds, f"check the disk or file server of {self._path.parent}")

    def _replace(self) -> None:
        # The collector reads *.prom, so the unfinished file must not match. Others may write there: its name
        # cannot be guessed, and two exporters cannot mix their content.
        unfinished = f".{self._path.name}.{os.urandom(8).hex()}.tmp"
        try:
            replace_file(self._path, self._body, unfinished=unfinished, mode=0o644, sync=False)
        except OSError as error:
            raise Unavailable(
                f"--metrics-file: cannot write {self._path}: {error.strerror}",
                f"let the exporter's user write to {self._path.parent}",
            ) from error
