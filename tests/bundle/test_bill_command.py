"""`gputally bill` on a real Prometheus: the bill of a month is exact, also where Prometheus cuts a range."""

import io
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from gputally.commands.bill import run
from tests.support.bill_store import BillStore
from tests.support.bills import DAY, HOUR, START, add_minute
from tools.replay.records import Window, encode_samples, write_records
from tools.servers.prometheus import Prometheus, serving

DAYS = 31


@pytest.fixture(scope="module")
def fleet() -> BillStore:
    """A month in which the rules were evaluated in the hour before and the hour after each midnight only."""
    store, chosen = BillStore(), random.Random(7)
    for minute in range(DAYS * 1440):
        if 60 <= minute % 1440 < 23 * 60:
            continue
        add_minute(store, minute, cluster="west", node="gpu-1", pods=chosen.choice((0, 1, 2)))
    # On the very edges of the month: the first sample belongs to September, the last one to October.
    for at in (START, START + DAYS * DAY):
        store.add("host:gputally_bill_energy:joules", at, 1.0, cluster="west", owner="edge", basis="held")
    return store


@pytest.fixture(scope="module")
def prometheus(fleet: BillStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    data = tmp_path_factory.mktemp("data")
    write_records(windows(fleet), data)
    with serving(data) as served:
        yield served


def windows(store: BillStore) -> Iterator[Window]:
    by_hour: dict[int, list[tuple[dict[str, str], bytes]]] = defaultdict(list)
    for labels, samples in store.series.items():
        hours: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for at, value in samples:
            hours[int(at) // HOUR].append((round(at * 1000), value))
        for hour, found in hours.items():
            by_hour[hour].append((dict(labels), encode_samples(found)))
    return (by_hour[hour] for hour in sorted(by_hour))


def billed(prometheus: Prometheus, *flags: str) -> dict[str, Any]:
    out = io.StringIO()
    command = ["--prometheus", prometheus.url, "--format", "json", *flags]
    assert run(command, out, clock=lambda: START + 40 * DAY) == 0
    bill: dict[str, Any] = json.loads(out.getvalue())
    return bill


def truth(store: BillStore, record: str, **labels: str) -> float:
    """The sum of all samples, in thousandths, which is how they were made."""
    return (
        sum(
            round(value * 1000)
            for key, samples in store.series.items()
            if {"__name__": record, **labels}.items() <= dict(key).items()
            for _, value in samples
        )
        / 1000
    )


@pytest.mark.parametrize("by", ["namespace", "workload", "pod", "node", "model"])
@pytest.mark.parametrize("piece", ["24", "7"])
def test_the_bill_of_a_month_is_exact_to_the_millijoule(
    prometheus: Prometheus, fleet: BillStore, by: str, piece: str
) -> None:
    bill = billed(prometheus, "--month", "2026-10", "--by", by, "--piece", piece)
    assert bill["meter_joules"] == truth(fleet, "node:gputally_bill_meter:joules")
    assert bill["difference_joules"] == (0 if by in ("node", "model") else -1)  # the one at the edge
    hours = truth(fleet, "node:gputally_bill_time:seconds") / 3600
    assert bill["total"]["gpu_hours"] == pytest.approx(hours, abs=1e-6)
    assert {(gap["from"][11:16], gap["to"][11:16]) for gap in bill["gaps"]} == {("01:00", "23:00")}
    assert len(bill["gaps"]) == DAYS


def test_the_months_that_touch_share_no_sample(prometheus: Prometheus) -> None:
    def edge(*period: str) -> list[float]:
        bill = billed(prometheus, "--by", "pod", *period)
        return [row["energy_joules"] for row in bill["rows"] if row["key"] == "edge"]

    assert edge("--month", "2026-10") == [1]
    assert edge("--from", "2026-09-30", "--to", "2026-10-01") == [1]


def test_a_namespace_is_exact(prometheus: Prometheus, fleet: BillStore) -> None:
    bill = billed(prometheus, "--month", "2026-10", "--timezone", "UTC")
    (row,) = (row for row in bill["rows"] if row["key"] == "team-1")
    assert row["energy_joules"] == truth(fleet, "workload:gputally_bill_energy:joules", namespace="team-1")
