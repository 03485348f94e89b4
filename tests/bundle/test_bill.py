"""The records of the bill against the truth: random fleets on a real Prometheus, in fast time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from alerts.rules import rule_groups
from tests.bundle.billed_fleet import IDLE_WATTS, STEP, Fleet
from tools.replay.evaluation import Evaluation
from tools.replay.remote_write import Receiver
from tools.servers.prometheus import Prometheus, serving

_BEGAN = 1_700_000_040.0
"""A whole minute."""
# A machine under load takes minutes for a test.
pytestmark = pytest.mark.timeout(900)
_GROUPS = [group for group in rule_groups() if group["name"] in ("gputally-prices", "gputally-bill")]
_QUIET = 1200


class Replica:
    """A Prometheus that scrapes the fleet and evaluates the rules of the bill, with outages of its own."""

    def __init__(
        self,
        prometheus: Prometheus,
        receiver: Receiver,
        number: int,
        every: int,
        offset: int,
        *,
        breaks: bool,
    ) -> None:
        self.prometheus = prometheus
        self._receiver = receiver
        self._evaluation = Evaluation(_GROUPS, prometheus, receiver)
        self._number = number
        self._every = every
        self._offset = offset
        self._away_until = 0.0
        self._breaks = breaks
        self._scraped_at: dict[str, float] = {}
        self._stale: set[str] = set()

    def step(self, fleet: Fleet, now: float, *, quiet: bool) -> None:
        quiet = quiet or not self._breaks
        if not quiet and fleet.luck.random() < 0.0008:
            self._away_until = now + fleet.luck.choice((30, 100, 200))
            self._evaluation.forget()
        if now < self._away_until:
            return
        if (now - self._offset) % self._every == 0:
            for node in fleet.nodes:
                if (quiet or fleet.luck.random() > 0.02) and node.scrape(self._number, now):
                    self._scraped_at[node.name] = now
                    self._stale.discard(node.name)
                else:
                    node.miss(self._number, now)
                    self._stale.add(node.name)
                self._receiver.write(node.take(self._number))
        if now % 60 == 0:
            self._evaluation.evaluate(now)
            for node in fleet.nodes:
                age = now - self._scraped_at.get(node.name, 0)
                if self._number == 0 and age < (60 if node.name in self._stale else 300):
                    node.evaluated()

    def total(self, record: str, by: str, last: float, seconds: float) -> dict[str, float]:
        result = self.prometheus.query(
            f"sum by ({by}) (sum_over_time({record}[{seconds:.0f}s]))", time=f"{last:.3f}"
        )
        return {
            "/".join(one["metric"].get(name, "") for name in by.split(", ")): float(one["value"][1])
            for one in result
        }


@contextmanager
def _replica(
    directory: Path, number: int, every: int, offset: int = 0, *, breaks: bool = True
) -> Iterator[Replica]:
    with (
        serving(directory, "--web.enable-remote-write-receiver") as prometheus,
        closing(Receiver(prometheus)) as receiver,
    ):
        yield Replica(prometheus, receiver, number, every, offset, breaks=breaks)


def _play(fleet: Fleet, replicas: list[Replica], seconds: int) -> float:
    last = _BEGAN + seconds
    now = _BEGAN
    fleet.step(now, quiet=True)
    fleet.truth.meter_millijoules = 0
    while now < last:
        now += STEP
        quiet = now > last - _QUIET
        if now == last - _QUIET + STEP:
            for node in fleet.nodes:
                node.jobs.clear()
        fleet.step(now, quiet=quiet)
        for replica in replicas:
            replica.step(fleet, now, quiet=quiet)
    return last


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_bill_of_a_random_fleet_is_the_truth(seed: int, tmp_path: Path) -> None:
    seconds = 2 * 3600
    fleet = Fleet(seed, _BEGAN, shared=seed % 2 == 0)
    with _replica(tmp_path, 0, (15, 30, 60)[seed % 3]) as replica:
        bill = _bill(replica, _play(fleet, [replica], seconds), seconds)
    truth, doubt, charged = fleet.truth, Counter[str](), Counter[str]()
    for (namespace, pod), millijoules in truth.millijoules.items():
        charged[namespace] += millijoules - truth.lost_millijoules[namespace, pod]
        doubt[namespace] += truth.doubt[namespace, pod]
    _assert_between(bill.meter, truth.meter_millijoules - truth.meter_doubt, truth.meter_millijoules)
    for namespace, most in charged.items():
        _assert_between(bill.namespaces[namespace], most - doubt[namespace], most)
    lost = truth.difference_millijoules
    _assert_between(bill.meter - bill.rows, lost, lost + doubt.total())
    assert bill.states == pytest.approx(bill.wall, abs=0.001)


@pytest.mark.parametrize("every", [15, 60])
def test_seconds_are_those_of_the_ledger_if_every_gpu_has_one_holder(every: int, tmp_path: Path) -> None:
    seconds = 3600
    fleet = Fleet(101, _BEGAN, shared=False, breaks=False)
    with _replica(tmp_path, 0, every, breaks=False) as replica:
        last = _play(fleet, [replica], seconds)
        held = replica.total("pod:gputally_bill_allocated:seconds", "namespace, pod", last, seconds)
        bill = _bill(replica, last, seconds)
    assert fleet.truth.held_us
    for (namespace, pod), microseconds in fleet.truth.held_us.items():
        # Of a MIG device the bill has the share.
        assert held[f"{namespace}/{pod}"] <= microseconds / 1_000_000 + STEP
    whole = sum(fleet.truth.whole_gpu_us.values()) / 1_000_000
    assert sum(held.values()) == pytest.approx(whole, abs=STEP)
    assert bill.states == pytest.approx(bill.wall, abs=0.001)
    assert bill.wall == pytest.approx(4 * seconds, abs=4 * STEP)


def test_each_of_two_replicas_has_the_whole_bill(tmp_path: Path) -> None:
    seconds = 3600
    fleet = Fleet(202, _BEGAN, shared=True, breaks=False)
    with (
        _replica(tmp_path / "a", 0, 15, breaks=False) as one,
        _replica(tmp_path / "b", 1, 15, offset=10, breaks=False) as other,
    ):
        last = _play(fleet, [one, other], seconds)
        bills = [_bill(replica, last, seconds) for replica in (one, other)]
        # A query that removes duplicates takes the first until it has a gap, then the other.
        switched = _BEGAN + seconds / 2
        first, second = (
            replica.total("node:gputally_bill_meter:joules", "cluster", at, seconds / 2)["lab"]
            for replica, at in ((one, switched), (other, last))
        )
    most_watts = 4 * 2000
    for bill in bills:
        # What was used since the last scrape is not in it.
        assert bill.meter == pytest.approx(fleet.truth.meter_millijoules / 1000, abs=15 * 4 * IDLE_WATTS)
        assert bill.rows == pytest.approx(bill.meter, abs=0.001)
    assert bills[0].namespaces == pytest.approx(bills[1].namespaces, abs=0.001)
    assert first + second == pytest.approx(bills[0].meter, abs=15 * most_watts)


@dataclass(frozen=True, slots=True)
class Bill:
    """Of all nodes and the whole time: joules and seconds."""

    namespaces: dict[str, float]
    meter: float
    rows: float
    wall: float
    states: float


def _bill(replica: Replica, last: float, seconds: float) -> Bill:
    def of_cluster(record: str) -> float:
        return replica.total(record, "cluster", last, seconds)["lab"]

    return Bill(
        namespaces=replica.total("workload:gputally_bill_energy:joules", "namespace", last, seconds),
        meter=of_cluster("node:gputally_bill_meter:joules"),
        rows=of_cluster("node:gputally_bill_energy:joules"),
        wall=of_cluster("gpu:gputally_bill_wall:seconds"),
        states=of_cluster("node:gputally_bill_time:seconds"),
    )


def _assert_between(joules: float, least: int, most: int) -> None:
    """To the millijoule."""
    assert least / 1000 - 0.001 <= joules <= most / 1000 + 0.001
