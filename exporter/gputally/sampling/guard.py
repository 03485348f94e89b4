"""What keeps one source from hurting the others: its own thread, its own record, and a net under its call."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from gputally.model import SourceState, Unavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one source answered one look."""

    source: str
    ended_at: float
    seconds: float
    answer: Any = None
    reason: str = ""
    fix: str = ""


@dataclass(slots=True)
class Record:
    """What is remembered of one reader between samples."""

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
    read_errors: dict[tuple[str, str], int] = field(default_factory=dict)
    implausible: Counter[tuple[str, str]] = field(default_factory=Counter)

    def succeed(self, attempt: Attempt, found: str) -> None:
        if not self.up:
            log.info("source %s is up: %s", self.name, found)
        self.tried, self.up, self.reason, self.fix = True, True, "", ""
        self.duration_seconds = attempt.seconds
        self.last_success_seconds = time.time()

    def refuse(self, attempt: Attempt) -> None:
        self.failures += 1
        self.fail(attempt.reason, attempt.fix)

    def overrun(self, timeout_seconds: float, fix: str) -> None:
        self.overruns += 1
        self.fail(f"no answer within {timeout_seconds:g} s", fix)

    def fail(self, reason: str, fix: str = "") -> None:
        if reason != self.reason:
            log.warning("source %s is down: %s%s", self.name, reason, f" ({fix})" if fix else "")
        self.tried, self.up, self.reason, self.fix, self.gpus = True, False, reason, fix, 0

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
            errors={**self.read_errors, **self.implausible},
        )


class Worker:
    """A thread that looks, one look at a time, and leaves its attempts behind.

    Everything else belongs to the sampling thread, so that a look which ends late cannot change a
    snapshot in the making.
    """

    def __init__(self, name: str, look: Callable[[], list[Attempt]]) -> None:
        self._name = name
        self._look = look
        self._attempts: list[Attempt] = []
        self._idle = threading.Event()
        self._idle.set()
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    def start(self) -> None:
        self._idle.clear()
        if self._thread is None:
            # A daemon: a call that never returns must not keep the program from ending.
            self._thread = threading.Thread(target=self._work, daemon=True, name=f"read-{self._name}")
            self._thread.start()
        self._wake.release()

    def wait(self, seconds: float) -> bool:
        return self._idle.wait(seconds)

    def take(self) -> list[Attempt]:
        attempts, self._attempts = self._attempts, []
        return attempts

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            self._attempts = self._look()
            self._idle.set()


class Readable(Protocol):
    """What can be asked, again and again."""

    @property
    def name(self) -> str: ...
    def read(self) -> Any: ...
    def close(self) -> None: ...


class Guarded(ABC):
    """Somebody who is asked with every sample, and may fail or hang. For the sampling thread alone."""

    def __init__(self, source: Readable, when_late: str) -> None:
        """`when_late` is what to do about it when it does not answer in time."""
        self._source = source
        self._when_late = when_late
        self._record = Record(source.name)
        self._worker = Worker(source.name, lambda: [attempt(source.name, source.read)])

    def start(self) -> None:
        """Begin a look, unless the last one still runs."""
        if not self._worker.busy:
            self._absorb()
            self._worker.start()

    def finish(self, wait_seconds: float, timeout_seconds: float) -> None:
        """Take in what the look gave; say so when it does not end in time."""
        if self._worker.wait(wait_seconds):
            self._absorb()
        else:
            self._record.overrun(timeout_seconds, self._when_late)

    def state(self) -> SourceState:
        return self._record.state()

    def close(self, wait_seconds: float) -> None:
        if self._worker.wait(wait_seconds):
            self._source.close()

    def _absorb(self) -> None:
        for one in self._worker.take():
            self._take_in(one)

    @abstractmethod
    def _take_in(self, one: Attempt) -> None:
        """Keep the answer, and tell the record how it went."""


def attempt(source: str, read: Callable[[], Any]) -> Attempt:
    started = time.monotonic()
    answer, reason, fix = None, "", ""
    try:
        answer = read()
    except Unavailable as unavailable:
        reason, fix = unavailable.reason, unavailable.fix
    except Exception as error:
        log.debug("source %s failed", source, exc_info=True)
        reason = f"unexpected {type(error).__name__}: {error}"
        fix = "please report this, with the log of --log-level debug"
    ended = time.monotonic()
    return Attempt(source, ended, ended - started, answer, reason, fix)
