"""Isolates each source: a thread of its own, a record of its health, and contained exceptions."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gputally.model import SourceState, Unavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One read of one source: its result, or the reason why there is none."""

    source: str
    ended_at: float
    """Seconds of the monotonic clock."""
    seconds: float
    result: Any = None
    reason: str = ""
    fix: str = ""
    exit_code: int | None = None


@dataclass(slots=True)
class Record:
    """The health of one source, kept from sample to sample."""

    name: str
    tried: bool = False
    up: bool = False
    reason: str = ""
    fix: str = ""
    gpus: int = 0
    duration_seconds: float | None = None
    last_success_seconds: float | None = None
    failures: int = 0
    overruns: int = 0
    exit_code: int | None = None
    read_errors: dict[tuple[str, str], int] = field(default_factory=dict)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)

    def succeed(self, attempt: Attempt, summary: str) -> None:
        if not self.up:
            log.info("source %s is up: %s", self.name, summary)
        self.tried, self.up, self.reason, self.fix = True, True, "", ""
        self.duration_seconds = attempt.seconds
        self.last_success_seconds = time.time()

    def fail(self, attempt: Attempt) -> None:
        """Counts a failed attempt and marks the source as down."""
        self.failures += 1
        self.mark_down(attempt.reason, attempt.fix)
        self.exit_code = attempt.exit_code

    def overrun(self, timeout_seconds: float, fix: str) -> None:
        self.overruns += 1
        self.mark_down(f"no answer within {timeout_seconds:g} s", fix)

    def mark_down(self, reason: str, fix: str = "") -> None:
        if reason != self.reason:
            log.warning("source %s is down: %s%s", self.name, reason, f" ({fix})" if fix else "")
        self.tried, self.up, self.reason, self.fix, self.gpus = True, False, reason, fix, 0
        self.exit_code = None

    def leave_out(self, left_out: Mapping[str, int]) -> None:
        """Counts what is beyond a limit, and reports each kind of object once."""
        for kind, number in left_out.items():
            if number and not self.dropped[kind, "limit"]:
                log.warning("source %s: %d %s are beyond the limit and left out", self.name, number, kind)
            if number:
                self.dropped[kind, "limit"] += number

    def state(self) -> SourceState:
        return SourceState(
            name=self.name,
            up=self.up,
            reason=self.reason,
            fix=self.fix,
            gpus=self.gpus,
            duration_seconds=self.duration_seconds,
            last_success_seconds=self.last_success_seconds,
            failures=self.failures,
            overruns=self.overruns,
            exit_code=self.exit_code,
            errors={**self.read_errors, **self.dropped},
        )


class Worker:
    """A thread that reads on request, one read at a time, and keeps the attempts until they are taken.

    All other state belongs to the sampling thread, so that a late read cannot change a snapshot that is
    being built.
    """

    def __init__(self, name: str, read: Callable[[], list[Attempt]]) -> None:
        self._name = name
        self._read = read
        self._attempts: list[Attempt] = []
        # Plain locks: an Event and a Semaphore take several times the CPU time to hand over.
        self._reading = threading.Lock()
        self._requests = threading.Lock()
        self._requests.acquire()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._reading.locked()

    def start(self) -> None:
        """Does nothing while a read runs."""
        if not self._reading.acquire(blocking=False):
            return
        if self._thread is None:
            # A daemon: a call that never returns must not keep the program from ending.
            self._thread = threading.Thread(target=self._run, daemon=True, name=f"read-{self._name}")
            self._thread.start()
        self._requests.release()

    def wait(self, seconds: float) -> bool:
        """Whether the read has ended within that time."""
        ended = self._reading.acquire(timeout=seconds)
        if ended:
            self._reading.release()
        return ended

    def take(self) -> list[Attempt]:
        attempts, self._attempts = self._attempts, []
        return attempts

    def _run(self) -> None:
        while True:
            self._requests.acquire()
            self._attempts = self._read()
            self._reading.release()


class Readable(Protocol):
    """A source that can be read repeatedly."""

    @property
    def name(self) -> str: ...
    def read(self) -> Any: ...
    def close(self) -> None: ...


class Guarded(ABC):
    """Sources of the same data, best first; each sample uses the first one that works.

    They may fail or hang. Used by the sampling thread only.
    """

    def __init__(self, sources: Sequence[Readable], overrun_fix: str) -> None:
        """`overrun_fix` is the advice for a read that does not end in time."""
        self._sources = tuple(sources)
        self._overrun_fix = overrun_fix
        self._records = {source.name: Record(source.name) for source in sources}
        self._current = self._sources[0].name
        self._worker = Worker(self._current, self._read)

    def start(self) -> None:
        """Starts a read, unless the last one still runs."""
        if not self._worker.busy:
            self._absorb()
            self._worker.start()

    def finish(self, wait_seconds: float, timeout_seconds: float) -> None:
        """Takes in the result of the read; records an overrun when it does not end in time."""
        if self._worker.wait(wait_seconds):
            self._absorb()
        else:
            self._records[self._current].overrun(timeout_seconds, self._overrun_fix)

    def state(self) -> SourceState:
        """The health of the source that was read last."""
        return self._records[self._current].state()

    def states(self) -> tuple[SourceState, ...]:
        """The health of each source that was tried."""
        return tuple(record.state() for record in self._records.values() if record.tried)

    def close(self, wait_seconds: float) -> None:
        """Closes the sources; a read that hangs is abandoned."""
        if self._worker.wait(wait_seconds):
            for source in self._sources:
                source.close()

    def _read(self) -> list[Attempt]:
        attempts: list[Attempt] = []
        for source in self._sources:
            self._current = source.name
            attempts.append(attempt(source.name, source.read))
            if attempts[-1].result is not None:
                break
        return attempts

    def _absorb(self) -> None:
        attempts = self._worker.take()
        if not attempts:
            return
        for record in self._records.values():
            record.tried = False
        for one in attempts:
            self._take_in(one, self._records[one.source])
        for record in self._records.values():
            record.up = record.up and record.tried

    @abstractmethod
    def _take_in(self, one: Attempt, record: Record) -> None:
        """Keeps the result, if there is one, and updates the record."""


def attempt(source: str, read: Callable[[], Any]) -> Attempt:
    """Calls `read`; whatever it raises becomes the reason of a failed attempt."""
    started = time.monotonic()
    result, reason, fix, exit_code = None, "", "", None
    try:
        result = read()
    except Unavailable as unavailable:
        reason, fix, exit_code = unavailable.reason, unavailable.fix, unavailable.exit_code
    except Exception as error:
        log.debug("source %s failed", source, exc_info=True)
        reason = f"unexpected {type(error).__name__}: {error}"
        fix = "report this as a bug, with the log of --log-level debug"
    ended = time.monotonic()
    return Attempt(source, ended, ended - started, result, reason, fix, exit_code)
