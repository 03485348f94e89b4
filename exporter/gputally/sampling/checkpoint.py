"""Writes the ledger's state file on its own thread, so that a disk that hangs or is full delays no sample.

The totals in the ledger are counters. If an exporter resumed from smaller totals than another one had
published before, Prometheus would see a counter reset and count them twice. So of any two, one holds:

- what is published was saved before;
- no exporter can resume from what is in the file.

A state that can neither be saved nor removed is waited for: what was published last stays until the document
on the disk has expired. While an exporter runs it writes documents that expire after a minute, and the last
one, when nothing more is published, is valid for a day.
"""

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import InUse, Rejected, Saved, StateFile
from gputally.model import SourceState, Unavailable
from gputally.sampling.guard import Record, Worker, attempt

NAME = "state_file"
STOPPED_US = 86_400_000_000
"""For which the state of an exporter that was stopped is valid: nothing was published after it."""

log = logging.getLogger(__name__)


class Checkpoint:
    """The state file, guarded. A state must not be changed after it was passed in."""

    def __init__(self, path: Path, *, boot_id: str, valid_seconds: float) -> None:
        """`valid_seconds`: for which the state of an exporter that was killed can be resumed from."""
        self._path = path
        self.boot_id = boot_id
        self._valid_us = round(valid_seconds * 1_000_000)
        self._file = StateFile(path)
        self._record = Record(NAME)
        self._worker = Worker(NAME, lambda: [attempt(NAME, self._keep)])
        self._choosing = threading.Lock()
        self._newest: Mapping[str, Any] | None = None
        self._saved: Mapping[str, Any] | None = None
        self._until_us = since_boot_us() + STOPPED_US
        """Until when another state than `_saved` can be resumed from: first, that of an earlier exporter."""
        self._closing = False

    def resume(self, wait_seconds: float) -> Mapping[str, Any] | None:
        """The state to resume from; None if there is none that can be trusted and kept up to date."""
        return self._run(wait_seconds)

    def write(self, state: Mapping[str, Any], wait_seconds: float) -> bool:
        """Call it before `state` is published; it must not be if this is false."""
        if self._closing:
            return False
        with self._choosing:
            self._newest = state
        if self._worker.busy:
            self._overrun(wait_seconds)
        else:
            self._absorb()
            self._run(wait_seconds)
        return self._saved is state or since_boot_us() > self._until_us

    def state(self) -> SourceState:
        return self._record.state()

    def close(self, wait_seconds: float) -> None:
        """Saves the last state as that of a stopped exporter; a write that hangs is abandoned."""
        deadline = time.monotonic() + wait_seconds
        self._closing = True
        if self._worker.wait(wait_seconds):
            self._absorb()
            self._saved = None
            self._run(max(0.0, deadline - time.monotonic()))
        else:
            self._overrun(wait_seconds)
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
        """On the worker's thread: loads the file at the start, then saves the newest state."""
        found = self._load() if self._newest is None else None
        # A write that ends late must not leave the file older than a state that was published meanwhile.
        while self._newest is not None and self._newest is not self._saved:
            self._save()
        return found

    def _load(self) -> Mapping[str, Any] | Rejected | None:
        try:
            saved = self._of_this_boot()
        except InUse:
            self._until_us = since_boot_us() + STOPPED_US
            raise
        except Rejected as rejected:
            self._until_us = 0
            return rejected
        except Unavailable:
            if self._file.absent():
                self._until_us = 0
            raise
        if saved is None:
            return None
        # Every start would resume from a file that is readable but not writable, ever further behind.
        with self._choosing:
            self._newest = self._newest or saved.state
        self._save()
        return saved.state

    def _of_this_boot(self) -> Saved | None:
        saved = self._file.load()
        if saved is None or (self.boot_id and saved.state["boot_id"] != self.boot_id):
            self._until_us = 0
        if saved is None:
            return None
        if not self.boot_id or saved.state["boot_id"] != self.boot_id:
            # The counters may have been reset.
            which = "another boot" if self.boot_id else "a boot that cannot be identified"
            log.info("--state-file %s is of %s: a new ledger is started", self._path, which)
            return None
        if since_boot_us() > saved.until_us:
            self._file.reject("stale", "has expired: its exporter may have published more than it saved")
        return saved

    def _save(self) -> None:
        with self._choosing:
            state, before, now_us = self._newest or {}, self._until_us, since_boot_us()
            until_us = now_us + (STOPPED_US if self._closing else self._valid_us)
            # It may be in the file from now on, however late the write ends.
            self._until_us = max(before, until_us)
        try:
            self._file.save(Saved(state, time.time(), until_us))
        except InUse:
            self._until_us = now_us + STOPPED_US
            raise
        except Exception:
            self._until_us = 0 if self._file.forget() else before
            raise
        self._saved, self._until_us = state, until_us
