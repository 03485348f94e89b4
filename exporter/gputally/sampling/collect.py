"""Runs every source on its own thread, guarded, and makes one `Snapshot` of what they say.

A source that fails is reported and does not touch the others. A source that overruns its time is
reported and not waited for: its last good readings stay until they are too old to be believed.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gputally.attribution import Found, Knowledge, KnowledgeSource
from gputally.attribution.join import (
    Device,
    Directory,
    count_uses,
    ended_pids,
    find_holders,
    join_knowledge,
    list_pods,
    list_residents,
    listed_pids,
)
from gputally.devices import Reader, Report
from gputally.devices.plausible import drop_implausible
from gputally.devices.vendors import VENDORS
from gputally.ledger import Ledger
from gputally.model import Owner, PodOnGpu, Reading, Resident, Snapshot, SourceState, Unknown, Use
from gputally.sampling.guard import Attempt, Guarded, Record, Worker, attempt

if TYPE_CHECKING:
    from gputally.sampling.checkpoint import Checkpoint

log = logging.getLogger(__name__)

_DRIVER_MESSAGES = "|".join(vendor.kernel_log for vendor in VENDORS)


class OwnerFinder(Protocol):
    """Knows whose a process is."""

    def find(
        self, listed: Iterable[int], directory: Directory, ended: Iterable[int] = ()
    ) -> dict[int, Found]:
        """Look up those that the driver lists, and those that have ended; an `Unknown` says why not."""
        ...


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who is on the GPUs, at one moment."""

    residents: tuple[Resident, ...] = ()
    holders: tuple[tuple[Device, Owner], ...] = ()
    uses: tuple[Use, ...] = ()
    pods: tuple[PodOnGpu, ...] = ()


