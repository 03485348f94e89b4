"""Charges of the running exporter: the real pynvml on a driver that the test controls."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputally.model import AccountedProcess, Process, ProcessSample, Reading
from tests.support.exporter import Exporter
from tests.support.ledger_series import (
    GPU,
    POD,
    UNATTRIBUTED,
    Scrape,
    Series,
    audited,
    decreases,
    history,
    labels,
    millijoules,
    missing,
    wait_for_ledger,
)
from tests.support.prometheus import prometheus_scraping_address
from tests.support.worlds import world
from tools.servers.prometheus import Prometheus
from tools.standin.kubelet import kubelet, message
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid
from tools.standin.scenario import Fault, FaultKind, Frame, environment, write_scenario

GIB = 2**30
STEP_SECONDS = 0.02
"""Far less than there is between two looks: all of them see the counter and the samples move."""
WATTS = 25
POD_A, POD_B, STRANGER = 4001, 4002, 4999
PODS = {POD_A: ("ml", "pod-a"), POD_B: ("vision", "pod-b")}
A = {"namespace": "ml", "pod": "pod-a"}
B = {"namespace": "vision", "pod": "pod-b"}


class Node:
    """A host with one T4, whose counter and tenants the test moves."""

    def __init__(self, directory: Path) -> None:
        self._scenario = directory / "world"
        (self.reading,) = world("t4", 1, workloads=(), faults=())
        self.reading = replace(self.reading, power_watts=WATTS, energy_millijoules=1_000_000_000)
        self._proc = FakeProcfs(directory / "proc")
        logs, containers = directory / "pods", directory / "containers"
        containers.mkdir()
        for pid, (namespace, pod) in PODS.items():
            (logs / f"{namespace}_{pod}_{uid(pid)}" / "main").mkdir(parents=True)
            (containers / f"{pod}_{namespace}_main-{container_id(pid)}.log").touch()
        self.socket = directory / "kubelet.sock"
        self._log = directory / "log"
        self._flags = (
            *("--procfs", str(self._proc.root), "--pod-logs", str(logs), "--container-logs", str(containers)),
            *("--pod-resources-socket", str(self.socket), "--reader", "nvml", "--interval", "200ms"),
        )

    @property
    def counter(self) -> int:
        return self.reading.energy_millijoules or 0

    def exporter(self, *arguments: str) -> Exporter:
        """An exporter that has found the counter to be true, on a GPU that is at rest by now."""
        began_at, began_with = time.time(), self.counter
        self._play(
            [
                replace(
                    self.reading, energy_millijoules=began_with + round(step * STEP_SECONDS * WATTS * 1000)
                )
                for step in range(1500)
            ]
        )
        exporter = Exporter(
            self._log, "serve", *self._flags, *arguments, environment=environment(self._scenario)
        )
        try:
            wait_for_ledger(
                exporter, lambda now: millijoules(now, UNATTRIBUTED, reason="idle"), "it measures"
            )
            drawn = (time.time() - began_at + 1) * WATTS
            self.change(energy_millijoules=began_with + round(drawn) * 1000)
            self.settled(exporter)
        except BaseException:
            exporter.__exit__(None, None, None)
            raise
        return exporter

    def change(self, *, faults: tuple[Fault, ...] = (), **changes: Any) -> None:
        self.reading = replace(self.reading, **changes)
        self._play([self.reading], faults=faults)

    def start(self, *pids: int) -> None:
        """Each has its process on the GPU; their memory has nothing to do with their work."""
        for pid in pids:
            self._proc.start(pid, pod_cgroup(uid(pid), container_id(pid)))
        self._list(pids)

    def end(self, pid: int, *, left: tuple[int, ...] = ()) -> None:
        self._proc.end(pid)
        self._list(left)

    def _list(self, pids: tuple[int, ...]) -> None:
        listed = tuple(Process(pid, "compute", "python3", (1 + pid % 10) * GIB) for pid in pids)
        self.change(processes=listed)

    def run(self, sm: Mapping[int, float], joules: int, seconds: float) -> float:
        """They run, and the GPU draws that much, evenly. The moment when it will have."""
        started_at = time.time()
        steps = round(seconds / STEP_SECONDS)
        before = self.counter
        frames = [
            replace(
                self.reading,
                energy_millijoules=before + joules * 1000 * step // steps,
                process_samples=_samples(sm, started_at + step * STEP_SECONDS),
            )
            for step in range(steps + 1)
        ]
        self._play(frames, start=started_at)
        self.reading = replace(self.reading, energy_millijoules=before + joules * 1000)
        return started_at + seconds

    def step(self, sm: Mapping[int, float], joules: int, **changes: Any) -> None:
        """All at once, so that one look sees it: what they ran, and what the GPU drew."""
        self.reading = replace(self.reading, energy_millijoules=self.counter + joules * 1000, **changes)
        # A question that comes meanwhile is newer than now, and the next one asks from it on.
        ahead = time.time() + 0.15
        self._play([replace(self.reading, process_samples=_samples(sm, ahead))])

    def settled(self, exporter: Exporter) -> Scrape:
        """The ledger, once they have all that the counter has."""
        return wait_for_ledger(exporter, lambda now: millijoules(now, GPU) == self.counter, "all is booked")

    def _play(
        self, readings: list[Reading], *, start: float | None = None, faults: tuple[Fault, ...] = ()
    ) -> None:
        frames = [Frame(step * STEP_SECONDS, (one,)) for step, one in enumerate(readings)]
        write_scenario(self._scenario, frames, start=start or time.time(), faults=faults)


def _samples(sm: Mapping[int, float], at_seconds: float) -> tuple[ProcessSample, ...]:
    stamp_us = round(at_seconds * 1e6)
    return tuple(ProcessSample(pid, stamp_us, ratio, 0.0, 0.0, 0.0) for pid, ratio in sm.items())


def see_them_run(node: Node, exporter: Exporter, sm: Mapping[int, float]) -> None:
    """The first samples of a driver may be means of long ago; from the second look on they count."""
    node.run(sm, joules=0, seconds=20)
    busy = "gputally_pod_busy_seconds_total"
    wait_for_ledger(
        exporter,
        lambda now: sum(value > 0 for series, value in now.items() if series[0] == busy) == len(sm),
        "they are seen to run",
    )


def by_pod(prometheus: Prometheus, query: str, at_seconds: float) -> dict[str, float]:
    found = prometheus.api("query", query=query, time=str(at_seconds))["result"]
    return {entry["metric"].get("pod", ""): float(entry["value"][1]) for entry in found}


def by_namespace(prometheus: Prometheus, query: str, at_seconds: float) -> dict[str, float]:
    found = prometheus.api("query", query=query, time=str(at_seconds))["result"]
    return {entry["metric"]["namespace"]: float(entry["value"][1]) for entry in found}


def test_two_pods_on_one_gpu_are_charged_120_and_80_of_200_joules(tmp_path: Path) -> None:
    node = Node(tmp_path)
    sm = {POD_A: 0.6, POD_B: 0.4}
    with (
        node.exporter("--process-metrics") as exporter,
        prometheus_scraping_address(tmp_path, exporter.address, scrape_interval="200ms") as prometheus,
    ):
        node.start(POD_A, POD_B)
        see_them_run(node, exporter, sm)
        began_with = node.counter
        prometheus.wait_for("count(gputally_pod_busy_seconds_total > 0) == 2")
        done_at = node.run(sm, joules=200, seconds=200 / WATTS)
        node.settled(exporter)
        prometheus.wait_for(f"{GPU} == {node.counter / 1000}")
        kept, now = history(prometheus), time.time()

        # By the raw samples: exact.
        assert [found for scrape in kept.scrapes if (found := missing(scrape))] == []
        assert decreases(kept.scrapes) == []
        paid_by_a = kept.values(POD, **A, basis="shared")
        paid_by_b = kept.values(POD, **B, basis="shared")
        assert (paid_by_a[0], paid_by_a[-1]) == (0, 120_000)
        assert (paid_by_b[0], paid_by_b[-1]) == (0, 80_000)
        assert all(2 * a == 3 * b for a, b in zip(paid_by_a, paid_by_b, strict=True))
        assert kept.values(POD)[-1] == 200_000, "nothing was charged on another basis"
        assert kept.values(GPU)[-1] - began_with == 200_000

        # Rates, while they ran: both series have the same stamps, so their ratio is exact. The watts
        # themselves are as exact as a few looks and scrapes allow.
        rate = f"rate({POD}[4s])"
        late = done_at - 1
        watts = by_pod(prometheus, f"sum by (pod) ({rate})", late)
        assert watts["pod-a"] / watts["pod-b"] == pytest.approx(1.5)
        assert sum(watts.values()) == pytest.approx(WATTS, rel=0.3)
        assert by_pod(prometheus, f"sum({rate})", late) == {"": pytest.approx(sum(watts.values()))}
        assert by_namespace(prometheus, f"sum by (namespace) ({rate})", late) == {
            "ml": pytest.approx(watts["pod-a"]),
            "vision": pytest.approx(watts["pod-b"]),
        }
        assert list(by_pod(prometheus, f"topk(1, sum by (pod) ({rate}))", late)) == ["pod-a"]

        # Energy and money: increase() extrapolates, by less than a scrape interval at the end.
        increase = f"sum by (namespace, pod) (increase({POD}[1h]))"
        assert by_pod(prometheus, increase, now) == pytest.approx({"pod-a": 120, "pod-b": 80}, rel=0.05)
        kwh = by_pod(prometheus, f"{increase} / 3.6e6", now)
        assert kwh == pytest.approx({"pod-a": 120 / 3.6e6, "pod-b": 80 / 3.6e6}, rel=0.05)
        cost = by_pod(prometheus, f"sum({increase} / 3.6e6 * 0.10)", now)
        assert cost == pytest.approx({"": 200 / 3.6e6 * 0.10}, rel=0.05)

        # Processes, and what they do with a watt: each gets the same out of it.
        processes = "sum by (namespace) (gputally_process_active)"
        assert by_namespace(prometheus, processes, now) == {"ml": 1, "vision": 1}
        assert by_pod(prometheus, "sum(gputally_process_active)", now) == {"": 2}
        efficiency = "gputally_process_sm_utilization_ratio / rate(gputally_process_energy_joules_total[4s])"
        per_watt = by_pod(prometheus, efficiency, late)
        assert per_watt["pod-a"] == pytest.approx(per_watt["pod-b"])
        assert per_watt["pod-a"] == pytest.approx(1 / WATTS, rel=0.3)


def test_an_exited_pod_is_exported_until_retention_and_its_energy_stays_counted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.exporter("--retention", "2s") as exporter, audited(exporter) as auditor:
        node.start(POD_A, POD_B)
        see_them_run(node, exporter, {POD_A: 0.5, POD_B: 0.5})
        node.step({POD_A: 0.5, POD_B: 0.5}, joules=50)
        node.settled(exporter)
        node.end(POD_A, left=(POD_B,))

        def ours(series: Series) -> bool:
            return labels(series).get("pod") == "pod-a"

        def active(now: Scrape) -> float | None:
            return next((v for s, v in now.items() if s[0] == "gputally_pod_active" and ours(s)), None)

        ended = wait_for_ledger(exporter, lambda now: active(now) == 0, "it is seen to be gone")
        assert millijoules(ended, POD, **A) == 25_000
        assert any(ours(series) for series in ended if series[0] == "gputally_pod_info")
        retired = wait_for_ledger(exporter, lambda now: active(now) is None, "its series are gone")
        assert not any(ours(series) for series in retired)
        assert millijoules(retired, UNATTRIBUTED, reason="expired") == 25_000
        assert millijoules(retired, POD, **B) == 25_000
        assert millijoules(retired, GPU) == node.counter
    zeros = [scrape for scrape in auditor.scrapes if active(scrape) == 0]
    assert zeros, "between the two it was scraped"


def test_a_reloaded_driver_decreases_no_counter(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.exporter() as exporter, audited(exporter):
        node.start(POD_A)
        node.step({}, joules=40)
        before = node.settled(exporter)
        node.change(faults=(Fault(FaultKind.DRIVER_GONE),))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 0, "the driver is gone")
        node.change(energy_millijoules=7_000)
        total = millijoules(before, GPU) + 7_000
        after = wait_for_ledger(exporter, lambda now: millijoules(now, GPU) == total, "it is back")
        assert millijoules(after, POD, **A) == 40_000
        assert millijoules(after, UNATTRIBUTED, reason="unobserved") == 7_000
        reset = exporter.value("gputally_source_field_errors", "ledger", "energy_millijoules", "reset")
        assert reset == 1
        node.step({}, joules=30)
        last = wait_for_ledger(exporter, lambda now: millijoules(now, GPU) == total + 30_000, "it counts on")
        assert millijoules(last, POD, **A) == 70_000


def test_a_job_that_ended_between_two_samples_is_charged_if_it_was_known(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.exporter() as exporter, audited(exporter):
        node.start(POD_A, POD_B)
        sm = {POD_A: 0.6, POD_B: 0.4}
        see_them_run(node, exporter, sm)
        only_b = tuple(process for process in node.reading.processes or () if process.pid == POD_B)
        node.step(sm, joules=100, processes=only_b)
        ledger = node.settled(exporter)
        assert millijoules(ledger, POD, **A, basis="shared") == 60_000
        assert millijoules(ledger, POD, **B, basis="shared") == 40_000


def given_to_pod_a(device_id: str) -> bytes:
    devices = [message("v1.ContainerDevices", resource_name="nvidia.com/gpu", device_ids=[device_id])]
    containers = [message("v1.ContainerResources", name="main", devices=devices)]
    pods = [message("v1.PodResources", name="pod-a", namespace="ml", containers=containers)]
    return bytes(message("v1.ListPodResourcesResponse", pod_resources=pods).SerializeToString())


@pytest.mark.parametrize("held", [False, True], ids=["nobody", "one holder"])
def test_a_job_that_was_never_sampled_is_charged_to_the_only_holder_or_unknown(
    held: bool, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    gives = given_to_pod_a("not a device of this node")
    with (
        kubelet(node.socket, {"/v1.PodResourcesLister/List": lambda _: gives}),
        node.exporter() as exporter,
        audited(exporter),
    ):
        node.start(POD_B)
        see_them_run(node, exporter, {POD_B: 0.5})
        if held:
            gives = given_to_pod_a(node.reading.gpu.uuid)
            wait_for_ledger(
                exporter,
                lambda now: any(s[0] == POD and A.items() <= labels(s).items() for s in now),
                "the holder is known",
            )
        node.step({POD_B: 0.25, STRANGER: 0.75}, joules=100)
        ledger = node.settled(exporter)
        assert millijoules(ledger, POD, **B) == 25_000
        assert millijoules(ledger, POD, **A, basis="held") == (75_000 if held else 0)
        assert millijoules(ledger, UNATTRIBUTED, reason="unknown") == (0 if held else 75_000)


@pytest.mark.parametrize("asked", [False, True], ids=["not asked for", "asked for"])
def test_accounting_reports_a_job_that_was_never_sampled(asked: bool, tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.exporter(*(["--accounting"] if asked else [])) as exporter, audited(exporter):
        node.change(accounting_mode=True)
        node.start(POD_B)
        exporter.next_snapshots()
        # Ahead of now, so that no look can come in between and take it for one of before.
        ended = AccountedProcess(STRANGER, round((time.time() + 1) * 1e6), 1000, 1.0, GIB)
        node.step({}, joules=100, accounted=(ended,))
        ledger = node.settled(exporter)
        assert millijoules(ledger, POD, **B) == (0 if asked else 100_000), "it had processes, and did nothing"
        assert millijoules(ledger, UNATTRIBUTED, reason="unknown") == (100_000 if asked else 0)
