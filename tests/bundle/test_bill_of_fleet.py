"""From the exporters' ledgers over the rules to the printed bill: nothing is lost on the way."""

import io
import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from alerts.rules import rule_groups
from gputally.commands.bill import run
from tests.bundle.billed_fleet import STEP, Fleet
from tools.replay.evaluation import Evaluation
from tools.replay.remote_write import Receiver
from tools.servers.prometheus import Prometheus, serving

BEGAN = 1_700_000_040
SECONDS = 30 * 60
SCRAPE_SECONDS = 30
_GROUPS = [group for group in rule_groups() if group["name"] in ("gputally-prices", "gputally-bill")]


def play(fleet: Fleet, prometheus: Prometheus) -> None:
    """Half an hour; at its end all pods have ended, and their last second was scraped."""
    with closing(Receiver(prometheus)) as receiver:
        rules = Evaluation(_GROUPS, prometheus, receiver)
        fleet.step(BEGAN, quiet=True)
        fleet.truth.meter_millijoules = 0
        for now in range(BEGAN + STEP, BEGAN + SECONDS + STEP, STEP):
            quiet = now > BEGAN + SECONDS - 600
            if quiet:
                for node in fleet.nodes:
                    node.jobs.clear()
            fleet.step(now, quiet=quiet)
            if now % SCRAPE_SECONDS == 0:
                for node in fleet.nodes:
                    node.scrape(0, now)
                    receiver.write(node.take(0))
            if now % 60 == 0:
                rules.evaluate(now)
                for node in fleet.nodes:
                    node.evaluated()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, dict[str, dict[str, Any]]]:
    """The fleet, and its bill by every grouping."""
    fleet = Fleet(3, BEGAN, shared=True)
    bills = {}
    directory: Path = tmp_path_factory.mktemp("data")
    with serving(directory, "--web.enable-remote-write-receiver") as prometheus:
        play(fleet, prometheus)
        for by in ("namespace", "workload", "model", "node", "pod"):
            out = io.StringIO()
            period = ["--from", "2023-11-14T22:14Z", "--to", "2023-11-14T22:44Z"]
            flags = ["--prometheus", prometheus.url, "--by", by, "--format", "json", *period]
            assert run(flags, out) == 0
            bills[by] = json.loads(out.getvalue())
    return fleet, bills


@pytest.mark.parametrize("by", ["namespace", "workload", "model", "node", "pod"])
def test_the_bill_has_what_the_meters_counted(
    by: str, played: tuple[Fleet, dict[str, dict[str, Any]]]
) -> None:
    fleet, bills = played
    bill, truth = bills[by], fleet.truth
    assert bill["meter_joules"] == pytest.approx(truth.meter_millijoules / 1000, abs=0.01)
    assert bill["difference_joules"] == pytest.approx(truth.difference_millijoules / 1000, abs=0.01)
    names = ("energy_joules", "gpu_hours", "busy_gpu_hours", "idle_gpu_hours", "cost", "co2_grams")
    of_namespaces = {name: bills["namespace"]["total"][name] for name in names}
    assert {name: bill["total"][name] for name in names} == pytest.approx(of_namespaces, abs=1e-3)


def test_each_namespace_has_what_the_ledgers_charged_it(
    played: tuple[Fleet, dict[str, dict[str, Any]]],
) -> None:
    fleet, bills = played
    charged = Counter[str]()
    for (namespace, pod), millijoules in fleet.truth.millijoules.items():
        charged[namespace] += millijoules - fleet.truth.lost_millijoules[namespace, pod]
    rows = {row["key"]: row["energy_joules"] for row in bills["namespace"]["rows"] if row["kind"] == "owner"}
    assert rows == pytest.approx({name: amount / 1000 for name, amount in charged.items()}, abs=0.01)
