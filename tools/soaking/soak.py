"""The soak: rounds of churn, energy and faults, each of which ends with an audit of every joule.

In a round, all processes change; when the exporter has seen that, energy is drawn, perhaps during a fault;
when the exporter has counted that, the growth of each account is compared with the truth. So no reading is
ambiguous, however slow the machine is, and no result depends on a clock.
"""

import random
import signal
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType

import bcrypt

from tools import Failed
from tools.servers.ports import HOST, free_port
from tools.servers.waiting import wait_until
from tools.soaking.faults import FAULTS, RESTARTS, Effect, Fault
from tools.soaking.hostility import HostileClients
from tools.soaking.node import Account, Node
from tools.soaking.process import Exporter, Usage
from tools.soaking.report import Figures
from tools.soaking.scrapes import MAX_AGE_SECONDS, Scrape, Scrapes, grown, owner
from tools.soaking.upstream import upstream

GPUS = 10
INTERVAL_SECONDS = 0.2
TIMEOUT_SECONDS = 1.0
RETENTION_SECONDS = 15.0
PATIENCE_SECONDS = 60.0
_PASSWORD = b"soaked"
LOGIN = f"Basic {b64encode(b'prometheus:' + _PASSWORD).decode()}"
_WEIGHED_ROUNDS = 9
_KEPT_FAILURES = 50
_ROUNDS_OF_A_FAULT = 4
"""One round in so many has a fault."""


