"""Runs every source on its own thread, guarded, and makes one `Snapshot` of what they say.

A source that fails is reported and does not touch the others. A source that overruns its time is
reported and not waited for: its last good readings stay until they are too old to be believed.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gputally.devices import Reader, Report, Unavailable
from gputally.devices.plausible import drop_implausible
from gputally.model import Reading, Snapshot, SourceState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Record:
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

    def succeed(self, report: Report, seconds: float) -> None:
        if not self.up:
            log.info("source %s is up: %d GPUs", self.name, len(report.readings))
        self.tried, self.up, self.reason, self.fix = True, True, "", ""
        self.gpus = len(report.readings)
        self.duration_seconds = seconds
        self.last_success_seconds = time.time()
        self.read_errors = dict(report.errors)

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


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How one reader answered one look."""

    reader: str
    ended_at: float
    seconds: float
    report: Report | None = None
    reason: str = ""
    fix: str = ""


class Source:
    """Readers of the same GPUs, best first: the first that works is used, one look at a time.

    The worker thread only looks and leaves its attempts behind; everything else belongs to the
    sampling thread, so that a look which ends late cannot change a snapshot in the making.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = tuple(readers)
        self._records = {reader.name: _Record(reader.name) for reader in readers}
        self._asking = self._readers[0].name
        self._attempts: list[_Attempt] = []
        self._idle = threading.Event()
        self._idle.set()
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._readings: tuple[Reading, ...] = ()
        self._read_at = time.monotonic()

    def start(self) -> None:
        """Begin a look, unless the last one still runs."""
        if not self._idle.is_set():
            return
        self._absorb()
        self._idle.clear()
        if self._thread is None:
            # A daemon: a driver call that never returns must not keep the program from ending.
            self._thread = threading.Thread(target=self._work, daemon=True, name=f"read-{self._asking}")
            self._thread.start()
        self._wake.release()

    def finish(self, wait_seconds: float, timeout_seconds: float) -> None:
        """Take in what the look gave; say so when it does not end in time."""
        if self._idle.wait(wait_seconds):
            self._absorb()
            return
        record = self._records[self._asking]
        record.overruns += 1
        record.fail(f"no answer within {timeout_seconds:g} s", "look for driver errors: dmesg | grep -i nvrm")

    @property
    def up(self) -> bool:
        return any(record.up for record in self._records.values())

    @property
    def age_seconds(self) -> float:
        """How long a look that does not end has kept the readings from being renewed."""
        hanging = not self.up and not self._idle.is_set()
        return time.monotonic() - self._read_at if hanging else 0.0

    def readings(self, max_age_seconds: float) -> tuple[Reading, ...]:
        """The last good readings; only who the GPUs are, once those are too old or the source said no."""
        if self.up or 0 < self.age_seconds <= max_age_seconds:
            return self._readings
        return tuple(reading.lost() for reading in self._readings)

    def states(self) -> tuple[SourceState, ...]:
        return tuple(record.state() for record in self._records.values() if record.tried)

    def close(self, wait_seconds: float) -> None:
        """Let go of the hardware; a look that hangs is left behind."""
        if self._idle.wait(wait_seconds):
            for reader in self._readers:
                reader.close()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            self._attempts = self._look()
            self._idle.set()

    def _look(self) -> list[_Attempt]:
        attempts: list[_Attempt] = []
        for reader in self._readers:
            self._asking = reader.name
            attempts.append(_attempt(reader))
            if attempts[-1].report is not None:
                break
        return attempts

    def _absorb(self) -> None:
        attempts, self._attempts = self._attempts, []
        if not attempts:
            return
        for record in self._records.values():
            record.tried = False
        for attempt in attempts:
            record = self._records[attempt.reader]
            if attempt.report is None:
                record.failures += 1
                record.fail(attempt.reason, attempt.fix)
                continue
            self._read_at = attempt.ended_at
            record.succeed(attempt.report, attempt.seconds)
            readings = tuple(self._plausible(reading, record) for reading in attempt.report.readings)
            self._readings = self._with_missing(readings)
        for record in self._records.values():
            record.up = record.up and record.tried

    @staticmethod
    def _plausible(reading: Reading, record: _Record) -> Reading:
        reading, dropped = drop_implausible(reading)
        record.implausible.update((name, "implausible") for name in dropped)
        return reading

    def _with_missing(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """GPUs seen before, by whichever reader, do not vanish: they are down."""
        present = {reading.gpu.uuid for reading in readings}
        # A GPU that was lost before it said who it is has no uuid; it is found again under another name.
        missing = (old for old in self._readings if old.gpu.uuid and old.gpu.uuid not in present)
        return readings + tuple(old.lost() for old in missing)


def _attempt(reader: Reader) -> _Attempt:
    started = time.monotonic()
    report, reason, fix = None, "", ""
    try:
        report = reader.read()
    except Unavailable as unavailable:
        reason, fix = unavailable.reason, unavailable.fix
    except Exception as error:
        log.debug("source %s failed", reader.name, exc_info=True)
        reason = f"unexpected {type(error).__name__}: {error}"
        fix = "please report this, with the log of --log-level debug"
    ended = time.monotonic()
    return _Attempt(reader.name, ended, ended - started, report, reason, fix)


class Collector:
    """Takes snapshots of all sources, at a steady pace."""

    def __init__(self, sources: Sequence[Source], *, timeout_seconds: float, max_age_seconds: float) -> None:
        self._sources = tuple(sources)
        self._timeout_seconds = timeout_seconds
        self._max_age_seconds = max_age_seconds

    def sample(self) -> Snapshot:
        """One look at every source, in parallel, in no more than the timeout."""
        deadline = time.monotonic() + self._timeout_seconds
        for source in self._sources:
            source.start()
        for source in self._sources:
            source.finish(max(0.0, deadline - time.monotonic()), self._timeout_seconds)
        return Snapshot(
            taken_at_seconds=time.time(),
            age_seconds=max(source.age_seconds for source in self._sources),
            readings=tuple(r for source in self._sources for r in source.readings(self._max_age_seconds)),
            sources=tuple(state for source in self._sources for state in source.states()),
        )

    def run(
        self, interval_seconds: float, publish: Callable[[Snapshot], None], stop: threading.Event
    ) -> None:
        """Sample until told to stop. A sample that took too long makes the next one late, not double."""
        due = time.monotonic()
        while not stop.is_set():
            try:
                publish(self.sample())
            except Exception:
                log.exception("a snapshot could not be published; the last one stays")
            due = max(due + interval_seconds, time.monotonic())
            stop.wait(due - time.monotonic())

    def close(self, wait_seconds: float) -> None:
        for source in self._sources:
            source.close(wait_seconds)
