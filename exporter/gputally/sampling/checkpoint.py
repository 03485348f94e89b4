"""Keeps the ledger's state file on a thread of its own, so that a disk that hangs or is full costs no sample.

The totals in the ledger are counters. An exporter that resumed from totals smaller than those it had
published would make Prometheus see a reset and count them a second time. So each state is written before
it is published, and a file that may be behind what was published is removed.
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
    """The state file, guarded. A state that was handed in must not be changed afterwards."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = StateFile(path)
        self._record = Record(NAME)
        self._worker = Worker(NAME, lambda: [attempt(NAME, self._keep)])
        self._newest: Mapping[str, Any] | None = None

    def resume(self, wait_seconds: float) -> Mapping[str, Any] | None:
        """The state to go on from; None when there is none that can be trusted and kept up to date."""
        return self._run(wait_seconds)

    def write(self, state: Mapping[str, Any], wait_seconds: float) -> None:
        """To be called before what `state` holds is published."""
        self._newest = state
        if self._worker.busy:
            self._overrun(wait_seconds)
        else:
            self._absorb()
            self._run(wait_seconds)

    def state(self) -> SourceState:
        return self._record.state()

    def close(self, wait_seconds: float, state: Mapping[str, Any]) -> None:
        """Write for the last time; a write that hangs is left behind."""
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
        folder = self._path.parent
        self._record.overrun(wait_seconds, f"look at the disk or file server of {folder}: df {folder}; dmesg")

    def _absorb(self) -> Mapping[str, Any] | None:
        resumed: Mapping[str, Any] | None = None
        for one in self._worker.take():
            if one.reason:
                self._record.refuse(one)
            elif isinstance(one.answer, Rejected):
                key, errors = (NAME, one.answer.reason), self._record.read_errors
                errors[key] = errors.get(key, 0) + 1
                self._record.fail(one.answer.text, "nothing: the books begin anew")
            else:
                self._record.succeed(one, str(self._path))
                resumed = one.answer
        return resumed

    def _keep(self) -> Mapping[str, Any] | Rejected | None:
        found = self._load() if self._newest is None else None
        written: Mapping[str, Any] | None = None
        # What ends late must not leave the file behind a state that was handed in, and published, meanwhile.
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
            # A file that can be read but not written would be resumed from at each start, further behind.
            self._save(state)
        return state

    def _save(self, state: Mapping[str, Any]) -> None:
        try:
            self._file.save(state)
        except Exception:
            self._file.forget()
            raise
