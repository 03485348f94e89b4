"""Writes the ledger's state file on its own thread, so that a disk that hangs or is full delays no sample.

The totals in the ledger are counters. If an exporter resumed from smaller totals than it had published,
Prometheus would see a counter reset and count the difference twice. So each state is written before it is
published, and a file that may be older than the published state is removed.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputally.ledger.state_file import Rejected, StateFile
from gputally.model import SourceState
from gputally.sampling.guard import Record, Worker, attempt

NAME = "state_file"


class Checkpoint:
    """The state file, guarded. A state must not be changed after it was passed in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = StateFile(path)
        self._record = Record(NAME)
        self._worker = Worker(NAME, lambda: [attempt(NAME, self._keep)])
        self._newest: Mapping[str, Any] | None = None

    def resume(self, wait_seconds: float) -> Mapping[str, Any] | None:
        """The state to resume from; None if there is none that can be trusted and kept up to date."""
        return self._run(wait_seconds)

    def write(self, state: Mapping[str, Any], wait_seconds: float) -> None:
        """Call it before `state` is published."""
        self._newest = state
        if self._worker.busy:
            self._overrun(wait_seconds)
        else:
            self._absorb()
            self._run(wait_seconds)

    def state(self) -> SourceState:
        return self._record.state()

    def close(self, wait_seconds: float, state: Mapping[str, Any]) -> None:
        """Writes for the last time; a write that hangs is abandoned."""
        deadline = time.monotonic() + wait_seconds
        self._worker.wait(wait_seconds)
        self.write(state, max(0.0, deadline - time.monotonic()))
        if not self._worker.busy:
            self._file.close()

    def _run(self, wait_seconds: float) -> Mapping[str, Any] | None:
        self._worker.start()
        if self._worker.wait(wait_seconds):
            return self._absorb()
        self._overrun(wait_seconds)
        return None

    def _overrun(self, wait_seconds: float) -> None:
        directory = self._path.parent
        self._record.overrun(
            wait_seconds, f"check the disk or file server of {directory}: df {directory}; dmesg"
        )

    def _absorb(self) -> Mapping[str, Any] | None:
        resumed: Mapping[str, Any] | None = None
        for one in self._worker.take():
            if one.reason:
                self._record.fail(one)
            elif isinstance(one.result, Rejected):
                key, errors = (NAME, one.result.reason), self._record.read_errors
                errors[key] = errors.get(key, 0) + 1
                self._record.mark_down(one.result.text, "no action needed: a new ledger is started")
            else:
                self._record.succeed(one, str(self._path))
                resumed = one.result
        return resumed

    def _keep(self) -> Mapping[str, Any] | Rejected | None:
        found = self._load() if self._newest is None else None
        written: Mapping[str, Any] | None = None
        # A write that ends late must not leave the file older than a state that was published meanwhile.
        while (newest := self._newest) is not None and newest is not written:
            self._save(newest)
            written = newest
        return found

    def _load(self) -> Mapping[str, Any] | Rejected | None:
        try:
            state = self._file.load()
        except Rejected as rejected:
            return rejected
        if state is not None:
            # Every start would resume from a file that is readable but not writable, ever further behind.
            self._save(state)
        return state

    def _save(self, state: Mapping[str, Any]) -> None:
        try:
            self._file.save(state)
        except Exception:
            self._file.forget()
            raise
