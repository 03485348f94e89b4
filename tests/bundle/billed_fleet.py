"""A random fleet for the bill, and what is true of it: what each owner used, and what the meters counted.

The ledger and the metrics are the exporter's own, with GPUs whose energy is known to the millijoule. Jobs
take from 5 seconds to all the time; exporters restart with and without their state, nodes boot, scrapes fail
and Prometheus is away.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from gputally.ledger import Ledger
from gputally.ledger.window import account_of
from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.model import Charge, Gpu, MigInstance, MigReading, Owner, PodInfo, Reading, Snapshot
from tools.replay.tape import Tape, encode_series, with_target

STEP = 5
"""Seconds between two samples of an exporter."""
RETENTION = 300
MODEL = "NVIDIA H100 80GB HBM3"
_FACTS = ExporterFacts(version="1", python="3", hostname="node")
IDLE_WATTS = 70
_Account = tuple[str, tuple[str, ...]]


@dataclass
class Job:
    """A pod on one device, allocated to it by the kubelet."""

    owner: Owner
    uuid: str
    until: float
    watts: int


@dataclass
class Truth:
    """Since the first scrape, all nodes together."""

    millijoules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(namespace, pod) -> charged by the ledger."""
    held_us: Counter[tuple[str, str]] = field(default_factory=Counter)
    whole_gpu_us: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The same in whole GPUs: a MIG device is the part of its GPU that its memory is."""
    meter_millijoules: int = 0
    """By the counters of the hardware, without what they lost in a boot before it was scraped."""
    meter_doubt: int = 0
    """Of it, scraped before a boot; the evaluation after that may have come too late for it."""
    lost_millijoules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Charged to a pod after its last scrape: no row of the bill has it."""
    difference_millijoules: int = 0
    """The part of it that the meter has."""
    doubt: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Charged to a pod between the last evaluation and the last scrape before its account was closed."""


class Node:
    """One node with one exporter."""

    def __init__(
        self, name: str, luck: Random, truth: Truth, *, gpus: int, divided: bool, now: float
    ) -> None:
        self.name = name
        self.jobs: list[Job] = []
        self.tapes: list[Tape] = []
        self._luck = luck
        self._truth = truth
        self._gpus = [Gpu(f"GPU-{name}-{number}", number, "nvidia", MODEL) for number in range(gpus)]
        self._divided = divided
        self._hardware = {gpu.uuid: luck.randrange(10**9, 10**12) for gpu in self._gpus}
        self._ledger: Ledger | None = self._new_ledger(None)
        self._known: dict[_Account, Charge] = {}
        self._scraped: dict[_Account, int] = {}
        self._scraped_hardware: dict[str, int] = {}
        self._evaluated: dict[_Account, int] = {}
        self._evaluated_hardware = dict(self._hardware)
        self._instance = 0
        self._booted_at = now
        self._snapshot: Snapshot | None = None

    def devices(self) -> list[str]:
        first, *rest = self._gpus
        mig = [f"MIG-{self.name}-{number}" for number in range(2)] if self._divided else [first.uuid]
        return [*mig, *(gpu.uuid for gpu in rest)]

    @property
    def exporter_runs(self) -> bool:
        return self._ledger is not None

    def start_exporter(self, state: str | None) -> None:
        self._ledger = self._new_ledger(None if state is None else json.loads(state))
        self._instance += 1
        if state is None:
            for account in list(self._known):
                self._close(account)

    def stop_exporter(self) -> str | None:
        """Returns its state."""
        ledger, self._ledger, self._snapshot = self._ledger, None, None
        return None if ledger is None else json.dumps(ledger.state())

    def boot(self, now: float) -> None:
        """Pods end, and the counters of the hardware begin at 0."""
        self.jobs.clear()
        for uuid, counted in self._hardware.items():
            scraped = self._scraped_hardware.get(uuid, self._evaluated_hardware[uuid])
            self._truth.meter_millijoules -= counted - scraped
            self._truth.meter_doubt += scraped - self._evaluated_hardware[uuid]
        self._hardware = dict.fromkeys(self._hardware, 0)
        self._scraped_hardware = self._evaluated_hardware = dict(self._hardware)
        self._booted_at = now
        self.stop_exporter()

    def step(self, now: float) -> None:
        """Lets five seconds pass."""
        self.jobs = [job for job in self.jobs if job.until > now]
        for gpu in self._gpus:
            watts = IDLE_WATTS + sum(job.watts for job in self.jobs if self._gpu_of(job.uuid) is gpu)
            used = watts * STEP * 1000 + self._luck.randrange(1000)
            self._hardware[gpu.uuid] += used
            self._truth.meter_millijoules += used
        if self._ledger is not None:
            self._sample(self._ledger, now)

    def scrape(self, replica: int, now: float) -> bool:
        """Whether the exporter responds."""
        while len(self.tapes) <= replica:
            self.tapes.append(Tape(0.01))
        if self._snapshot is None:
            self.tapes[replica].miss(round(now * 1000))
            return False
        self.tapes[replica].scrape(build_families(self._snapshot, _FACTS), round(now * 1000))
        if replica == 0:
            self._scraped = {account: _millijoules(charge) for account, charge in self._known.items()}
            self._scraped_hardware = dict(self._hardware)
        return True

    def evaluated(self) -> None:
        """The rules have read the last scrape."""
        self._evaluated = dict(self._scraped)
        self._evaluated_hardware = self._scraped_hardware

    def miss(self, replica: int, now: float) -> None:
        self.tapes[replica].miss(round(now * 1000))

    def take(self, replica: int) -> list[bytes]:
        """What was scraped since the last call, for a remote write."""
        target = {
            "cluster": "lab",
            "node": self.name,
            "job": "gputally",
            "instance": f"{self.name}-{self._instance}:9400",
        }
        return [
            encode_series(with_target(labels, target), samples)
            for labels, samples in self.tapes[replica].take()
        ]

    def _new_ledger(self, state: Mapping[str, object] | None) -> Ledger:
        return Ledger(retention_seconds=RETENTION, max_window_seconds=60, boot_id="b", resume=state)

    def _gpu_of(self, uuid: str) -> Gpu:
        return next((gpu for gpu in self._gpus if gpu.uuid == uuid), self._gpus[0])

    def _readings(self) -> list[Reading]:
        return [
            Reading(
                gpu=gpu,
                energy_millijoules=self._hardware[gpu.uuid],
                power_limit_watts=2000.0,
                processes=(),
                process_samples=(),
                mig=self._instances(gpu) if self._divided and number == 0 else (),
            )
            for number, gpu in enumerate(self._gpus)
        ]

    def _instances(self, gpu: Gpu) -> tuple[MigReading, ...]:
        return tuple(
            MigReading(
                instance=MigInstance(uuid, gpu.uuid, gpu.index, number, 0, f"{number + 2}g.20gb"),
                processes=(),
                memory_total_bytes=(number + 1) << 30,
            )
            for number, uuid in enumerate(self.devices()[:2])
        )

    def _sample(self, ledger: Ledger, now: float) -> None:
        readings = self._readings()
        at_us = round((now - self._booted_at) * 1_000_000) + 1_000_000_000
        ledger.settle(
            at_us=at_us,
            now_seconds=now,
            readings=readings,
            residents=(),
            holders=[((self._gpu_of(job.uuid).index, job.uuid), job.owner) for job in self.jobs],
        )
        ledger.expire(at_us)
        charges = ledger.charges()
        self._account_for(charges)
        self._snapshot = Snapshot(
            taken_at_seconds=now,
            age_seconds=0,
            readings=tuple(readings),
            sources=(),
            gpu_ledgers=ledger.gpu_ledgers(),
            charges=charges,
            pods=tuple(
                PodInfo(charge.owner.namespace, charge.owner.pod, workload=_workload(charge.owner.pod))
                for charge in {one.owner: one for one in charges}.values()
            ),
        )

    def _account_for(self, charges: tuple[Charge, ...]) -> None:
        """Adds what was charged since the last sample to the truth."""
        now = {(one.uuid, account_of(one.owner)): one for one in charges}
        for account in self._known.keys() - now.keys():
            self._truth.difference_millijoules += self._close(account)
        for account, charge in now.items():
            before = self._known.get(account)
            key = (charge.owner.namespace, charge.owner.pod)
            self._truth.millijoules[key] += _millijoules(charge) - (_millijoules(before) if before else 0)
            held_us = charge.held_microseconds - (before.held_microseconds if before else 0)
            self._truth.held_us[key] += held_us
            thirds = int(charge.uuid[-1]) + 1 if charge.uuid.startswith("MIG") else 3
            self._truth.whole_gpu_us[key] += held_us * thirds // 3
        self._known = now

    def _close(self, account: _Account) -> int:
        charge = self._known.pop(account)
        key = (charge.owner.namespace, charge.owner.pod)
        scraped = self._scraped.pop(account, 0)
        lost = _millijoules(charge) - scraped
        self._truth.lost_millijoules[key] += lost
        self._truth.doubt[key] += scraped - self._evaluated.pop(account, 0)
        return lost


def _workload(pod: str) -> str:
    return f"Job/{pod.split('-', maxsplit=1)[0]}"


def _millijoules(charge: Charge) -> int:
    return sum(map(int, (charge.energy_millijoules or {}).values()))


JOB_SECONDS = (5, 10, 20, 45, 90, 150, 400, 3000, 10**6)
NAMESPACES = ("nlp", "vision", "db")


class Fleet:
    """The nodes, and what happens to them at random."""

    def __init__(self, seed: int, now: float, *, shared: bool, breaks: bool = True) -> None:
        self.luck = Random(seed)
        self.truth = Truth()
        self.nodes = [
            Node(name, self.luck, self.truth, gpus=2, divided=divided, now=now)
            for name, divided in (("n1", False), ("n2", True))
        ]
        self._shared = shared
        self._breaks = breaks
        self._jobs = 0
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._ended: dict[str, float] = {}

    def step(self, now: float, *, quiet: bool) -> None:
        """Lets five seconds pass; while `quiet`, nothing new happens."""
        for at, action in [one for one in self._later if one[0] <= now]:
            self._later.remove((at, action))
            action()
        if not quiet:
            self._start_jobs(now)
            if self._breaks:
                self._break_something(now)
        for node in self.nodes:
            self._ended |= dict.fromkeys((job.owner.pod for job in node.jobs), now)
            node.step(now)

    def _start_jobs(self, now: float) -> None:
        for node in self.nodes:
            for uuid in node.devices():
                taken = sum(job.uuid == uuid for job in node.jobs)
                if taken > (1 if self._shared else 0) or self.luck.random() > 0.04:
                    continue
                namespace = self.luck.choice(NAMESPACES)
                # A pod of a StatefulSet has the same name on each node that it runs on.
                names = {job.owner.pod for one in self.nodes for job in one.jobs}
                pod = f"set-{self.luck.randrange(3)}"
                # If it comes back in the minute in which its account is closed, nothing tells the two apart.
                closing = RETENTION - STEP <= now - self._ended.get(pod, 0) <= RETENTION + 60 + STEP
                if self.luck.random() < 0.7 or pod in names or closing:
                    self._jobs += 1
                    pod = f"job{self._jobs % 7}-{self._jobs}"
                owner = Owner("pod", namespace=namespace, pod=pod, container="main")
                until = now + self.luck.choice(JOB_SECONDS)
                node.jobs.append(Job(owner, uuid, until, self.luck.randrange(100, 600)))

    def _break_something(self, now: float) -> None:
        for node in self.nodes:
            if not node.exporter_runs:
                continue
            happens = self.luck.random()
            if happens < 0.001:
                self._restart(node, now, lose_state=self.luck.random() < 0.4)
            elif happens < 0.0013:
                node.boot(now)
                self._restart(node, now, lose_state=True)

    def _restart(self, node: Node, now: float, *, lose_state: bool) -> None:
        state = node.stop_exporter()
        back = now + self.luck.choice((STEP, 20, 60, 240, 900))
        self._later.append((back, lambda: node.start_exporter(None if lose_state else state)))
