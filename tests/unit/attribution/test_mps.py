"""MPS: the driver samples the server only, and its work is that of its clients."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import FoundOwner
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.resolve import count_uses, index_pods, list_residents
from gputally.model import (
    COMPUTE_MODES,
    Gpu,
    MigInstance,
    MigReading,
    Owner,
    Process,
    ProcessSample,
    Reading,
    Resident,
    Unknown,
    state_set,
)
from tests.support.ledger_samples import holds, joules, new_ledger, nobodys, settle
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

GPU = Gpu("GPU-a", 0, "nvidia", "H100")
A = Owner("pod", namespace="team", pod="a", container="main")
B = Owner("pod", namespace="team", pod="b", container="main")
JOB = Owner("slurm", "slurm/42")
SERVICE = Owner("service", "service/nvidia-mps.service")
DAEMON_POD = Owner("pod", namespace="nvidia", pod="mps-control-daemon-x", container="mps")
SERVER = Process(5, "compute", "nvidia-cuda-mps-server", 30)
SERVER_SAMPLE = ProcessSample(5, 1000, 0.8, 0.4, 0.0, 0.0, 5_000_000)


def client(pid: int, memory: int | None = 100) -> Process:
    return Process(pid, "compute+mps", "python3", memory)


def found(owners: Mapping[int, Owner | Unknown], *, named: tuple[int, ...] = (5,)) -> dict[int, FoundOwner]:
    return {pid: FoundOwner(owner, named_proxy=pid in named) for pid, owner in owners.items()}


def residents(
    owners: Mapping[int, Owner | Unknown],
    *processes: Process,
    exclusive: bool = False,
    named: tuple[int, ...] = (5,),
    samples: tuple[ProcessSample, ...] | None = (SERVER_SAMPLE,),
) -> dict[int, Resident]:
    """The server is process 5; the owners are by pid."""
    reading = Reading(
        gpu=GPU,
        processes=(SERVER, *processes),
        process_samples=samples,
        compute_mode=state_set(COMPUTE_MODES, "exclusive_process" if exclusive else "default"),
    )
    return {one.process.pid: one for one in list_residents([reading], found(owners, named=named))}


def busy(one: Resident) -> float | None:
    return None if one.samples is None else sum(sample.sm_ratio for sample in one.samples)


SERVED = [
    pytest.param(SERVICE, False, id="a system service"),
    pytest.param(SERVICE, True, id="a system service, exclusive"),
    pytest.param(DAEMON_POD, True, id="a pod, exclusive"),
    pytest.param(Unknown("permission"), True, id="of an unknown owner, exclusive"),
]


@pytest.mark.parametrize(("owner", "exclusive"), SERVED)
def test_the_servers_work_is_dealt_to_its_clients_by_memory(owner: Owner | Unknown, exclusive: bool) -> None:
    there = residents({5: owner, 6: A, 7: B}, client(6, 300), client(7, 100), exclusive=exclusive)
    assert there.keys() == {6, 7}
    assert [busy(there[pid]) for pid in (6, 7)] == pytest.approx([0.6, 0.2])
    assert [one.mediated for one in there.values()] == [True, True]
    assert there[6].samples[0].memory_ratio == pytest.approx(0.3)  # type: ignore[index]


def test_clients_whose_memory_is_not_known_have_equal_parts() -> None:
    there = residents({5: SERVICE, 6: A, 7: B}, client(6, None), client(7, None))
    assert [busy(there[pid]) for pid in (6, 7)] == pytest.approx([0.4, 0.4])


def test_what_single_clients_used_is_not_exported_as_known() -> None:
    there = residents({5: SERVICE, 6: A, 7: B}, client(6), client(7))
    uses = count_uses([], there.values(), ())
    assert [(use.owner, use.sm_ratio, use.processes) for use in uses] == [(A, None, 1), (B, None, 1)]


@pytest.mark.parametrize("owner", [SERVICE, A])
def test_the_work_of_clients_of_one_owner_is_known(owner: Owner) -> None:
    there = residents({5: owner, 6: A, 7: A}, client(6), client(7))
    assert sum(busy(one) or 0 for one in there.values()) == pytest.approx(0.8)
    assert not any(one.mediated for one in there.values())


def test_a_slurm_job_with_a_server_of_its_own_pays_for_it_beside_another_job() -> None:
    there = residents({5: JOB, 6: JOB, 7: Owner("slurm", "slurm/43")}, client(6), Process(7, "compute"))
    assert busy(there[6]) == pytest.approx(0.8)
    assert not there[6].mediated
    assert busy(there[7]) == 0


@pytest.mark.parametrize(
    "liar",
    [
        pytest.param(Owner("pod", namespace="team", pod="liar", container="main"), id="a pod"),
        pytest.param(Owner("docker", "docker/3f05"), id="a container"),
        pytest.param(Owner("session", "session/1000"), id="a user's session"),
        pytest.param(Owner("process", "process/nvidia-cuda-mps"), id="a process without a unit"),
        pytest.param(JOB, id="a job"),
    ],
)
def test_a_tenant_that_takes_the_servers_name_pays_for_its_own_work(liar: Owner) -> None:
    there = residents({5: liar, 6: A, 7: B}, client(6), client(7))
    assert (there[5].owner, busy(there[5])) == (liar, 0.8)
    assert [(busy(there[pid]), there[pid].mediated) for pid in (6, 7)] == [(None, True), (None, True)], (
        "not idle: unknown"
    )


def test_a_second_process_beside_the_server_leaves_open_which_one_it_is() -> None:
    other = Process(8, "compute", "python3", 10)
    there = residents({5: DAEMON_POD, 6: A, 8: B}, client(6), other, exclusive=True)
    assert there.keys() == {5, 6, 8}


def test_a_display_server_is_no_mps_server() -> None:
    screen = Process(8, "graphics", "Xorg", 10)
    there = residents({5: DAEMON_POD, 6: A, 8: SERVICE}, client(6), screen, exclusive=True)
    assert there.keys() == {6, 8}


def test_a_server_without_clients_is_a_process_of_its_owner() -> None:
    assert residents({5: SERVICE}, exclusive=True)[5].owner == SERVICE


def test_a_driver_that_samples_clients_leaves_nothing_to_deal() -> None:
    own = (ProcessSample(6, 1000, 0.3, 0.1, 0.0, 0.0, 5_000_000),)
    there = residents({5: DAEMON_POD, 6: A}, client(6), samples=own)
    assert (busy(there[6]), there[6].mediated) == (0.3, False)


def test_where_nothing_is_sampled_the_server_is_still_not_another_owner() -> None:
    there = residents({5: SERVICE, 6: A, 7: B}, client(6), client(7), samples=None)
    assert {pid: (one.samples, one.mediated) for pid, one in there.items()} == {
        6: (None, False),
        7: (None, False),
    }


def test_each_mig_device_has_its_own_server_and_clients() -> None:
    devices = tuple(
        MigReading(
            instance=MigInstance(f"MIG-{n}", GPU.uuid, 0, n, 0),
            processes=(Process(50 + n, "compute"), client(60 + n)),
        )
        for n in (1, 2)
    )
    owners = found({51: SERVICE, 52: SERVICE, 61: A, 62: B}, named=(51, 52))
    there = list_residents([Reading(gpu=GPU, processes=(), mig=devices)], owners)
    assert [(one.uuid, one.process.pid) for one in there] == [("MIG-1", 61), ("MIG-2", 62)]


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, JOB]), st.none() | st.integers(0, 2**36)), min_size=1, max_size=6
    ),
    st.floats(0, 1),
)
def test_no_work_is_lost_or_made(clients: list[tuple[Owner, int | None]], ratio: float) -> None:
    owners = {5: SERVICE} | {6 + n: owner for n, (owner, _) in enumerate(clients)}
    sample = ProcessSample(5, 1000, ratio, None, 0.0, 0.0, 5_000_000)
    there = residents(
        owners, *(client(6 + n, used) for n, (_, used) in enumerate(clients)), samples=(sample,)
    )
    assert sum(busy(one) or 0 for one in there.values()) == pytest.approx(ratio)
    assert {one.mediated for one in there.values()} == {
        len({owner.name + owner.pod for owner, _ in clients}) > 1
    }


@pytest.mark.parametrize("name", ["jupyter-alice.service", "ollama.service", "amps.service", "mpsd.service"])
def test_a_service_that_is_not_there_for_mps_cannot_deal_its_work_to_clients_of_others(name: str) -> None:
    owner = Owner("service", f"service/{name}")
    there = residents({5: owner, 6: A, 7: B}, client(6), client(7))
    assert (there[5].owner, busy(there[5])) == (owner, 0.8)
    assert [busy(there[pid]) for pid in (6, 7)] == [None, None]


@pytest.mark.parametrize(
    "name", ["nvidia-mps.service", "mps@0.service", "nvidia-cuda-mps-control.service", "slurmd.service"]
)
def test_a_service_for_mps_is_known_by_its_unit(name: str) -> None:
    there = residents({5: Owner("service", f"service/{name}"), 6: A, 7: B}, client(6), client(7))
    assert there.keys() == {6, 7}


@given(
    st.sampled_from(
        [A, JOB, Owner("session", "session/1000"), Owner("docker", "docker/1"), Unknown("exited")]
    ),
    st.booleans(),
)
def test_an_owner_that_acts_as_a_server_is_charged_itself(owner: Owner | Unknown, named: bool) -> None:
    # A client of the same owner may take its work: it is the same account.
    there = residents({5: owner, 6: A, 7: B}, client(6), client(7), named=(5,) if named else ())
    work: dict[object, float] = {}
    for one in there.values():
        work[one.owner] = work.get(one.owner, 0.0) + (busy(one) or 0.0)
    assert {who: ratio for who, ratio in work.items() if ratio} == {owner: 0.8}


def test_the_name_is_the_one_that_the_kernel_keeps(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    procfs.start(5, "0::/system.slice/nvidia-mps.service\n", name="nvidia-cuda-mps")
    procfs.start(6, pod_cgroup(uid(1), container_id(1)))
    owners = ProcessOwners(tmp_path)
    for _ in range(2):  # also when it is remembered
        seen = owners.find([5, 6], index_pods({}))
        assert (seen[5].owner, seen[5].named_proxy) == (SERVICE, True)
        assert not seen[6].named_proxy


def test_a_gpu_with_mps_is_charged_to_its_clients_and_none_of_it_is_unknown() -> None:
    ledger = new_ledger()
    processes = (SERVER, client(6, 300), client(7, 100))
    owners = found({5: SERVICE, 6: A, 7: B})
    for at, millijoules in ((0, 0), (5, 1000)):
        reading = Reading(
            gpu=GPU, processes=processes, process_samples=(SERVER_SAMPLE,), energy_millijoules=millijoules
        )
        settle(ledger, at, reading, list_residents([reading], owners), holds(A, B))
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 0.75}, {"shared": 0.25})
    assert nobodys(ledger) == {}
    assert [charge.busy_microseconds for charge in ledger.charges()] == [None, None], "0 would look idle"