class Soak:
    """One soak; use as a context manager. Everything in it follows from the seed, but for the speed."""

    def __init__(self, directory: Path, seed: int, retention_seconds: float = RETENTION_SECONDS) -> None:
        self._seed = seed
        self.random = random.Random(seed)
        self.node = Node(directory, seed, GPUS)
        self.retention_seconds = retention_seconds
        self._directory = directory
        self._state_directory = directory / "state"
        self._state_directory.mkdir()
        self._parts = ExitStack()
        self.rounds = 0
        self.drawn = 0
        """Millijoules, altogether."""
        self.lost = 0
        """Millijoules that were drawn and not counted, or counted and not drawn."""
        self.wrong: Counter[Account] = Counter()
        """Millijoules charged to accounts that do not owe them."""
        self.failures: list[str] = []
        self.failure_count = 0
        self.faults: Counter[str] = Counter()
        self.new_ledgers = 0
        self.resting: set[int] = set()
        """GPUs that draw nothing for now."""
        self._remaining: dict[bool, list[str]] = {False: [], True: []}
        self._what = "the start"
        self.after_round: Callable[[Soak], None] = lambda _: None

    def __enter__(self) -> "Soak":
        with ExitStack() as parts:
            self.upstream = parts.enter_context(upstream())
            parts.enter_context(self.node.kubelet())
            port = free_port()
            arguments = self._arguments(port)
            self.exporter = Exporter(self._directory, arguments, self.node.environment())
            parts.callback(self.exporter.close)
            self.clients = HostileClients(port, LOGIN)
            parts.callback(self.clients.close)
            self.scrapes = Scrapes(port, LOGIN, self.retention_seconds, self.fail)
            parts.enter_context(self.scrapes)
            self.node.churn()
            self.start()
            self.clients.start()
            self._parts = parts.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.close()

    def _arguments(self, port: int) -> tuple[str, ...]:
        web_config = self._directory / "web.yml"
        hashed = bcrypt.hashpw(_PASSWORD, bcrypt.gensalt(8)).decode()
        web_config.write_text(f"basic_auth_users: {{prometheus: '{hashed}'}}\n")
        return (
            *self.node.arguments(),
            *("--listen-address", f"{HOST}:{port}", "--web-config", str(web_config)),
            *(
                "--interval",
                f"{INTERVAL_SECONDS}s",
                "--timeout",
                f"{TIMEOUT_SECONDS}s",
                "--max-age",
                f"{MAX_AGE_SECONDS}s",
            ),
            *("--retention", f"{self.retention_seconds}s", "--process-metrics"),
            *("--state-file", str(self._state_directory / "ledger.json")),
            *("--relay", self.upstream.url, "--relay-metrics"),
        )

    def fail(self, text: str) -> None:
        self.failure_count += 1
        if len(self.failures) < _KEPT_FAILURES:
            self.failures.append(f"round {self.rounds}, {self._what}: {text}")

    def run(self, done: Callable[[], bool], *, restarts: bool) -> None:
        """Rounds until `done`."""
        while not done():
            fault = None
            if self.rounds % _ROUNDS_OF_A_FAULT == 1:
                restarting = restarts and self.faults.total() % 2 == 1
                fault = self._next(restarts=restarting)
            self.round(fault)

    def _next(self, *, restarts: bool) -> str:
        """Each fault is used once before any is repeated."""
        remaining = self._remaining[restarts]
        if not remaining:
            remaining += sorted(RESTARTS if restarts else FAULTS)
            self.random.shuffle(remaining)
        return remaining.pop()

    def round(self, fault: str | None = None) -> None:
        self.rounds += 1
        self._what = fault or "no fault"
        self.node.churn()
        self._present()
        before, effect = self.scrapes.newest, Effect()
        if fault is None:
            self.draw()
        else:
            self.faults[fault] += 1
            chosen: Fault = {**FAULTS, **RESTARTS}[fault]
            with chosen(self) as effect:
                self.draw()
            self._present()
        self._settled(before)
        self._audit(before, self.scrapes.newest, effect)
        self.after_round(self)

    def draw(self) -> None:
        self.drawn += self.node.draw(gpu for gpu in self.node.gpus if gpu not in self.resting)

    # What faults do and wait for.

    def some_gpu(self) -> int:
        return self.random.choice(self.node.gpus)

    def stop(self, with_signal: signal.Signals) -> None:
        self.scrapes.restarting.set()
        self.exporter.end(with_signal)

    def start(self) -> None:
        self.scrapes.restarting.set()
        before = self.scrapes.newest.started_at
        self.exporter.start()
        if not self._wait(
            lambda: (now := self.scrapes.newest).started_at != before and now.totals,
            "the exporter serves GPUs",
        ):
            raise Failed(f"the exporter serves no GPUs after its start:\n{self.exporter.log_tail()}")
        self.scrapes.restarting.clear()

    @contextmanager
    def without_state_directory(self) -> Iterator[None]:
        aside = self._state_directory.with_name("state.gone")
        self._state_directory.rename(aside)
        try:
            yield
        finally:
            aside.rename(self._state_directory)

    def samples(self, count: int) -> None:
        """Waits for so many new snapshots."""
        before = self.scrapes.snapshots
        self._wait(lambda: self.scrapes.snapshots >= before + count, f"{count} samples")

    def answers(self, count: int) -> None:
        """Waits for so many scrapes."""
        before = self.scrapes.answered
        self._wait(lambda: self.scrapes.answered >= before + count, f"{count} scrapes are answered")

    def source(self, name: str, *, up: bool) -> None:
        self._wait(
            lambda: self.scrapes.newest.sources.get(name) == up, f"source {name} is {'up' if up else 'down'}"
        )

    def _present(self) -> None:
        """Waits until the exporter has seen the owners that are on the GPUs, and no others."""
        true = set().union(*(self.node.owners(gpu) for gpu in self.node.gpus))
        self._wait(lambda: self.scrapes.newest.active == true, "the owners on the GPUs are seen")

    def _settled(self, before: Scrape) -> None:
        """Waits until the exporter has counted all energy; the rest is lost."""

        def differences() -> dict[int, int]:
            now = self.scrapes.newest
            return {
                gpu: found
                for gpu, uuid in enumerate(self.node.uuids)
                if (found := now.totals.get(uuid, 0) - self._expected(gpu, before, now))
            }

        if self._wait(lambda: not differences(), "all energy is counted"):
            return
        for gpu, found in differences().items():
            self.fail(f"GPU {gpu}: {found:+} mJ against the true counter")
            self.lost += abs(found)
            self.node.offsets[gpu] += found

    def _expected(self, gpu: int, before: Scrape, now: Scrape) -> int:
        uuid = self.node.uuids[gpu]
        goes_on = now.began_at.get(uuid) == before.began_at.get(uuid)
        return self.node.counters[gpu] + (self.node.offsets[gpu] if goes_on else 0)

    def _audit(self, before: Scrape, after: Scrape, effect: Effect) -> None:
        for gpu, uuid in enumerate(self.node.uuids):
            charged = grown(before.accounts[uuid], after.accounts[uuid])
            owners = self.node.owners(gpu) | effect.also_charged
            if before.began_at.get(uuid) != after.began_at.get(uuid):
                self.new_ledgers += 1
                self.node.offsets[gpu] = 0
                if not effect.new_ledger:
                    self.fail(f"the ledger of GPU {gpu} began again")
                charged = dict(after.accounts[uuid])
                owners.add(("unattributed", "initial"))
            for account, millijoules in charged.items():
                if owner(account) not in owners and millijoules:
                    self.wrong[account] += abs(millijoules)
                    self.fail(f"GPU {gpu}: {millijoules} mJ for {account}, not for {sorted(owners)}")

    def _wait(self, condition: Callable[[], object], what: str) -> bool:
        """Whether it came true in time; else that is a failure. Raises Failed if the exporter has ended."""
        try:
            wait_until(condition, what, PATIENCE_SECONDS, check=self.exporter.check)
        except Failed as failure:
            self.exporter.check()
            self.fail(str(failure))
            return False
        return True

    def measure(self) -> Usage:
        """Resources of the exporter while it is not attacked: the median of some rounds."""
        self.clients.stop()
        usages = []
        for _ in range(_WEIGHED_ROUNDS):
            self.round()
            usages.append(self.exporter.measure())
        self.clients.start()
        return Usage(
            *(
                round(median(getattr(usage, name) for usage in usages))
                for name in ("resident_bytes", "threads", "descriptors")
            )
        )

    def warm_up(self) -> None:
        """Rounds until the exporter has as many owners in retention as it will ever have."""
        begun = self.scrapes.newest.snapshot_at
        self.run(lambda: self.scrapes.newest.snapshot_at > begun + 2 * self.retention_seconds, restarts=False)

    def figures(self, usages: tuple[Usage, Usage, Usage], seconds: float) -> Figures:
        """What it has counted; the hostile clients are gone after this."""
        self.clients.stop()
        return Figures(
            seconds=seconds,
            seed=self._seed,
            rounds=self.rounds,
            names=self.node.names,
            asked=self.scrapes.asked,
            answered=self.scrapes.answered,
            failed_by_plan=self.scrapes.failed_by_plan,
            parsed=self.scrapes.parsed,
            scrape_seconds=self.scrapes.seconds,
            most_bytes=self.scrapes.most_bytes,
            usages=usages,
            drawn_millijoules=self.drawn,
            lost_millijoules=self.lost,
            wrong=self.wrong,
            new_ledgers=self.new_ledgers,
            restarts={name: count for name, count in self.faults.items() if name in RESTARTS},
            faults={name: count for name, count in self.faults.items() if name in FAULTS},
            attacks=self.clients.connections + self.upstream.asked,
            failures=self.failures,
            failure_count=self.failure_count,
        )


def minutes(length: float) -> Callable[[], bool]:
    """Whether so many minutes have passed since now."""
    end = time.monotonic() + length * 60
    return lambda: time.monotonic() >= end
