"""Joining is pure: names from every source, each process once, idle holders at zero."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import Allocation, CgroupOwner, FoundOwner, PodReport
from gputally.attribution.resolve import (
    PodIndex,
    count_uses,
    ended_pids,
    find_holders,
    index_pods,
    list_pods,
    list_residents,
    listed_pids,
    resolve_owner,
)
from gputally.model import (
    Gpu,
    MigInstance,
    MigReading,
    Owner,
    PodInfo,
    Process,
    ProcessSample,
    Reading,
    Unknown,
    Use,
)
from tools.standin.procfs import container_id, uid

TRAIN = PodInfo(
    "team-a", "train-0", uid(1), containers={container_id(1): "main"}, container_names=("main", "sidecar")
)
LOOSE = PodInfo("team-b", "notebook", uid(2), containers={}, container_names=("jupyter",))
EMPTY = index_pods({})
GPU = Gpu("GPU-a", 0, "nvidia", "H100", minor_number=0)
MI300X = Gpu("GPU-m", 0, "amd", "MI300X")


def directory(
    *pods: PodInfo, allocations: tuple[Allocation, ...] = (), unallocated: tuple[PodInfo, ...] = ()
) -> PodIndex:
    none = frozenset((facts.namespace, facts.pod) for facts in unallocated)
    told = PodReport(allocations=allocations, unallocated=none)
    return index_pods({"pod_logs": PodReport(pods), "pod_resources": told})


def pod(facts: PodInfo, container: str = "main") -> Owner:
    return Owner("pod", namespace=facts.namespace, pod=facts.pod, container=container)


def uses_of(
    readings: Sequence[Reading], owners: Mapping[int, Owner | Unknown], directory: PodIndex
) -> tuple[Use, ...]:
    residents = list_residents(readings, {pid: FoundOwner(owner) for pid, owner in owners.items()})
    return count_uses(readings, residents, find_holders(readings, directory))


def sample(pid: int, sm: float, at: int = 1) -> ProcessSample:
    return ProcessSample(pid, at, sm, sm / 2, 0.0, 0.0)


def test_a_process_in_a_known_pod_and_container() -> None:
    owner = resolve_owner(CgroupOwner("pod", uid(1), container_id(1)), "python3", directory(TRAIN))
    assert owner == Owner("pod", "", "team-a", "train-0", "main", uid(1), container_id(1))


def test_a_pod_with_one_container_needs_no_container_id() -> None:
    owner = resolve_owner(CgroupOwner("pod", uid(2), container_id(9)), "python3", directory(LOOSE))
    assert isinstance(owner, Owner)
    assert (owner.pod, owner.container) == ("notebook", "jupyter")


def test_a_container_that_has_just_started_is_not_matched_to_the_known_one() -> None:
    init = PodInfo(
        "team-a", "train-0", uid(1), containers={container_id(1): "init"}, container_names=("init",)
    )
    owner = resolve_owner(CgroupOwner("pod", uid(1), container_id(2)), "python3", directory(init))
    assert isinstance(owner, Owner)
    assert (owner.pod, owner.container) == ("train-0", "")


def test_a_pod_of_several_containers_without_the_id_has_no_container() -> None:
    owner = resolve_owner(CgroupOwner("pod", uid(1)), "qemu", directory(TRAIN))
    assert isinstance(owner, Owner)
    assert (owner.pod, owner.container) == ("train-0", "")


def test_a_pod_unknown_to_every_source_is_unknown() -> None:
    found = CgroupOwner("pod", uid(7), container_id(7))
    assert resolve_owner(found, "x", directory(TRAIN)) == Unknown("unknown_pod", uid(7), container_id(7))


def test_a_container_id_of_another_pod_does_not_override_the_uid() -> None:
    owner = resolve_owner(CgroupOwner("pod", uid(2), container_id(1)), "x", directory(TRAIN, LOOSE))
    assert isinstance(owner, Owner)
    assert (owner.pod, owner.container) == ("notebook", "jupyter")


def test_a_kubernetes_container_without_its_pod_is_found_by_its_id() -> None:
    found = resolve_owner(CgroupOwner("pod", "", container_id(1)), "x", directory(TRAIN))
    assert isinstance(found, Owner)
    assert (found.pod, found.container) == ("train-0", "main")
    assert resolve_owner(CgroupOwner("pod", "", container_id(5)), "x", directory(TRAIN)) == Unknown(
        "unknown_container", "", container_id(5)
    )


def test_a_docker_container_known_to_the_kubelet_belongs_to_its_pod() -> None:
    found = CgroupOwner("docker", name=container_id(1)[:12], container_id=container_id(1))
    owner = resolve_owner(found, "x", directory(TRAIN))
    assert isinstance(owner, Owner)
    assert (owner.kind, owner.pod) == ("pod", "train-0")


def test_a_path_relative_to_the_exporters_pod_means_that_pod() -> None:
    known = index_pods({"own_pod": PodReport((replace(TRAIN, containers={}),))})
    owner = resolve_owner(CgroupOwner("pod", "", container_id(4), own_pod=True), "x", known)
    assert isinstance(owner, Owner)
    assert owner.pod == "train-0"


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (CgroupOwner("docker", name="3f05ee050f82", container_id=container_id(3)), "docker/3f05ee050f82"),
        (CgroupOwner("slurm", name="42", slurm_job="42"), "slurm/42"),
        (CgroupOwner("service", name="ollama.service"), "service/ollama.service"),
        (CgroupOwner("process"), "process/python3"),
    ],
)
def test_owners_outside_of_pods_are_named_by_kind(found: CgroupOwner, name: str) -> None:
    owner = resolve_owner(found, "python3", EMPTY)
    assert isinstance(owner, Owner)
    assert owner.name == name


def test_sources_complement_each_other() -> None:
    api = PodInfo("team-a", "train-0", uid(1), workload="Job/train", requested=True, labels=(("team", "a"),))
    known = index_pods({"kubernetes": PodReport((api,)), "pod_logs": PodReport((TRAIN,))})
    facts = known.by_uid[uid(1)]
    assert (facts.workload, facts.container_names) == ("Job/train", ("main", "sidecar"))
    assert known.by_container[container_id(1)] == (facts, "main")


def test_memory_and_processes_are_summed_without_duplicates() -> None:
    second = replace(GPU, uuid="GPU-b", index=1)
    readings = (
        Reading(
            gpu=GPU,
            processes=(Process(1, "compute", None, 100), Process(2, "compute", None, 50)),
            process_samples=(sample(1, 0.5), sample(1, 0.7, 2), sample(2, 0.1)),
        ),
        Reading(gpu=second, processes=(Process(1, "compute", None, 7),), process_samples=()),
    )
    owners: dict[int, Owner | Unknown] = {1: pod(TRAIN), 2: pod(TRAIN)}
    first, other = uses_of(readings, owners, EMPTY)
    assert (first.processes, first.memory_used_bytes) == (2, 150)
    assert first.sm_ratio == pytest.approx(0.7)
    assert (other.uuid, other.processes, other.memory_used_bytes, other.sm_ratio) == ("GPU-b", 1, 7, 0.0)


def test_a_process_that_exited_between_two_samples_counts_with_its_samples() -> None:
    reading = Reading(gpu=GPU, processes=(), process_samples=(sample(9, 0.4),))
    assert (listed_pids([reading]), ended_pids([reading])) == ([], [9])
    (use,) = uses_of([reading], {9: pod(TRAIN)}, EMPTY)
    assert (use.processes, use.sm_ratio) == (0, 0.4)


def test_processes_on_a_mig_device_have_no_utilisation() -> None:
    process = Process(1, "compute", None, 5, 1, 0)
    mig = MigReading(instance=MigInstance("MIG-x", "GPU-a", 0, 1, 0), processes=(process,))
    (use,) = uses_of([Reading(gpu=GPU, processes=(process,), mig=(mig,))], {1: pod(TRAIN)}, EMPTY)
    assert (use.uuid, use.processes, use.sm_ratio) == ("MIG-x", 1, None)


def test_processes_on_a_partition_have_its_process_samples() -> None:
    parts = tuple(
        MigReading(
            instance=MigInstance(f"GPU-m-{n}", "GPU-m", 0, n, 0),
            processes=(Process(1, "compute", None, 5, n, 0),),
            process_samples=(ProcessSample(1, 1, n / 4, None, 0.0, 0.0),),
        )
        for n in (1, 2)
    )
    whole = ProcessSample(1, 1, 0.375, None, 0.0, 0.0)
    reading = Reading(gpu=MI300X, processes=(Process(1, "compute"),), process_samples=(whole,), mig=parts)
    uses = uses_of([reading], {1: pod(TRAIN)}, EMPTY)
    assert [(use.uuid, use.sm_ratio) for use in uses] == [("GPU-m-1", 0.25), ("GPU-m-2", 0.5)]
    assert [use.memory_ratio for use in uses] == [None, None], "nothing measures it"
    held = Allocation("team-b", "notebook", "jupyter", "amd.com/gpu", "GPU-m-1")
    idle = replace(
        reading, processes=(), process_samples=(), mig=(replace(parts[0], processes=(), process_samples=()),)
    )
    (use,) = uses_of([idle], {}, directory(LOOSE, allocations=(held,)))
    assert use == Use(0, "GPU-m-1", pod(LOOSE, "jupyter"), 0, 0, 0.0, None, 0.0, 0.0)


def test_an_idle_holder_is_exported_with_zeros() -> None:
    held = Allocation("team-b", "notebook", "jupyter", "nvidia.com/gpu", "GPU-a")
    reading = Reading(gpu=GPU, processes=(), process_samples=())
    (use,) = uses_of([reading], {}, directory(LOOSE, allocations=(held, held)))
    assert use == Use(0, "GPU-a", pod(LOOSE, "jupyter"), 0, 0, 0.0, 0.0, 0.0, 0.0)


def test_use_without_an_allocation_is_shadow_use() -> None:
    held = Allocation("team-b", "notebook", "jupyter", "nvidia.com/gpu", "GPU-a")
    known = directory(TRAIN, LOOSE, allocations=(held,), unallocated=(TRAIN,))
    owner = replace(pod(TRAIN), pod_uid=uid(1))
    uses = uses_of([Reading(gpu=GPU, processes=(Process(1, "compute"),))], {1: owner}, known)
    assert {(p.pod, p.requested) for p in list_pods(uses, known)} == {("train-0", False), ("notebook", True)}


def test_a_pod_unknown_to_the_kubelet_is_not_shadow_use() -> None:
    held = Allocation("team-b", "notebook", "jupyter", "nvidia.com/gpu", "GPU-a")
    known = directory(TRAIN, LOOSE, allocations=(held,))
    uses = uses_of([Reading(gpu=GPU, processes=(Process(1, "compute"),))], {1: pod(TRAIN)}, known)
    assert {(p.pod, p.requested) for p in list_pods(uses, known)} == {("train-0", None), ("notebook", True)}


def test_without_a_source_of_allocations_there_is_no_shadow_use() -> None:
    uses = uses_of([Reading(gpu=GPU, processes=(Process(1, "compute"),))], {1: pod(TRAIN)}, EMPTY)
    assert [p.requested for p in list_pods(uses, EMPTY)] == [None]


owners_strategy = st.dictionaries(
    st.integers(1, 12),
    st.sampled_from(
        [
            pod(TRAIN),
            pod(LOOSE, "jupyter"),
            Owner("docker", "docker/abc"),
            Unknown("exited"),
            Unknown("zombie"),
        ]
    ),
)


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2**40)), unique_by=lambda p: p[0]),
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 100), st.integers(1, 50))),
    owners_strategy,
)
def test_the_sum_over_all_owners_equals_the_value_of_the_driver(
    processes: list[tuple[int, int]], samples: list[tuple[int, int, int]], owners: dict[int, Owner | Unknown]
) -> None:
    reading = Reading(
        gpu=GPU,
        processes=tuple(Process(pid, "compute", None, memory) for pid, memory in processes),
        process_samples=tuple(sample(pid, percent / 100, at) for pid, percent, at in samples),
    )
    uses = uses_of([reading], owners, EMPTY)
    assert sum(use.processes for use in uses) == len(processes)
    assert sum(use.memory_used_bytes or 0 for use in uses) == sum(memory for _, memory in processes)
    by_pid: dict[int, list[float]] = {}
    for pid, percent, _ in samples:
        by_pid.setdefault(pid, []).append(percent / 100)
    driver = sum(sum(ratios) / len(ratios) for ratios in by_pid.values())
    assert sum(use.sm_ratio or 0 for use in uses) == pytest.approx(driver)
    assert len({(use.uuid, use.owner) for use in uses}) == len(uses)
