"""Owners of simulated processes, and simulated pods that hold GPUs: what the scenario says of them."""

import pytest

from gputally.attribution import Allocation, PodSource
from gputally.attribution.resolve import PodIndex, find_holders, index_pods
from gputally.model import Owner, Reading, Unavailable, Unknown
from gputally.simulator import SimulatedReader
from gputally.simulator.engine import Engine
from gputally.simulator.ownership import HostOwner, PodOwner
from gputally.simulator.scenario import GpuFault, GpuFaultKind, MigLayout, Scenario, Shape, Workload
from gputally.simulator.scenario_owners import SimulatedOwners, SimulatedPods
from gputally.simulator.schedule import Span

BEGAN = 1_800_000_000.0
NOTHING = index_pods({})
TRAINER = PodOwner("nlp", "train-0", "trainer", "Job/train")


class Clock:
    now = BEGAN

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def work(owner: PodOwner | HostOwner | None, *gpus: int, **how: object) -> Workload:
    return Workload(**{"shape": Shape.TRAINING, "gpus": gpus or (0,), "owner": owner, **how})  # type: ignore[arg-type]


def play(clock: Clock, *workloads: Workload, seed: int = 0, **how: object) -> SimulatedReader:
    scenario = Scenario(gpus=2, workloads=workloads, seed=seed, **how)  # type: ignore[arg-type]
    return SimulatedReader(Engine(scenario), clock, began_at=BEGAN)


def pids(*readings: Reading) -> list[int]:
    return [process.pid for reading in readings for process in reading.processes or ()]


def directory(reader: SimulatedReader) -> PodIndex:
    source: PodSource = SimulatedPods(reader)
    report = source.read()
    source.close()
    return index_pods({source.name: report})


def test_all_processes_of_a_workload_belong_to_one_pod(clock: Clock) -> None:
    reader = play(clock, work(TRAINER, 0, 1, count=3, span=Span(30)))
    clock.now += 100
    found = SimulatedOwners(reader).find(pids(*reader.read().readings), NOTHING)
    assert len(found) == 6
    (owner,) = {one.owner for one in found.values()}
    assert isinstance(owner, Owner)
    assert (owner.kind, owner.namespace, owner.pod, owner.container) == ("pod", "nlp", "train-0", "trainer")
    assert {one.started_at_seconds for one in found.values()} == {BEGAN + 30}


def test_a_pod_has_one_uid_and_another_with_another_seed(clock: Clock) -> None:
    uids = []
    for seed in (1, 1, 2):
        reader = play(clock, work(TRAINER), seed=seed)
        (found,) = SimulatedOwners(reader).find(pids(reader.read().readings[0]), NOTHING).values()
        assert isinstance(found.owner, Owner)
        assert set(directory(reader).by_uid) == {found.owner.pod_uid}
        uids.append(found.owner.pod_uid)
    assert uids[0] == uids[1] != uids[2]


def test_owners_outside_of_pods(clock: Clock) -> None:
    reader = play(clock, work(HostOwner("slurm", "42")), work(HostOwner("docker", "c41d7be09a52")))
    found = SimulatedOwners(reader).find(pids(reader.read().readings[0]), NOTHING)
    assert [one.owner for one in found.values()] == [
        Owner("slurm", "slurm/42", slurm_job="42"),
        Owner("docker", "docker/c41d7be09a52"),
    ]
    assert directory(reader).by_uid == {}


def test_processes_without_an_owner_in_the_scenario_are_unknown(clock: Clock) -> None:
    reader = play(clock, work(None))
    (pid,) = pids(reader.read().readings[0])
    found = SimulatedOwners(reader).find([pid, pid, 999_999], NOTHING)
    assert found[pid].owner == Unknown("unknown_container")
    assert found[999_999].owner == Unknown("exited")
    assert len(found) == 2


def test_each_run_of_a_numbered_pod_is_another_pod(clock: Clock) -> None:
    churn = PodOwner("risk", "backtest-{run}", controller="Job/backtest-{run}")
    reader = play(clock, work(churn, span=Span(0, 20, 30)))
    owners = SimulatedOwners(reader)
    names = []
    for _ in range(20):
        clock.now += 5
        for pid, found in owners.find(pids(reader.read().readings[0]), NOTHING).items():
            assert isinstance(found.owner, Owner)
            names.append((pid, found.owner.pod, found.started_at_seconds))
    assert list(dict.fromkeys(names)) == [
        (2001 + run, f"backtest-{run}", BEGAN + 30 * run) for run in range(4)
    ]
    assert directory(reader).by_name["risk", "backtest-3"].workload == "Job/backtest-3"