class Source:
    """Readers of the same GPUs, best first: the first that works is used."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = tuple(readers)
        self._records = {reader.name: Record(reader.name) for reader in readers}
        self._asking = self._readers[0].name
        self._worker = Worker(self._asking, self._look)
        self._readings: tuple[Reading, ...] = ()
        self._read_at = time.monotonic()

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
            self._records[self._asking].overrun(
                timeout_seconds,
                f"look for driver errors: dmesg | grep -iE '{_DRIVER_MESSAGES}'",
            )

    @property
    def read_at_us(self) -> int:
        """When the readings were taken, by the monotonic clock; the same as before when they are old."""
        return round(self._read_at * 1_000_000)

    @property
    def up(self) -> bool:
        return any(record.up for record in self._records.values())

    @property
    def age_seconds(self) -> float:
        """How long a look that does not end has kept the readings from being renewed."""
        hanging = not self.up and self._worker.busy
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
        if self._worker.wait(wait_seconds):
            for reader in self._readers:
                reader.close()

    def _look(self) -> list[Attempt]:
        attempts: list[Attempt] = []
        for reader in self._readers:
            self._asking = reader.name
            attempts.append(attempt(reader.name, reader.read))
            if attempts[-1].answer is not None:
                break
        return attempts

    def _absorb(self) -> None:
        attempts = self._worker.take()
        if not attempts:
            return
        for record in self._records.values():
            record.tried = False
        for one in attempts:
            record = self._records[one.source]
            if one.answer is None:
                record.refuse(one)
                continue
            report: Report = one.answer
            self._read_at = one.ended_at
            record.succeed(one, f"{len(report.readings)} GPUs")
            record.gpus = len(report.readings)
            record.read_errors = dict(report.errors)
            self._readings = self._with_missing(
                tuple(self._plausible(reading, record) for reading in report.readings)
            )
        for record in self._records.values():
            record.up = record.up and record.tried

    @staticmethod
    def _plausible(reading: Reading, record: Record) -> Reading:
        reading, dropped = drop_implausible(reading)
        record.implausible.update((name, "implausible") for name in dropped)
        return reading

    def _with_missing(self, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        """GPUs seen before, by whichever reader, do not vanish: they are down."""
        present = {reading.gpu.uuid for reading in readings}
        # A GPU that was lost before it said who it is has no uuid; it is found again under another name.
        missing = (old for old in self._readings if old.gpu.uuid and old.gpu.uuid not in present)
        return readings + tuple(old.lost() for old in missing)


class Informant(Guarded):
    """A source of knowledge about pods. What it knew stays known while it does not answer."""

    def __init__(self, source: KnowledgeSource) -> None:
        super().__init__(source, "look at the kubelet: systemctl status kubelet")
        self.name = source.name
        self.knowledge = Knowledge()

    def _take_in(self, one: Attempt) -> None:
        if one.answer is None:
            self._record.refuse(one)
            return
        self.knowledge = one.answer
        if self.knowledge.stale:
            self._record.fail(*self.knowledge.stale)
        else:
            self._record.succeed(one, f"{len(self.knowledge.pods)} pods")


class Collector:
    """Takes snapshots of all sources, at a steady pace."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        timeout_seconds: float,
        max_age_seconds: float,
        ledger: Ledger,
        owners: OwnerFinder,
        informants: Sequence[Informant] = (),
        guests: Sequence[Guarded] = (),
        checkpoint: "Checkpoint | None" = None,
    ) -> None:
        """`guests` are asked with the others; of what they say, the snapshot has but how they are."""
        self._sources = tuple(sources)
        self._informants = tuple(informants)
        self._guests = tuple(guests)
        self._owners = owners
        self._ledger = ledger
        self._checkpoint = checkpoint
        self._cgroups = Record("cgroup")
        self._books = Record("ledger")
        self._timeout_seconds = timeout_seconds
        self._max_age_seconds = max_age_seconds
        self._settled_us: dict[Source, int] = {}
        self._looked_at_seconds: float | None = None
        self._pods: dict[tuple[str, str], PodOnGpu] = {}

    def sample(self) -> Snapshot:
        """One look at every source, in parallel, in no more than the timeout."""
        deadline = time.monotonic() + self._timeout_seconds
        guarded = self._guarded()
        for one in guarded:
            one.start()
        for one in guarded:
            one.finish(max(0.0, deadline - time.monotonic()), self._timeout_seconds)
        readings = {source: source.readings(self._max_age_seconds) for source in self._sources}
        every = tuple(reading for some in readings.values() for reading in some)
        directory = join_knowledge({informant.name: informant.knowledge for informant in self._informants})
        attribution = self._attribute(every, directory)
        self._settle(readings, attribution)
        charges = self._ledger.charges()
        if self._checkpoint is not None:
            # Before it is published: an exporter that is killed now goes on from no less than was scraped.
            self._checkpoint.write(self._ledger.state(), self._timeout_seconds)
        return Snapshot(
            taken_at_seconds=time.time(),
            age_seconds=max(source.age_seconds for source in self._sources),
            readings=every,
            sources=tuple(self._states()),
            uses=attribution.uses,
            books=self._ledger.books(),
            charges=charges,
            processes=self._ledger.processes(),
            pods=self._with_former(attribution.pods, (charge.owner for charge in charges)),
            node_labels=directory.node_labels,
        )

    def _guarded(self) -> list[Source | Guarded]:
        return [*self._sources, *self._informants, *self._guests]

    def _states(self) -> Iterable[SourceState]:
        for source in self._sources:
            yield from source.states()
        for informant in self._informants:
            yield informant.state()
        yield self._cgroups.state()
        yield self._books.state()
        for guest in self._guests:
            yield guest.state()
        if self._checkpoint is not None:
            yield self._checkpoint.state()

    def _attribute(self, readings: tuple[Reading, ...], directory: Directory) -> Attribution:
        since, self._looked_at_seconds = self._looked_at_seconds, time.time()
        found: dict[int, Found] = {}

        def look() -> Attribution:
            found.update(self._owners.find(listed_pids(readings), directory, ended_pids(readings)))
            residents = list_residents(readings, found, since_seconds=since)
            holders = find_holders(readings, directory)
            uses = count_uses(readings, residents, holders)
            return Attribution(residents, holders, uses, list_pods(uses, directory))

        answered = attempt("cgroup", look)
        if answered.answer is None:
            self._cgroups.refuse(answered)
            return Attribution()
        if any(one.owner == Unknown("pid_namespace") for one in found.values()):
            self._cgroups.fail(
                "no process of the driver's list is to be seen: the exporter is in another pid namespace",
                "share the host's pid namespace (hostPID: true, docker run --pid=host), or give --procfs",
            )
        else:
            self._cgroups.succeed(answered, f"{len(found)} processes")
        attribution: Attribution = answered.answer
        return attribution

    def _settle(self, readings: Mapping[Source, tuple[Reading, ...]], attribution: Attribution) -> None:
        """Feed the ledger with what is new; old readings of a source that hangs were settled before."""

        def settle() -> int:
            now_us = round(time.monotonic() * 1_000_000)
            for source, some in readings.items():
                fresh = self._settled_us.get(source) != source.read_at_us
                self._settled_us[source] = source.read_at_us
                self._ledger.settle(
                    at_us=source.read_at_us if fresh else now_us,
                    now_seconds=time.time(),
                    readings=some if fresh else tuple(reading for reading in some if not reading.up),
                    residents=attribution.residents,
                    holders=attribution.holders,
                )
            self._ledger.retire(now_us)
            return len(readings)

        settled = attempt("ledger", settle)
        if settled.answer is None:
            self._books.refuse(settled)
        else:
            self._books.succeed(settled, "the books are open")
            self._books.read_errors = dict(self._ledger.problems())

    def _with_former(self, pods: tuple[PodOnGpu, ...], owners: Iterable[Owner]) -> tuple[PodOnGpu, ...]:
        """The pods, and those that have gone but are still in the books, as they were."""
        known = {**self._pods, **{(pod.namespace, pod.pod): pod for pod in pods}}
        self._pods = {
            (owner.namespace, owner.pod): known.get((owner.namespace, owner.pod))
            or PodOnGpu(owner.namespace, owner.pod, owner.pod_uid)
            for owner in owners
            if owner.kind == "pod"
        } | {(pod.namespace, pod.pod): pod for pod in pods}
        return tuple(self._pods.values())

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
        for one in self._guarded():
            one.close(wait_seconds)
        if self._checkpoint is not None:
            self._checkpoint.close(wait_seconds, self._ledger.state())
