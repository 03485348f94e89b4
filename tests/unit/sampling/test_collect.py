"""The collector under readers that fail, hang and come back."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.attribution import FoundOwner, PodReport
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.resolve import PodIndex
from gputally.devices import Report
from gputally.ledger import Ledger
from gputally.ledger.state_file import decode
from gputally.model import (
    Gpu,
    Labelled,
    Owner,
    PodInfo,
    Process,
    Reading,
    Snapshot,
    SourceState,
    Unavailable,
    Unknown,
)
from gputally.sampling import collect, sources
from gputally.sampling.checkpoint import Checkpoint
from gputally.sampling.collect import Collector
from gputally.sampling.guard import Attempt, Guarded, Record
from gputally.sampling.sources import GuardedPodSource, GuardedReaders
from tests.support.clock import Clock
from tools.servers.waiting import wait_until
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid


def reading(index: int, **values: float) -> Reading:
    return Reading(gpu=Gpu(f"GPU-{index}", index, "nvidia", "H100"), **values)  # type: ignore[arg-type]


class Scripted:
    """A reader that follows a script, read by read."""

    def __init__(self, name: str, *looks: Callable[[], Report]) -> None:
        self.name = name
        self.looks = list(looks)
        self.closed = False

    def read(self) -> Report:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return look()

    def close(self) -> None:
        self.closed = True


def gives(*readings: Reading, **errors: int) -> Callable[[], Report]:
    return lambda: Report(readings, {(field, "Unknown"): count for field, count in errors.items()})


def fails(error: Exception) -> Callable[[], Report]:
    def look() -> Report:
        raise error

    return look


def waits_for(gate: threading.Event, then: Callable[[], Report]) -> Callable[[], Report]:
    def look() -> Report:
        gate.wait(100)
        return then()

    return look


class NoOwners:
    """Finds no owner for any process."""

    def find(
        self,
        listed: Iterable[int],
        pods: PodIndex,  # noqa: ARG002
        ended: Iterable[int] = (),
    ) -> dict[int, FoundOwner]:
        return {pid: FoundOwner(Unknown("exited")) for pid in (*listed, *ended)}

    def ended_pods(self, uids: frozenset[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset()


def new_ledger() -> Ledger:
    return Ledger(retention_seconds=300, max_window_seconds=60)


def collector(*readers: Scripted, timeout: float = 60.0, max_age: float = 60.0) -> Collector:
    return Collector(
        [GuardedReaders(readers)],
        timeout_seconds=timeout,
        max_age_seconds=max_age,
        ledger=new_ledger(),
        owners=NoOwners(),
    )


def sample_within(sampler: Collector, seconds: float) -> Snapshot:
    """A sample with its own timeout: short where a source hangs, long where it must be read."""
    sampler._timeout_seconds = seconds
    return sampler.sample()


def states(snapshot: Snapshot) -> dict[str, SourceState]:
    return {state.name: state for state in snapshot.sources}


def test_a_snapshot_has_the_readings_of_the_reader() -> None:
    before = time.time()
    snapshot = collector(Scripted("nvml", gives(reading(0, power_watts=71.5), fan=3))).sample()
    assert [r.power_watts for r in snapshot.readings] == [71.5]
    state = states(snapshot)["nvml"]
    assert (state.up, state.gpus, state.failures, state.errors) == (True, 1, 0, {("fan", "Unknown"): 3})
    assert before <= (state.last_success_seconds or 0) <= time.time()
    assert snapshot.age_seconds == 0


def test_implausible_values_are_dropped_and_counted() -> None:
    nvml = Scripted("nvml", gives(reading(0, power_watts=70.0, gpu_utilization_ratio=8083349.05)))
    sampler = collector(nvml)
    sampler.sample()
    snapshot = sampler.sample()
    (only,) = snapshot.readings
    assert (only.gpu_utilization_ratio, only.power_watts) == (None, 70.0)
    assert states(snapshot)["nvml"].errors == {("gpu_utilization_ratio", "implausible"): 2}


def test_the_second_reader_is_used_if_the_first_is_unavailable() -> None:
    nvml = Scripted("nvml", fails(Unavailable("no library", "install it")), gives(reading(0)))
    smi = Scripted("nvidia-smi", gives(reading(0)))
    sampler = collector(nvml, smi)
    first = states(sampler.sample())
    assert (first["nvml"].up, first["nvml"].reason, first["nvml"].fix) == (False, "no library", "install it")
    assert first["nvidia-smi"].up
    second = states(sampler.sample())
    assert "nvidia-smi" not in second, "a reader that stands behind the one in use has nothing to say"
    assert second["nvml"].up
    assert second["nvml"].failures == 1


def test_an_unexpected_error_is_contained_and_reported() -> None:
    nvml = Scripted("nvml", fails(ZeroDivisionError("oops")), gives(reading(0)))
    sampler = collector(nvml)
    state = states(sampler.sample())["nvml"]
    assert (state.up, state.reason) == (False, "unexpected ZeroDivisionError: oops")
    assert states(sampler.sample())["nvml"].up


def test_gpus_of_a_missing_driver_are_down_and_kept() -> None:
    nvml = Scripted("nvml", gives(reading(0, power_watts=70.0)), fails(Unavailable("driver not loaded")))
    sampler = collector(nvml)
    sampler.sample()
    snapshot = sampler.sample()
    (only,) = snapshot.readings
    assert (only.up, only.power_watts, only.gpu.uuid) == (False, None, "GPU-0")
    assert snapshot.age_seconds == 0, "no old value is served, so nothing is stale"


def test_a_gpu_that_is_no_longer_listed_is_down() -> None:
    nvml = Scripted("nvml", gives(reading(0), reading(1)), gives(reading(1)))
    sampler = collector(nvml)
    sampler.sample()
    assert {r.gpu.uuid: r.up for r in sampler.sample().readings} == {"GPU-0": False, "GPU-1": True}


def test_a_gpu_that_the_driver_listed_twice_is_there_once() -> None:
    """Its list changed while it was read: GPU 1 was the last one before, and took the place of a lost one."""
    moved, late = reading(1, power_watts=70.0), reading(1, up=False)
    for listed in ((moved, late), (late, moved), (moved, moved)):
        snapshot = collector(Scripted("nvml", gives(reading(0), *listed))).sample()
        assert [(r.gpu.index, r.power_watts) for r in snapshot.readings] == [(0, None), (1, 70.0)]


def test_a_gpu_without_a_name_is_replaced_once_it_has_one() -> None:
    nameless = Reading(gpu=Gpu("", 1, "nvidia", ""), up=False)
    nvml = Scripted("nvml", gives(reading(0), nameless), gives(reading(0), reading(1)))
    sampler = collector(nvml)
    sampler.sample()
    assert [r.gpu.uuid for r in sampler.sample().readings] == ["GPU-0", "GPU-1"]


def test_a_hanging_source_does_not_block_and_its_last_readings_are_used_until_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(sources, "time", clock)
    gate = threading.Event()
    nvml = Scripted(
        "nvml",
        gives(reading(0, power_watts=70.0)),
        waits_for(gate, gives(reading(0, power_watts=80.0))),
        gives(reading(0, power_watts=90.0)),
    )
    sampler = collector(nvml)
    sampler.sample()
    late = sample_within(sampler, 0.2)
    assert [r.power_watts for r in late.readings] == [70.0]
    assert late.age_seconds > 0
    state = states(late)["nvml"]
    assert (state.up, state.overruns, state.reason) == (False, 1, "no answer within 0.2 s")
    assert "dmesg" in state.fix
    clock.ahead = 60
    too_old = sampler.sample()
    assert [(r.up, r.power_watts) for r in too_old.readings] == [(False, None)]
    assert states(too_old)["nvml"].overruns == 2
    gate.set()
    snapshot = sample_within(sampler, 60)
    assert states(snapshot)["nvml"].up
    assert [r.power_watts for r in snapshot.readings] == [80.0], "what came late is taken when it comes"
    assert snapshot.age_seconds == 0
    assert [r.power_watts for r in sampler.sample().readings] == [90.0]


def test_a_source_is_read_once_at_a_time() -> None:
    gate = threading.Event()
    looks: list[str] = []

    def counted() -> Report:
        looks.append("one")
        gate.wait(100)
        return Report((reading(0),))

    sampler = collector(Scripted("nvml", counted), timeout=0.05)
    for _ in range(5):
        sampler.sample()
    wait_until(lambda: looks)
    sampler.sample()
    gate.set()
    assert looks == ["one"]


def test_sources_are_read_in_parallel() -> None:
    gate = threading.Event()
    hangs = GuardedReaders([Scripted("nvml", waits_for(gate, gives()))])
    works = GuardedReaders([Scripted("amdgpu", gives(reading(7)))])
    both = Collector(
        [hangs, works], timeout_seconds=0.2, max_age_seconds=60, ledger=new_ledger(), owners=NoOwners()
    )
    snapshot = wait_until(
        lambda: both_sampled if states(both_sampled := both.sample())["amdgpu"].up else None
    )
    gate.set()
    assert not states(snapshot)["nvml"].up
    assert [r.gpu.index for r in snapshot.readings] == [7]


def test_sampling_continues_if_a_snapshot_cannot_be_published() -> None:
    published: list[Snapshot] = []
    stop = threading.Event()

    def publish(snapshot: Snapshot) -> None:
        published.append(snapshot)
        if len(published) == 1:
            raise OSError("disk full")
        stop.set()

    collector(Scripted("nvml", gives(reading(0)))).run(0.01, publish, stop)
    assert len(published) == 2


def test_closing_closes_the_readers_except_a_hanging_one() -> None:
    gate = threading.Event()
    good, bad = Scripted("nvml", gives()), Scripted("nvml", waits_for(gate, gives()))
    for reader, seconds in ((good, 60), (bad, 0.1)):
        sampler = collector(reader, timeout=seconds)
        sampler.sample()
        sampler.close(seconds)
    gate.set()
    assert (good.closed, bad.closed) == (True, False)


class ScriptedPods:
    """A pod source that follows a script, read by read."""

    def __init__(self, *looks: Callable[[], PodReport]) -> None:
        self.name = "pod_logs"
        self.looks = list(looks)
        self.closed = False

    def read(self) -> PodReport:
        return (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])()

    def close(self) -> None:
        self.closed = True


POD = PodInfo("team-a", "train-0", uid(1), containers={container_id(1): "main"}, container_names=("main",))


def attributing(tmp_path: Path, *looks: Callable[[], PodReport], timeout: float = 60.0) -> Collector:
    proc = FakeProcfs(tmp_path)
    proc.start(41, pod_cgroup(uid(1), container_id(1)))
    on_gpu = replace(reading(0), processes=(Process(41, "compute", "python3", 7),))
    return Collector(
        [GuardedReaders([Scripted("nvml", gives(on_gpu))])],
        timeout_seconds=timeout,
        max_age_seconds=60,
        ledger=new_ledger(),
        pod_sources=[GuardedPodSource(ScriptedPods(*looks))],
        owners=ProcessOwners(tmp_path),
    )


def test_processes_are_attributed_to_their_pods(tmp_path: Path) -> None:
    snapshot = attributing(tmp_path, lambda: PodReport((POD,))).sample()
    (use,) = snapshot.uses
    assert isinstance(use.owner, Owner)
    assert (use.owner.pod, use.processes, use.memory_used_bytes) == ("train-0", 1, 7)
    assert [pod.pod for pod in snapshot.pods] == ["train-0"]
    assert {name: state.up for name, state in states(snapshot).items()} == {
        "nvml": True,
        "pod_logs": True,
        "cgroup": True,
        "ledger": True,
    }


def test_a_pod_source_that_fails_is_reported_and_its_last_report_stays(tmp_path: Path) -> None:
    def fails_now() -> PodReport:
        raise Unavailable("kubelet is gone", "start it")

    sampler = attributing(tmp_path, lambda: PodReport((POD,)), fails_now)
    sampler.sample()
    snapshot = sampler.sample()
    state = states(snapshot)["pod_logs"]
    assert (state.up, state.reason, state.failures) == (False, "kubelet is gone", 1)
    assert [pod.pod for pod in snapshot.pods] == ["train-0"]
    assert states(snapshot)["nvml"].up


def test_a_stale_report_is_used_and_its_source_is_down(tmp_path: Path) -> None:
    old = PodReport((POD,), stale=("the watch is down", "see RBAC"))
    snapshot = attributing(tmp_path, lambda: old).sample()
    state = states(snapshot)["pod_logs"]
    assert (state.up, state.reason, state.fix) == (False, "the watch is down", "see RBAC")
    assert [pod.pod for pod in snapshot.pods] == ["train-0"]


def test_a_pod_source_that_hangs_does_not_affect_the_others(tmp_path: Path) -> None:
    gate = threading.Event()

    def hangs() -> PodReport:
        gate.wait(100)
        return PodReport()

    sampler = attributing(tmp_path, hangs, timeout=0.2)
    snapshot = wait_until(lambda: sampled if states(sampled := sampler.sample())["nvml"].up else None)
    gate.set()
    assert states(snapshot)["pod_logs"].overruns >= 1
    (use,) = snapshot.uses
    assert use.owner == Unknown("unknown_pod", uid(1), container_id(1))


def test_another_pid_namespace_is_reported_as_one_fault(tmp_path: Path) -> None:
    sampler = attributing(tmp_path, PodReport)
    FakeProcfs(tmp_path).end(41)
    snapshot = sampler.sample()
    state = states(snapshot)["cgroup"]
    assert not state.up
    assert "another pid namespace" in state.reason
    assert [use.owner for use in snapshot.uses] == [Unknown("pid_namespace")]


def block(proc: Path, pid: int) -> None:
    """Reading the process blocks, until a writer comes."""
    (proc / str(pid) / "stat").unlink()
    os.mkfifo(proc / str(pid) / "stat")


def unblock(proc: Path, pid: int) -> None:
    """The reader now gets the rest of the process."""
    fifo = proc / str(pid) / "stat"
    writer = os.open(fifo, os.O_RDWR)
    fifo.unlink()
    FakeProcfs(proc).start(pid, pod_cgroup(uid(1), container_id(1)))
    os.close(writer)


def test_a_proc_that_blocks_is_reported_and_the_gpus_are_read_on(tmp_path: Path) -> None:
    sampler = attributing(tmp_path, lambda: PodReport((POD,)))
    sampler.sample()
    block(tmp_path, 41)
    for overruns in (1, 2):
        snapshot = sample_within(sampler, 0.2)
        state = states(snapshot)["cgroup"]
        assert (state.up, state.overruns, state.reason) == (False, overruns, "no answer within 0.2 s")
        assert "/proc/PID" in state.fix
        assert [one.up for one in snapshot.readings] == [True]
        assert snapshot.uses == ()
        assert snapshot.age_seconds == 0
    unblock(tmp_path, 41)
    snapshot = wait_until(lambda: found if (found := sample_within(sampler, 60)).uses else None)
    assert states(snapshot)["cgroup"].up


def metered_process(millijoules: int) -> Callable[[], Report]:
    return gives(
        replace(reading(0), energy_millijoules=millijoules, processes=(Process(41, "compute", "python3", 7),))
    )


def test_energy_is_charged_once_proc_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(collect, "time", clock)
    sampler = attributing(tmp_path, lambda: PodReport((POD,)))
    nvml = Scripted("nvml", *map(metered_process, (1000, 1500, 1700, 2000, 2600, 2900)))
    sampler._readers = (GuardedReaders([nvml]),)
    sampler.sample()
    block(tmp_path, 41)
    (ledger,) = sample_within(sampler, 0.2).gpu_ledgers
    assert ledger.energy_millijoules == 1000, "the window stays open"
    unblock(tmp_path, 41)
    snapshot = wait_until(lambda: found if states(found := sampler.sample())["cgroup"].up else None)
    (ledger,), (charge,) = snapshot.gpu_ledgers, snapshot.charges
    charged = ledger.energy_millijoules - 1000
    assert charged >= 700
    assert charge.energy_millijoules == {("measured",): charged, ("shared",): 0, ("held",): 0}


def test_while_proc_blocks_for_long_the_energy_is_of_an_unknown_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(collect, "time", clock)
    sampler = attributing(tmp_path, lambda: PodReport((POD,)))
    sampler._readers = (GuardedReaders([Scripted("nvml", *map(metered_process, (1000, 1500, 1700, 2000)))]),)
    sampler.sample()
    sampler.sample()
    block(tmp_path, 41)
    clock.ahead = 61
    for millijoules, unknown in ((1700, 0), (2000, 300)):  # the owners at the start of a window are known
        (ledger,) = sample_within(sampler, 0.2).gpu_ledgers
        assert (ledger.energy_millijoules, ledger.unattributed_millijoules["unknown",]) == (
            millijoules,
            unknown,
        )
    unblock(tmp_path, 41)


def test_energy_of_a_suspended_host_is_unobserved(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = collector(Scripted("nvml", *map(counted, (1000, 1700, 9700, 9800))))
    sampler.sample()
    sampler.sample()
    monkeypatch.setattr(collect, "suspended_us", lambda: 8 * 3600 * 1_000_000)
    (ledger,) = sampler.sample().gpu_ledgers
    assert (ledger.unattributed_millijoules["idle",], ledger.unattributed_millijoules["unobserved",]) == (
        700,
        8000,
    )
    (ledger,) = sampler.sample().gpu_ledgers
    assert ledger.unattributed_millijoules["idle",] == 800


@pytest.mark.parametrize("days", [-4000, -1, 1, 4000])
def test_a_jump_of_the_wall_clock_changes_no_charge(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = collector(Scripted("nvml", *map(counted, (1000, 1700))))
    sampler.sample()
    jumped = time.time() + days * 86_400
    monkeypatch.setattr(time, "time", lambda: jumped)
    (ledger,) = sampler.sample().gpu_ledgers
    assert ledger.unattributed_millijoules["idle",] == 700


class NotSaved:
    """A checkpoint that can save nothing, until it is told to."""

    def __init__(self) -> None:
        self.saves = False

    def write(self, *_: object) -> bool:
        return self.saves

    def state(self) -> SourceState:
        return SourceState(name="state_file", up=self.saves)


def test_while_charges_are_withheld_the_energy_of_the_gpu_is_served() -> None:
    checkpoint = NotSaved()
    sampler = collector(Scripted("nvml", *map(counted, (1000, 1700, 2000, 2100))))
    sampler._checkpoint = checkpoint  # type: ignore[assignment]
    for millijoules in (1000, 1700):
        snapshot = sampler.sample()
        (ledger,) = snapshot.gpu_ledgers
        assert (
            ledger.unattributed_millijoules
            == {("initial",): ledger.energy_millijoules}
            == {("initial",): millijoules}
        )
        assert snapshot.charges == ()
        assert "charges are withheld" in states(snapshot)["ledger"].reason
    checkpoint.saves = True
    snapshot = sampler.sample()
    assert snapshot.gpu_ledgers[0].unattributed_millijoules["initial",] == 1000
    assert snapshot.gpu_ledgers[0].unattributed_millijoules["idle",] == 1000
    assert states(snapshot)["ledger"].up
    checkpoint.saves = False
    assert sampler.sample().gpu_ledgers == snapshot.gpu_ledgers, "what was published last stays"


def counted(millijoules: int) -> Callable[[], Report]:
    return gives(replace(reading(0), energy_millijoules=millijoules, processes=()))


def test_readings_of_a_source_that_hangs_are_not_charged_twice() -> None:
    gate = threading.Event()
    nvml = Scripted("nvml", counted(1000), counted(1700), waits_for(gate, counted(2500)), counted(2500))
    sampler = collector(nvml)
    sampler.sample()
    sampler.sample()
    hanging = sample_within(sampler, 0.2)
    assert not states(hanging)["nvml"].up
    assert [book.energy_millijoules for book in hanging.gpu_ledgers] == [1700]
    gate.set()
    (book,) = sample_within(sampler, 60).gpu_ledgers
    assert book.energy_millijoules == 2500
    assert book.unattributed_millijoules["idle",] == 1500


def at(seconds: float, index: int, **values: float) -> Reading:
    """A reading of a GPU that tells when it was read, that many seconds from now."""
    return replace(reading(index, **values), read_at_us=round((time.monotonic() + seconds) * 1_000_000))


def late(index: int, **xids: int) -> Reading:
    errors: Labelled = {(code.removeprefix("xid"),): float(count) for code, count in xids.items()}
    return replace(reading(index), up=False, late=True, xid_errors=errors or None)


def test_the_last_reading_of_a_late_gpu_stays_until_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(sources, "time", clock)
    nvml = Scripted(
        "nvml",
        gives(at(-5, 0, power_watts=70.0), at(-5, 1, power_watts=71.0)),
        gives(at(0, 0, power_watts=80.0), late(1, xid119=1)),
        gives(at(30, 0, power_watts=81.0), late(1, xid119=2)),
        gives(at(60, 0, power_watts=82.0), late(1, xid119=3)),
        gives(at(60, 0, power_watts=83.0), at(60, 1, power_watts=90.0)),
    )
    sampler = collector(nvml)
    sampler.sample()
    snapshot = sampler.sample()
    assert [(r.up, r.power_watts) for r in snapshot.readings] == [(True, 80.0), (True, 71.0)]
    assert snapshot.readings[1].xid_errors == {("119",): 1}
    assert snapshot.age_seconds >= 5
    assert states(snapshot)["nvml"].up
    clock.ahead = 30
    assert [r.power_watts for r in sampler.sample().readings] == [81.0, 71.0], "late for the second time"
    clock.ahead = 60
    too_old = sampler.sample()
    assert [(r.up, r.power_watts) for r in too_old.readings] == [(True, 82.0), (False, None)]
    assert too_old.readings[1].xid_errors == {("119",): 3}
    assert too_old.age_seconds == 0, "no old value is served"
    back = sampler.sample()
    assert [(r.up, r.power_watts) for r in back.readings] == [(True, 83.0), (True, 90.0)]
    assert back.age_seconds == 0


def test_a_late_gpu_that_was_never_read_is_down() -> None:
    snapshot = collector(Scripted("nvml", gives(at(0, 0), late(1)))).sample()
    assert [r.up for r in snapshot.readings] == [True, False]


def test_a_reading_that_comes_too_late_is_not_served() -> None:
    nvml = Scripted("nvml", gives(at(-61, 0, power_watts=70.0)), gives(at(0, 0, power_watts=80.0)))
    sampler = collector(nvml)
    assert [(r.up, r.power_watts) for r in sampler.sample().readings] == [(False, None)]
    assert [(r.up, r.power_watts) for r in sampler.sample().readings] == [(True, 80.0)]


def test_the_energy_of_a_late_gpu_is_charged_once_when_it_is_back() -> None:
    def metered(seconds: float, index: int, millijoules: int) -> Reading:
        return replace(at(seconds, index), energy_millijoules=millijoules, processes=())

    nvml = Scripted(
        "nvml",
        gives(metered(-20, 0, 1000), metered(-20, 1, 1000)),
        gives(metered(-15, 0, 1100), metered(-15, 1, 1200)),
        gives(metered(-10, 0, 1200), late(1)),
        gives(metered(-5, 0, 1300), late(1)),
        gives(metered(0, 0, 1400), metered(0, 1, 1800)),
    )
    sampler = collector(nvml)
    energies = []
    for _ in range(5):
        snapshot = sampler.sample()
        energies.append([book.energy_millijoules for book in snapshot.gpu_ledgers])
    assert energies == [[1000, 1000], [1100, 1200], [1200, 1200], [1300, 1200], [1400, 1800]]
    assert [book.unattributed_millijoules["idle",] for book in snapshot.gpu_ledgers] == [400, 800]
    assert [book.unattributed_millijoules["unobserved",] for book in snapshot.gpu_ledgers] == [0, 0]


def test_an_exited_pod_keeps_its_labels_while_it_is_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(collect, "time", clock)
    proc = FakeProcfs(tmp_path)
    proc.start(41, pod_cgroup(uid(1), container_id(1)))
    proc.start(1, "0::/init.scope")
    on_gpu = replace(reading(0), processes=(Process(41, "compute", "python3", 7),))
    facts = replace(POD, workload="Job/train")
    sampler = Collector(
        [GuardedReaders([Scripted("nvml", gives(on_gpu), gives(reading(0)))])],
        timeout_seconds=60,
        max_age_seconds=60,
        ledger=Ledger(retention_seconds=300, max_window_seconds=60),
        pod_sources=[GuardedPodSource(ScriptedPods(lambda: PodReport((facts,)), PodReport))],
        owners=ProcessOwners(tmp_path),
    )
    sampler.sample()
    gone = sampler.sample()
    assert [(charge.owner.pod, charge.active) for charge in gone.charges] == [("train-0", False)]
    assert [(pod.pod, pod.workload) for pod in gone.pods] == [("train-0", "Job/train")]
    clock.ahead = 301
    forgotten = sampler.sample()
    assert (forgotten.charges, forgotten.pods) == ((), ())


def test_a_fault_in_the_ledger_is_contained_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ArithmeticError("two and two")

    monkeypatch.setattr(Ledger, "settle", broken)
    snapshot = collector(Scripted("nvml", gives(reading(0, power_watts=71.5)))).sample()
    state = states(snapshot)["ledger"]
    assert (state.up, state.failures) == (False, 1)
    assert "two and two" in state.reason
    assert [r.power_watts for r in snapshot.readings] == [71.5]


def test_the_state_is_written_before_it_is_published(tmp_path: Path) -> None:
    path = tmp_path / "state"
    sampler = Collector(
        [GuardedReaders([Scripted("nvml", counted(1000), counted(1700))])],
        timeout_seconds=60,
        max_age_seconds=60,
        ledger=new_ledger(),
        owners=NoOwners(),
        checkpoint=Checkpoint(path, boot_id="", valid_seconds=60),
    )
    sampler.sample()
    snapshot = sampler.sample()
    kept = decode(path.read_bytes()).state
    assert kept["gpus"]["GPU-0"]["meter"]["total"] == snapshot.gpu_ledgers[0].energy_millijoules == 1700
    assert states(snapshot)["state_file"].up
    sampler.close(1)


class Failing:
    """A source that always fails."""

    name = "relay"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def read(self) -> None:
        self.calls.append("read")
        raise Unavailable("connection refused")

    def close(self) -> None:
        self.calls.append("close")


class Other(Guarded):
    def _take_in(self, one: Attempt, record: Record) -> None:
        record.fail(one)


def test_other_sources_are_read_with_every_sample_and_their_health_is_in_the_snapshot() -> None:
    failing = Failing()
    with_other = Collector(
        [GuardedReaders([Scripted("nvml", gives(reading(0)))])],
        timeout_seconds=60,
        max_age_seconds=60,
        ledger=new_ledger(),
        owners=NoOwners(),
        other_sources=[Other([failing], "")],
    )
    assert states(with_other.sample())["relay"].reason == "connection refused"
    with_other.close(5)
    assert failing.calls == ["read", "close"]