def test_an_exited_process_is_known_while_the_driver_lists_it(clock: Clock) -> None:
    reader = play(clock, work(TRAINER, span=Span(0, 50)))
    reader.read()
    clock.now += 55
    (reading, _) = reader.read().readings
    assert reading.processes == ()
    sampled = {sample.pid for sample in reading.process_samples or ()}
    (found,) = SimulatedOwners(reader).find(sampled, NOTHING).values()
    assert isinstance(found.owner, Owner)
    assert found.owner.pod == "train-0"


def test_pods_hold_the_devices_that_they_requested(clock: Clock) -> None:
    reader = play(
        clock,
        work(TRAINER, 0, 1),
        work(PodOwner("media", "thumbs", requested=False), shape=Shape.UNREQUESTED),
        work(PodOwner("risk", "sandbox-0", "shell"), 1, shape=Shape.IDLE),
    )
    first, second = (reading.gpu.uuid for reading in reader.read().readings)
    known = directory(reader)
    assert known.allocations == (
        Allocation("nlp", "train-0", "trainer", "nvidia.com/gpu", first),
        Allocation("nlp", "train-0", "trainer", "nvidia.com/gpu", second),
        Allocation("risk", "sandbox-0", "shell", "nvidia.com/gpu", second),
    )
    facts = [(pod.pod, pod.container_names, pod.workload, pod.requested) for pod in known.by_uid.values()]
    assert facts == [
        ("train-0", ("trainer",), "Job/train", True),
        ("thumbs", ("main",), "", False),
        ("sandbox-0", ("shell",), "", True),
    ]


def test_a_pod_on_a_mig_device_holds_the_device_and_not_the_gpu(clock: Clock) -> None:
    reader = play(clock, work(TRAINER, instance=1), mig=(MigLayout((0,), ("4g.40gb", "3g.40gb")),))
    mig = reader.read().readings[0].mig[1]
    assert [held.device_id for held in directory(reader).allocations or ()] == [mig.instance.uuid]


def test_several_containers_of_one_pod_are_one_pod(clock: Clock) -> None:
    side = PodOwner("nlp", "train-0", "profiler", requested=False)
    reader = play(clock, work(TRAINER), work(side, shape=Shape.NOTEBOOK))
    known = directory(reader)
    (pod,) = known.by_uid.values()
    assert (pod.container_names, pod.workload, pod.requested) == (
        ("trainer", "profiler"),
        "Job/train",
        True,
    )
    assert [held.container for held in known.allocations or ()] == ["trainer"]


def test_a_pod_is_known_shortly_before_and_after_its_allocation(clock: Clock) -> None:
    reader = play(clock, work(TRAINER, span=Span(60, 90)))

    def at(second: float) -> tuple[int, int]:
        clock.now = BEGAN + second
        known = directory(reader)
        return len(known.by_uid), len(known.allocations or ())

    assert [at(second) for second in (50, 59, 60, 89.9, 90, 500)] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (1, 1),
        (1, 0),
        (0, 0),
    ]


def test_pods_request_the_resource_of_their_vendor(clock: Clock) -> None:
    reader = play(clock, work(TRAINER, 0, 1), model=("h100", "mi300x"))
    held = directory(reader).allocations or ()
    assert [holding.resource for holding in held] == ["nvidia.com/gpu", "amd.com/gpu"]
    readings = reader.read().readings
    assert {device[1] for device, _ in find_holders(readings, directory(reader))} == {
        reading.gpu.uuid for reading in readings
    }


def test_the_pod_source_can_be_down_while_gpus_are_read(clock: Clock) -> None:
    down = GpuFault(kind=GpuFaultKind.SOURCE_DOWN, gpus=(), source="simulated_pods", span=Span(60, 120))
    reader = play(clock, work(TRAINER), faults=(down,))
    clock.now += 90
    assert reader.read().readings
    with pytest.raises(Unavailable, match=r"^the scenario declares it down$"):
        SimulatedPods(reader).read()
    clock.now += 30
    assert SimulatedPods(reader).read().pods
