"""Runs every source on its own thread, guarded, and builds one `Snapshot` of the results.

A source that fails is reported and does not affect the others. A source that overruns its time is reported
and not waited for: its last good readings stay until they are too old.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gputally.attribution import OwnerFinder
from gputally.attribution.owners import Attribution
from gputally.attribution.resolve import index_pods
from gputally.ledger import Ledger
from gputally.ledger.clock import suspended_us
from gputally.model import Charge, GpuLedger, ProcessCharge, Reading, Snapshot, SourceState
from gputally.sampling.guard import Guarded, Record, attempt
from gputally.sampling.owners import GuardedAttributor
from gputally.sampling.sources import GuardedPodSource, GuardedReaders

if TYPE_CHECKING:
    from gputally.sampling.checkpoint import Checkpoint

log = logging.getLogger(__name__)


class Published(NamedTuple):
    """What the ledger serves. The energy of each GPU is the sum of all parts."""

    gpu_ledgers: tuple[GpuLedger, ...] = ()
    charges: tuple[Charge, ...] = ()
    processes: tuple[ProcessCharge, ...] = ()


class Collector:
    """Takes snapshots of all sources, at a steady pace."""

    def __init__(
        self,
        readers: Sequence[GuardedReaders],
        *,
        timeout_seconds: float,
        max_age_seconds: float,
        ledger: Ledger,
        owners: OwnerFinder,
        pod_sources: Sequence[GuardedPodSource] = (),
        other_sources: Sequence[Guarded] = (),
        checkpoint: "Checkpoint | None" = None,
    ) -> None:
        """`other_sources` are read with the rest; only their health enters the snapshot."""
        self._readers = tuple(readers)
        self._pod_sources = tuple(pod_sources)
        self._other_sources = tuple(other_sources)
        self._attributor = GuardedAttributor(owners)
        self._ledger = ledger
        self._checkpoint = checkpoint
        self._ledger_record = Record("ledger")
        self._timeout_seconds = timeout_seconds
        self._max_age_seconds = max_age_seconds
        self._settled_us: dict[str, int] = {}  # uuid -> time of the reading
        self._published: Published | None = None
        self._attributed_at = time.monotonic()

    def sample(self) -> Snapshot:
        """Reads every source, in parallel, in no more than the timeout."""
        deadline = time.monotonic() + self._timeout_seconds
        guarded = self._guarded()
        for one in guarded:
            one.start()
        for one in guarded:
            one.finish(max(0.0, deadline - time.monotonic()), self._timeout_seconds)
        readings = {readers: readers.readings(self._max_age_seconds) for readers in self._readers}
        every = tuple(reading for some in readings.values() for reading in some)
        pods = index_pods({source.name: source.report for source in self._pod_sources})
        attribution = self._attributor.attribute(every, pods, self._timeout_seconds)
        published = self._publish(readings, attribution)
        attribution = attribution or Attribution()
        return Snapshot(
            taken_at_seconds=time.time(),
            age_seconds=max(*(readers.age_seconds for readers in self._readers), _age_of_late(every)),
            readings=every,
            sources=tuple(self._states()),
            uses=attribution.uses,
            gpu_ledgers=published.gpu_ledgers,
            charges=published.charges,
            processes=published.processes,
            pods=self._attributor.with_exited(
                attribution.pods, (charge.owner for charge in published.charges)
            ),
            node_labels=pods.node_labels,
        )

    def _guarded(self) -> list[Guarded]:
        return [*self._readers, *self._pod_sources, *self._other_sources]

    def _states(self) -> Iterable[SourceState]:
        for guarded in (*self._readers, *self._pod_sources):
            yield from guarded.states()
        yield self._attributor.state()
        yield self._ledger_record.state()
        for guarded in self._other_sources:
            yield from guarded.states()
        if self._checkpoint is not None:
            yield self._checkpoint.state()

    def _publish(
        self, readings: Mapping[GuardedReaders, tuple[Reading, ...]], attribution: Attribution | None
    ) -> Published:
        """Settles the ledger; what it may serve now."""
        record = self._ledger_record
        settled = attempt(record.name, lambda: self._settle(readings, attribution))
        # Before it is published: an exporter that is killed now resumes from no less than was scraped.
        saved = self._checkpoint is None or self._checkpoint.write(
            self._ledger.state(), self._timeout_seconds
        )
        if settled.result is None:
            record.fail(settled)
        elif saved:
            record.succeed(settled, "the ledger is open")
        else:
            record.mark_down(
                "charges are withheld: the state file can be neither replaced nor removed, and an exporter "
                "that resumes from it would charge them again",
                "mend the source state_file, or set another --state-file",
            )
        record.read_errors = dict(self._ledger.problems())
        now = Published(self._ledger.gpu_ledgers(), self._ledger.charges(), self._ledger.processes())
        if saved:
            self._published = now
        return self._published or Published(tuple(map(_unopened, now.gpu_ledgers)))

    def _settle(
        self, readings: Mapping[GuardedReaders, tuple[Reading, ...]], attribution: Attribution | None
    ) -> int:
        """Feeds the ledger with new readings; those of a reader or GPU that hangs were settled before."""
        now_seconds, suspended = time.monotonic(), suspended_us()
        if attribution is not None:
            self._attributed_at = now_seconds
        elif now_seconds - self._attributed_at <= self._max_age_seconds:
            return 0  # the window stays open: its energy is charged once the owners are known again
        for readers, some in readings.items():
            new = [one for one in some if not one.up or self._is_new(one, readers.read_at_us)]
            self._ledger.settle(
                at_us=readers.read_at_us,
                suspended_us=suspended,
                now_seconds=time.time(),
                readings=new if attribution else list(map(_without_processes, new)),
                residents=attribution.residents if attribution else (),
                holders=attribution.holders if attribution else (),
            )
        self._ledger.expire(round(now_seconds * 1_000_000) + suspended)
        return len(readings)

    def _is_new(self, reading: Reading, read_at_us: int) -> bool:
        at_us = read_at_us if reading.read_at_us is None else reading.read_at_us
        before, self._settled_us[reading.gpu.uuid] = self._settled_us.get(reading.gpu.uuid), at_us
        return at_us != before

    def run(
        self, interval_seconds: float, publish: Callable[[Snapshot], None], stop: threading.Event
    ) -> None:
        """Samples until stopped. A sample that takes too long delays the next one and does not double it."""
        due = time.monotonic()
        while not stop.is_set():
            try:
                publish(self.sample())
            except Exception:
                log.exception("a snapshot could not be published; the last one stays")
            due = max(due + interval_seconds, time.monotonic())
            stop.wait(due - time.monotonic())

    def close(self, wait_seconds: float) -> None:
        for one in self._guarded():
            one.close(wait_seconds)
        if self._checkpoint is not None:
            self._checkpoint.close(wait_seconds)


def _unopened(ledger: GpuLedger) -> GpuLedger:
    """The energy of a GPU whose accounts must not be served yet."""
    return replace(ledger, unattributed_millijoules={("initial",): ledger.energy_millijoules})


def _without_processes(reading: Reading) -> Reading:
    """A reading whose processes are not known."""
    mig = tuple(replace(one, processes=None) for one in reading.mig)
    return replace(reading, processes=None, mig=mig)


def _age_of_late(readings: Iterable[Reading]) -> float:
    """The age of the oldest reading of a GPU that hangs while others are read; 0 if there is none."""
    now_us = round(time.monotonic() * 1_000_000)
    ages_us = [now_us - one.read_at_us for one in readings if one.up and one.late and one.read_at_us]
    return max(ages_us, default=0) / 1_000_000
