"""An exporter that is killed again and again, while Prometheus goes on scraping it.

With a state file nothing that was served is ever taken back: each state is on disk before it is served. So
Prometheus sees no counter decrease, and `increase()` counts every joule once. Without one each start is a
new epoch, a reset to zero, which `increase()` understands.
"""

import random
import time
from collections.abc import Iterable
from itertools import dropwhile, pairwise
from pathlib import Path

import pytest

from tests.support.ledger_series import (
    GPU,
    HOST,
    POD,
    UNATTRIBUTED,
    Scrape,
    Simulation,
    charged,
    decreases,
    history,
    labels,
    millijoules,
    missing,
    wait_for_ledger,
)
from tests.support.prometheus import prometheus_scraping_address
from tools.servers.prometheus import Prometheus
from tools.servers.waiting import wait_until

RESTARTS = 200
LINES_AT_BIRTH = 8
"""What an exporter logs until its ledger is open."""
LIVES = 15


def next_scrapes(prometheus: Prometheus, count: int) -> None:
    """Waits until Prometheus has scraped an exporter so many times more."""
    scrapes = f"count_over_time({GPU}{{gpu='0'}}[1h])"
    so_far = sum(int(found["value"][1]) for found in prometheus.query(scrapes))
    prometheus.wait_for(f"{scrapes} >= {so_far + count}")


def next_states(file: Path, count: int) -> None:
    """Waits until the state has been saved so many times more."""
    for _ in range(count):
        before = file.stat()
        wait_until(lambda old=before: file.stat() != old, "the state is saved")  # type: ignore[misc]


def grown_by_hand(scrapes: list[Scrape], gpu: str) -> int:
    """What all accounts of a GPU grew by. One that was not in the first scrape began with nothing.

    `initial` and `expired` are left out, as in every query: the one was used before, the other was counted
    in the series of who expired.
    """
    first, last = scrapes[0], {}
    for scrape in scrapes:
        last.update(scrape)
    return sum(
        round(value * 1000) - round(first.get(series, 0) * 1000)
        for series, value in last.items()
        if series[0] in (POD, HOST, UNATTRIBUTED)
        and labels(series)["gpu"] == gpu
        and labels(series).get("reason") not in ("initial", "expired")
    )


def test_after_200_kills_every_joule_is_counted_exactly_once(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path)
    state_file = tmp_path / "ledger.json"
    state = ("--state-file", str(state_file))
    moments = random.Random(200)
    with prometheus_scraping_address(
        tmp_path, f"127.0.0.1:{simulation.port}", scrape_interval="100ms"
    ) as prometheus:
        with simulation.start(*state) as exporter:
            wait_for_ledger(exporter, charged, "the ledger are worth saving")
            prometheus.wait_for(f"count({GPU} > on (gpu) {UNATTRIBUTED}{{reason='initial'}}) == 2")
        for restart in range(RESTARTS):
            if restart % 5 == 0:
                simulation.kill_at_birth(moments.randint(0, LINES_AT_BIRTH), *state)
                continue
            with simulation.start(*state):
                if restart % 2:
                    next_scrapes(prometheus, moments.randint(1, 3))
                else:
                    next_states(state_file, moments.randint(0, 3))
        with simulation.start(*state) as exporter:
            exporter.next_snapshots()
            asked_at = time.time()
            exporter.next_snapshots()
            seen_at = exporter.value("gputally_snapshot_timestamp_seconds")
            prometheus.wait_for(f"gputally_snapshot_timestamp_seconds >= {seen_at}")
        answered_at = time.time()
        kept = history(prometheus).scrapes
        starts = prometheus.api("query", query="process_start_time_seconds[1h]")["result"]
    kept = list(dropwhile(lambda scrape: not charged(scrape), kept))
    final = kept[-1]

    assert len({value for _, value in starts[0]["values"]}) > RESTARTS // 3, "too few lives were scraped"
    assert [found for scrape in kept if (found := missing(scrape))] == []
    assert decreases(kept) == [], "what was served has been saved"
    for gpu in ("0", "1"):
        before = {millijoules(scrape, UNATTRIBUTED, gpu=gpu, reason="initial") for scrape in kept}
        assert len(before) == 1, "the ledger were opened once"
        assert millijoules(final, UNATTRIBUTED, gpu=gpu, reason="unobserved") > 0
        assert millijoules(final, UNATTRIBUTED, gpu=gpu, reason="expired") > 0
        grown = millijoules(final, GPU, gpu=gpu) - millijoules(kept[0], GPU, gpu=gpu)
        assert grown_by_hand(kept, gpu) == grown
        assert (
            simulation.counters(asked_at)[gpu]
            <= millijoules(final, GPU, gpu=gpu)
            <= simulation.counters(answered_at)[gpu]
        )


def increase_by_hand(values: Iterable[int]) -> int:
    """As PromQL's increase(), without extrapolation: a decrease is a reset to zero."""
    return sum(now - then if now >= then else now for then, now in pairwise(values))


def test_without_a_state_file_every_start_is_a_counter_reset_that_increase_handles(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path)
    steady = {"namespace": "nlp", "pod": "steady"}
    moments = random.Random(15)

    def worth_losing(scrape: Scrape) -> bool:
        return millijoules(scrape, POD, **steady) > 0

    with prometheus_scraping_address(
        tmp_path, f"127.0.0.1:{simulation.port}", scrape_interval="100ms"
    ) as prometheus:
        started_at = time.time()
        for _ in range(LIVES):
            with simulation.start() as exporter:
                wait_for_ledger(exporter, worth_losing, "the pod is charged")
                next_scrapes(prometheus, moments.randint(3, 8))
        range_seconds = int(time.time() - started_at) + 1
        kept = history(prometheus)
        query = f"sum(increase({POD}{{pod='steady'}}[{range_seconds}s]))"
        told = float(prometheus.api("query", query=query)["result"][0]["value"][1])

    assert [found for scrape in kept.scrapes if (found := missing(scrape))] == []
    gpu = kept.values(GPU, gpu="0")
    assert gpu == sorted(gpu), "the GPU's own counter went on"
    epochs: dict[int, list[int]] = {}
    for scrape in kept.scrapes:
        before = millijoules(scrape, UNATTRIBUTED, gpu="0", reason="initial")
        epochs.setdefault(before, []).append(millijoules(scrape, POD, **steady))
        charged_to_all = millijoules(scrape, GPU, gpu="0") - before
        assert millijoules(scrape, POD, **steady) <= charged_to_all, "no more than this life has seen"
    assert len(epochs) == LIVES
    for served in epochs.values():
        assert served == sorted(served), "within one life it only rises"
    lived = [served for _, served in sorted(epochs.items())]
    # The first sample of a life can have missed its start; then it is what has been used until then.
    true = sum(served[-1] for served in lived) - lived[0][0]
    assert increase_by_hand(kept.values(POD, **steady)) == true
    # Prometheus extrapolates to the ends of the range, by no more than one scrape interval each here.
    assert told * 1000 == pytest.approx(true, rel=0.05)
