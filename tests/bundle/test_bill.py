"""The records of the bill against the truth: random fleets on a real Prometheus, in fast time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from alerts.rules import rule_groups
from tests.bundle.billed_fleet import STEP, Fleet
from tools.replay.evaluation import Evaluation
from tools.replay.remote_write import Receiver
from tools.servers.prometheus import Prometheus, serving

_BEGAN = 1_700_000_040.0
"""A whole minute."""
_GROUPS = [group for group in rule_groups() if group["name"] in ("gputally-prices", "gputally-bill")]
_QUIET = 1200
ONLY = range(1, 9)


class Replica:
    """A Prometheus that scrapes the fleet and evaluates the rules of the bill, with outages of its own."""

    def __init__(
        self, prometheus: Prometheus, receiver: Receiver, number: int, every: int, offset: int
    ) -> None:
        self.prometheus = prometheus
        self._receiver = receiver
        self._evaluation = Evaluation(_GROUPS, prometheus, receiver)
        self._number = number
        self._every = every
        self._offset = offset
        self._away_until = 0.0
        self._scraped_at: dict[str, float] = {}
        self._stale: set[str] = set()

    def step(self, fleet: Fleet, now: float, *, quiet: bool) -> None:
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
def _replica(directory: Path, number: int, every: int, offset: int = 0) -> Iterator[Replica]:
    with (
        serving(directory, "--web.enable-remote-write-receiver") as prometheus,
        closing(Receiver(prometheus)) as receiver,
    ):
        yield Replica(prometheus, receiver, number, every, offset)


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


@pytest.mark.parametrize(("seed", "every"), [(n, (15, 30, 60)[n % 3]) for n in ONLY])
def test_the_bill_of_a_random_fleet_is_the_truth(seed: int, every: int, tmp_path: Path) -> None:
    seconds = 2 * 3600
    fleet = Fleet(seed, _BEGAN, shared=seed % 2 == 0)
    with _replica(tmp_path, 0, every) as replica:
        last = _play(fleet, [replica], seconds)
        pods = replica.total("workload:gputally_bill_energy:joules", "namespace", last, seconds)
        meter = replica.total("node:gputally_bill_meter:joules", "cluster", last, seconds)["lab"]
        rows = replica.total("node:gputally_bill_energy:joules", "cluster", last, seconds)["lab"]
        wall = replica.total("gpu:gputally_bill_wall:seconds", "cluster", last, seconds)["lab"]
        states = replica.total("node:gputally_bill_time:seconds", "cluster", last, seconds)["lab"]
    truth, doubt = fleet.truth, Counter[str]()
    charged = Counter[str]()
    for (namespace, pod), millijoules in truth.millijoules.items():
        charged[namespace] += millijoules - truth.lost_millijoules[namespace, pod]
        doubt[namespace] += truth.doubt[namespace, pod]
    _assert_between(meter, truth.meter_millijoules - truth.meter_doubt, truth.meter_millijoules)
    for namespace, most in charged.items():
        _assert_between(pods[namespace], most - doubt[namespace], most)
    lost = truth.difference_millijoules
    _assert_between(meter - rows, lost, lost + doubt.total())
    assert states == pytest.approx(wall, abs=0.001)


def _assert_between(joules: float, least: int, most: int) -> None:
    """To the millijoule."""
    assert least / 1000 - 0.001 <= joules <= most / 1000 + 0.001
