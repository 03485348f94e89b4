"""A tenant that makes up 50,000 pod names in an hour: no more stay than the retention is worth."""

import json
import time
from collections.abc import Iterable

import pytest

from gputally.attribution import FoundOwner, PodReport
from gputally.attribution.resolve import PodIndex
from gputally.devices import Report
from gputally.ledger import Ledger
from gputally.metrics.exposition import render_text
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Gpu, Owner, PodInfo, Process, Reading, Snapshot
from gputally.sampling import collect
from gputally.sampling.collect import Collector
from gputally.sampling.sources import GuardedPodSource, GuardedReaders
from tools.standin.procfs import uid

NAMES, HOUR, INTERVAL, RETENTION = 50_000, 3600, 60, 300
PER_SAMPLE = NAMES * INTERVAL // HOUR
PER_RETENTION = PER_SAMPLE * (RETENTION // INTERVAL + 2)
JOULES_PER_SAMPLE = 7000


def pod_of(pid: int) -> PodInfo:
    return PodInfo("team", f"bomb-{pid:05}", uid(pid), container_names=("main",))


class Bomb:
    """A GPU on which every sample finds new pods, the pods, their owners, and a clock that is ahead."""

    name = "nvml"

    def __init__(self) -> None:
        self.ahead = 0
        self.running: range = range(0)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + self.ahead

    def read(self) -> Report:
        reading = Reading(
            gpu=Gpu("GPU-a", 0, "nvidia", "H100"),
            read_at_us=round(self.monotonic() * 1e6),
            energy_millijoules=self.ahead * JOULES_PER_SAMPLE * 1000 // INTERVAL,
            processes=tuple(Process(pid, "compute", f"python-{pid}", 1 << 30) for pid in self.running),
        )
        return Report((reading,), {})

    def close(self) -> None:
        pass

    def find(
        self,
        listed: Iterable[int],
        pods: PodIndex,  # noqa: ARG002
        ended: Iterable[int] = (),
    ) -> dict[int, FoundOwner]:
        named = ((pid, pod_of(pid)) for pid in (*listed, *ended))
        return {
            pid: FoundOwner(
                Owner("pod", namespace=pod.namespace, pod=pod.pod, container="main", pod_uid=pod.pod_uid)
            )
            for pid, pod in named
        }

    def ended_pods(self, uids: frozenset[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset()


class Pods:
    name = "pod_logs"

    def __init__(self, bomb: Bomb) -> None:
        self._bomb = bomb

    def read(self) -> PodReport:
        return PodReport(tuple(map(pod_of, self._bomb.running)))

    def close(self) -> None:
        pass


def scrape(snapshot: Snapshot) -> bytes:
    return render_text(build_families(snapshot, read_exporter_facts("1", "host")))


def test_50000_pod_names_in_an_hour_leave_no_more_than_the_retention_is_worth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = Bomb()
    monkeypatch.setattr(collect, "time", bomb)
    ledger = Ledger(retention_seconds=RETENTION, max_window_seconds=120, process_accounts=True)
    sampler = Collector(
        [GuardedReaders([bomb])],
        timeout_seconds=600,
        max_age_seconds=600,
        ledger=ledger,
        owners=bomb,
        pod_sources=[GuardedPodSource(Pods(bomb))],
    )
    sizes: dict[int, tuple[int, int]] = {}
    for second in range(INTERVAL, HOUR + 1, INTERVAL):
        bomb.ahead = second
        began = (second // INTERVAL - 1) * PER_SAMPLE
        bomb.running = range(began, began + PER_SAMPLE)
        snapshot = sampler.sample()
        assert len(snapshot.charges) <= PER_RETENTION
        assert len(snapshot.pods) <= PER_RETENTION
        assert len(snapshot.processes) <= PER_RETENTION
        if second in (HOUR // 4, HOUR):
            sizes[second] = len(scrape(snapshot)), len(json.dumps(ledger.state()))
    (early_scrape, early_state), (late_scrape, late_state) = sizes.values()
    assert late_scrape < 1.1 * early_scrape, "three quarters of an hour added nothing"
    assert late_state < 1.1 * early_state
    # It ends, and what it used is still in the ledger.
    bomb.running = range(0)
    bomb.ahead += INTERVAL
    sampler.sample()
    bomb.ahead += RETENTION + INTERVAL
    after = sampler.sample()
    assert (after.charges, after.pods, after.processes) == ((), (), ())
    (book,) = after.gpu_ledgers
    assert sum(book.unattributed_millijoules.values()) == book.energy_millijoules
    assert book.unattributed_millijoules["expired",] > 50 * JOULES_PER_SAMPLE * 1000
