"""Random histories of a few GPUs: the ledger balances after any events in any order."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gputally.ledger import Ledger
from gputally.ledger.window import UNKNOWN, account_of
from gputally.model import (
    UNKNOWN_REASONS,
    DeviceKey,
    Gpu,
    MigInstance,
    MigReading,
    Owner,
    Process,
    ProcessSample,
    Reading,
    Resident,
    Unknown,
)
from tests.support.ledger_samples import SECOND, assert_balanced, charged_millijoules, pod

LENGTHS = [0, 1, 700_000, *(round(seconds * SECOND) for seconds in (1, 5, 5, 5, 59, 60, 61, 600))]
OWNERS: list[Owner | Unknown] = [
    pod("a"),
    pod("a", pod_uid="1", container_id="1"),
    pod("a", pod_uid="2", container_id="2"),
    pod("a", ""),
    pod("b"),
    Owner("slurm", "slurm/42"),
    Owner("service", "service/ollama.service", user="u"),
    *(Unknown(reason) for reason in UNKNOWN_REASONS),
]
HOLDERS = [pod("a"), pod("b"), pod("c")]
GPUS = st.integers(0, 2)
Series = dict[Any, float]


@dataclass
class Running:
    owner: Owner | Unknown
    started: float | None
    device: str


@dataclass
class Card:
    """One GPU as it really is, and what its driver says of it at the next look."""

    gpu: Gpu
    has_counter: bool
    has_power: bool
    millijoules: int
    watts: int = 100
    pace: float = 1.0
    """Of the counter: 0 is frozen, 3 counts other GPUs too."""
    true_to_counter: bool = True
    """Nothing has happened to the counter since the ledger began."""
    up: bool = True
    visible: bool = True
    sampled: bool = True
    instances: int = 0
    made: int = 0
    """How often MIG devices have been made."""
    running: dict[int, Running] = field(default_factory=dict)
    ended: list[tuple[int, Running]] = field(default_factory=list)
    held: set[tuple[str, Owner]] = field(default_factory=set)
    skewed_looks: int = 0
    skew: int = 0
    silent: set[str] = field(default_factory=set)

    def devices(self) -> list[str]:
        mig = [f"MIG-{self.gpu.index}-{self.made}-{n}" for n in range(self.instances)]
        return mig or [self.gpu.uuid]

    def use(self, watts: int, length_us: int) -> None:
        used = (self.watts + watts) * length_us // 2000
        self.watts = watts
        self.millijoules += round(self.pace * used)

    @property
    def counter(self) -> int | None:
        if not self.has_counter or "energy" in self.silent:
            return None
        return max(0, self.millijoules + (self.skew if self.skewed_looks else 0))

    def read(self, luck: random.Random) -> Reading:
        if not self.up:
            return Reading(gpu=self.gpu, up=False)
        return Reading(
            gpu=self.gpu,
            energy_millijoules=self.counter,
            power_watts=float(self.watts) if self.has_power and "power" not in self.silent else None,
            power_limit_watts=700.0,
            processes=() if self.visible else None,
            process_samples=() if self.sampled else None,
            mig=tuple(
                MigReading(
                    instance=MigInstance(uuid, self.gpu.uuid, self.gpu.index, n, 0, f"{n + 1}g.10gb"),
                    graphics_active_ratio=luck.choice([None, 0.0, luck.random()]),
                    processes=() if self.visible else None,
                )
                for n, uuid in enumerate(self.devices() if self.instances else ())
            ),
        )

    def residents(self, luck: random.Random) -> list[Resident]:
        found = []
        for pid, one, ended in [
            *((pid, one, False) for pid, one in self.running.items() if self.visible),
            *((pid, one, True) for pid, one in self.ended),
        ]:
            samples: tuple[ProcessSample, ...] | None = None
            if self.sampled and not self.instances:
                ratios = [luck.random() for _ in range(luck.choice([0, 0, 1, 2]))]
                samples = tuple(
                    ProcessSample(pid, 0, ratio, luck.choice([None, 0.0, luck.random()]), 0.0, 0.0, SECOND)
                    for ratio in ratios
                )
            memory = luck.choice([None, 0, 1, luck.randrange(1 << 36)])
            process = Process(pid, "compute", None if ended else "python", memory)
            started = luck.choice([None, one.started]) if ended else one.started
            mediated = luck.random() < 0.1
            found.append(
                Resident(self.gpu.index, one.device, process, one.owner, samples, started, ended, mediated)
            )
        return found


class Histories(RuleBasedStateMachine):
    """`look` is the only rule that asks the ledger; the others change what it will find."""

    @initialize(by_process=st.booleans(), pace=st.sampled_from([1.0, 1.0, 0.0, 3.0]))
    def begin(self, by_process: bool, pace: float) -> None:
        self.cards = [
            Card(Gpu("GPU-0", 0, "NVIDIA", "H100"), True, True, 123_456_789, pace=pace),
            Card(Gpu("GPU-1", 1, "NVIDIA", "H100"), True, False, 0),
            Card(Gpu("GPU-2", 2, "NVIDIA", "P100"), False, True, 0),
        ]
        self.by_process = by_process
        self.at_us = 10**9
        self.now_seconds = 1.7e9
        self.births = 0.0
        self.boot = 0
        self.states: list[str] = []
        self.start(None)

    def start(self, state: str | None) -> None:
        self.ledger = Ledger(
            retention_seconds=30,
            max_window_seconds=60,
            process_accounts=self.by_process,
            boot_id=str(self.boot),
            resume=None if state is None else json.loads(state),
        )
        self.resumed: dict[str, Any] = {} if state is None else json.loads(state)["gpus"]
        self.told: dict[str, Series] = {}

    # What happens on the GPUs.

    @rule(
        card=GPUS,
        pid=st.integers(1, 4),
        owner=st.sampled_from(OWNERS),
        place=st.integers(0, 3),
        luck=st.booleans(),
    )
    def a_process_starts(self, card: int, pid: int, owner: Owner | Unknown, place: int, luck: bool) -> None:
        """Also on a pid that another had until now."""
        on = self.cards[card]
        self.a_process_ends(card, pid, luck)
        self.births += 1
        devices = on.devices()
        on.running[pid] = Running(owner, self.births if luck else None, devices[place % len(devices)])

    @rule(
        card=GPUS,
        owners=st.lists(st.sampled_from(OWNERS), min_size=2, max_size=4),
        seed=st.integers(0, 2**32),
    )
    def several_come(self, card: int, owners: list[Owner | Unknown], seed: int) -> None:
        for pid, owner in enumerate(owners, 1):
            self.a_process_starts(card, pid, owner, seed % pid, luck=seed % 3 > 0)
        self.look(5 * SECOND, seed, 300)

    @rule(card=GPUS, pid=st.integers(1, 4), leaves_samples=st.booleans())
    def a_process_ends(self, card: int, pid: int, leaves_samples: bool) -> None:
        on = self.cards[card]
        if pid in on.running:
            one = on.running.pop(pid)
            if leaves_samples:
                on.ended.append((pid, one))

    @rule(card=GPUS, pid=st.integers(1, 4), owner=st.sampled_from(OWNERS))
    def its_owner_becomes_known_or_another(self, card: int, pid: int, owner: Owner | Unknown) -> None:
        if pid in self.cards[card].running:
            self.cards[card].running[pid].owner = owner

    @rule(card=GPUS, owner=st.sampled_from(HOLDERS), place=st.integers(0, 3))
    def a_holder_comes_or_goes(self, card: int, owner: Owner, place: int) -> None:
        devices = self.cards[card].devices()
        self.cards[card].held ^= {(devices[place % len(devices)], owner)}

    @rule(card=GPUS, what=st.sampled_from(["energy", "power"]))
    def a_reading_fails_or_works_again(self, card: int, what: str) -> None:
        self.cards[card].silent ^= {what}

    @rule(card=GPUS, what=st.sampled_from(["up", "visible", "sampled"]))
    def the_driver_hides_something_or_shows_it_again(self, card: int, what: str) -> None:
        on = self.cards[card]
        setattr(on, what, not getattr(on, what))

    @rule(card=GPUS)
    def the_driver_is_loaded_anew(self, card: int) -> None:
        on = self.cards[card]
        on.running.clear()
        on.millijoules, on.true_to_counter = 0, False

    @rule(card=GPUS, looks=st.integers(1, 5), skew=st.integers(-(10**9), 10**9))
    def the_counter_goes_astray(self, card: int, looks: int, skew: int) -> None:
        on = self.cards[card]
        on.skewed_looks, on.skew, on.true_to_counter = looks, skew, False

    @rule(card=GPUS, instances=st.integers(0, 3))
    def it_is_partitioned_anew(self, card: int, instances: int) -> None:
        on = self.cards[card]
        on.instances = instances
        on.made += 1
        on.running.clear()
        on.ended.clear()
        on.held.clear()

    @rule(seconds=st.floats(-1e9, 1e9))
    def the_clock_jumps(self, seconds: float) -> None:
        self.now_seconds += seconds

    @rule(back=st.integers(0, 3), same_boot=st.sampled_from([True, True, False]), seed=st.integers(0, 2**32))
    def the_exporter_is_started_anew(self, back: int, same_boot: bool, seed: int) -> None:
        """From its last state, or from an earlier one: it was killed, and had not written since."""
        self.states = self.states[: len(self.states) - back] if same_boot else []
        self.boot += not same_boot
        self.start(self.states[-1] if self.states else None)
        if not self.states:
            for card in self.cards:
                card.true_to_counter = not card.skewed_looks
        self.look(5 * SECOND, seed, 300)

    # What the ledger makes of it.

    @rule(
        length_us=st.sampled_from(LENGTHS),
        seed=st.integers(0, 2**32),
        watts=st.sampled_from([0, 70, 300, 700]),
    )
    def look(self, length_us: int, seed: int, watts: int) -> None:
        luck = random.Random(seed)
        self.at_us += length_us
        self.now_seconds += length_us / SECOND
        readings, residents = [], []
        holders: list[tuple[DeviceKey, Owner]] = []
        for card in self.cards:
            card.use(watts, length_us)
            readings.append(card.read(luck))
            if card.up:
                residents += card.residents(luck)
                card.ended.clear()
                holders += [((card.gpu.index, uuid), owner) for uuid, owner in card.held]
        self.ledger.settle(
            at_us=self.at_us,
            now_seconds=self.now_seconds,
            readings=readings,
            residents=residents,
            holders=holders,
        )
        self.check_resumed()
        self.check(retired=False)
        self.check_counters(length_us)
        self.ledger.expire(self.at_us)
        self.check(retired=True)
        state = json.dumps(self.ledger.state())
        assert json.loads(state) == self.ledger.state()
        self.states = [*self.states[-5:], state]
        for card in self.cards:
            card.skewed_looks = max(0, card.skewed_looks - 1)

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 6), watts=st.sampled_from([70, 300, 700]))
    def time_goes_by(self, seed: int, count: int, watts: int) -> None:
        for turn in range(count):
            self.look(5 * SECOND, seed + turn, watts)

    @rule(seed=st.integers(0, 2**32), length_us=st.sampled_from(LENGTHS), card=GPUS, pid=st.integers(1, 4))
    def a_process_is_gone_at_the_next_look(self, seed: int, length_us: int, card: int, pid: int) -> None:
        self.look(length_us, seed, 300)
        self.a_process_ends(card, pid, leaves_samples=seed % 2 == 0)
        self.look(length_us, seed + 1, 300)

    def check_resumed(self) -> None:
        """Nothing was lost at the first look after a restart, and what was used meanwhile is unobserved."""
        ledger = {book.uuid: book for book in self.ledger.gpu_ledgers()}
        charged = {
            (one.uuid, account_of(one.owner)): [int(mj) for mj in (one.energy_millijoules or {}).values()]
            for one in self.ledger.charges()
        }
        for card in self.cards:
            state, counter = self.resumed.get(card.gpu.uuid), card.counter
            if state is None or not card.up or state["meter"]["source"] != "counter":
                continue
            if counter is None or counter < state["meter"]["counter"]:
                continue
            unattributed = ledger[card.gpu.uuid].unattributed_millijoules
            used = counter - state["meter"]["counter"]
            assert {reason: amount for (reason,), amount in unattributed.items()} == {
                **state["unattributed"],
                "unobserved": state["unattributed"]["unobserved"] + used,
            }
            for entry in state["owners"]:
                key = (entry["device"], account_of(Owner(**entry["owner"])))
                assert charged[key] == entry["millijoules"]
        self.resumed = {}

    def check(self, *, retired: bool) -> None:
        assert_balanced(self.ledger)
        for card in self.cards:
            before, now = self.told.get(card.gpu.uuid, {}), self.series(card.gpu)
            assert all(value >= 0 for value in now.values())
            # Busy time is not known any more once an MPS server runs the work.
            gone = {key for key in before.keys() - now.keys() if key[-1] != "busy time"}
            for key in before.keys() & now.keys():
                assert now[key] >= before[key], key
            expired = (card.gpu.uuid, "expired")
            if retired:
                left = sum(before[key] for key in gone if key[-1] in ("measured", "shared", "held"))
                assert now.get(expired, 0) - before.get(expired, 0) == left
            else:
                assert not gone
            self.told[card.gpu.uuid] = now
        self.check_processes()

    def series(self, gpu: Gpu) -> Series:
        found: Series = {}
        for book in self.ledger.gpu_ledgers():
            if book.uuid == gpu.uuid:
                found[book.uuid, "energy"] = book.energy_millijoules
                for (reason,), amount in book.unattributed_millijoules.items():
                    found[book.uuid, reason] = amount
        for charge in self.ledger.charges():
            if charge.gpu_index == gpu.index:
                key = (charge.uuid, account_of(charge.owner))
                for (basis,), amount in (charge.energy_millijoules or {}).items():
                    assert (*key, basis) not in found
                    found[*key, basis] = amount
                found[*key, "held time"] = charge.held_microseconds
                if charge.busy_microseconds is not None:
                    found[*key, "busy time"] = charge.busy_microseconds
        return found

    def check_processes(self) -> None:
        """The energy of processes is part of their owners' energy, or of the unknown energy."""
        owners: Counter[Any] = Counter()
        for charge in self.ledger.charges():
            amounts = charge.energy_millijoules or {}
            owners[charge.uuid, account_of(charge.owner)] += int(sum(amounts.values()))
            owners[charge.gpu_index, UNKNOWN] += int(amounts.get(("held",), 0))
        for book in self.ledger.gpu_ledgers():
            # A process that was never sampled may outlive the holder that was charged for it.
            for reason in ("unknown", "expired"):
                owners[book.gpu_index, UNKNOWN] += int(book.unattributed_millijoules[reason,])
        processes: Counter[Any] = Counter()
        seen = set()
        for one in self.ledger.processes():
            assert (one.uuid, one.pid) not in seen
            seen.add((one.uuid, one.pid))
            if isinstance(one.owner, Owner):
                processes[one.uuid, account_of(one.owner)] += one.energy_millijoules or 0
            else:
                processes[one.gpu_index, UNKNOWN] += one.energy_millijoules or 0
        assert not [
            (key, amount, owners[key]) for key, amount in processes.items() if not 0 <= amount <= owners[key]
        ]
        assert self.by_process or not processes

    def check_counters(self, length_us: int) -> None:
        """Without a fault of the counter in use, the ledger equals it."""
        settled = self.ledger.state()["gpus"]
        for book in self.ledger.gpu_ledgers():
            card = self.cards[book.gpu_index]
            assert book.energy_source == "counter" or card.has_power
            if (
                card.up
                and card.true_to_counter
                and card.pace <= 1
                and card.counter is not None
                and length_us
                and card.gpu.uuid in settled
                and book.energy_source == "counter"
            ):
                assert book.energy_millijoules == card.millijoules
                charged = charged_millijoules(self.ledger, book.gpu_index)
                assert card.millijoules - charged == sum(book.unattributed_millijoules.values())


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase
