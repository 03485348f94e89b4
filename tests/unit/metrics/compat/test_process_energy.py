"""my-gpu-exporter: names, labels and types of its document; energy that adds up; each series once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat import ProfileInput
from gputally.metrics.compat.process_energy import ROWS, families
from gputally.model import Owner, ProcessCharge, Snapshot, Unknown
from tests.support.snapshots import (
    OPTIONS,
    amd,
    check_sound,
    kinds,
    ours,
    scene,
    simulated,
    snapshots,
    told,
)

KINDS = {
    "my_gpu_process_energy_joules": Kind.COUNTER,
    "my_gpu_process_sm_utilization_ratio": Kind.GAUGE,
    "my_gpu_process_memory_utilization_ratio": Kind.GAUGE,
    "my_gpu_process_memory_used_bytes": Kind.GAUGE,
    "my_gpu_process_start_time_seconds": Kind.GAUGE,
    "my_gpu_process_active": Kind.GAUGE,
}
LABELS = ("pid", "gpu", "process_name", "pod", "namespace", "container", "pod_uid", "container_id")
NOTHING = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=())
POD = Owner("pod", namespace="ml", pod="training-job", container="main", pod_uid="1234", container_id="abcd")


def charge(owner: Owner | Unknown = POD, **more: object) -> ProcessCharge:
    known = {"gpu_index": 0, "uuid": "GPU-a", "pid": 12345, "name": "python3", "active": True}
    return ProcessCharge(owner=owner, **{**known, **more})  # type: ignore[arg-type]


def test_every_name_exists_with_its_type_and_labels() -> None:
    found = families(scene(simulated()))
    assert kinds(found) == KINDS
    assert {family.metric.labels for family in found} == {LABELS}
    assert [(row.name, row.kind) for row in ROWS] == list(KINDS.items())
    assert {row.ours for row in ROWS} - {""} <= {metric.name for metric in CATALOG}


def test_the_prefix_is_a_setting() -> None:
    found = families(ProfileInput(simulated(), replace(OPTIONS, metric_prefix="acme_gpu")))
    assert {family.metric.name for family in found} == {
        name.replace("my_gpu_process", "acme_gpu") for name in KINDS
    }


@pytest.mark.parametrize(
    "name", ["sm_utilization_ratio", "memory_used_bytes", "start_time_seconds", "active", "energy_joules"]
)
def test_values_equal_ours(name: str) -> None:
    theirs = told(families(scene(simulated())))[f"my_gpu_process_{name}"]
    our_name = "energy_joules_total" if name == "energy_joules" else name
    found = ours(simulated())[f"gputally_process_{our_name}"]
    assert theirs
    assert {
        (gpu, pid, process, space, pod, container): value
        for (pid, gpu, process, pod, space, container, _, _), value in theirs.items()
    } == {
        (gpu, pid, process, space, pod, container): value
        for (gpu, _, pid, process, space, pod, container, _), value in found.items()
        if pod
    }


def test_the_processes_of_a_shared_gpu_add_up_to_the_charges_of_their_pods() -> None:
    theirs = told(families(scene(simulated())))["my_gpu_process_energy_joules"]
    by_pod: dict[tuple[str, str], float] = {}
    for (_, gpu, _, pod, *_), joules in theirs.items():
        by_pod[gpu, pod] = by_pod.get((gpu, pod), 0) + joules
    charged: dict[tuple[str, str], float] = {}
    for (gpu, _, _, pod, _, _), joules in ours(simulated())["gputally_pod_energy_joules_total"].items():
        charged[gpu, pod] = charged.get((gpu, pod), 0) + joules
    assert sum(gpu == "2" for gpu, _ in by_pod) == 2
    assert all(by_pod[key] == pytest.approx(charged[key], abs=0.001) for key in by_pod if key[0] == "2")


def test_the_labels_name_the_pod_and_its_container() -> None:
    found = told(families(scene(replace(NOTHING, processes=(charge(energy_millijoules=15_234_500),)))))
    labels = ("12345", "0", "python3", "training-job", "ml", "main", "1234", "abcd")
    assert found == {"my_gpu_process_energy_joules": {labels: 15234.5}, "my_gpu_process_active": {labels: 1}}


def test_processes_outside_of_pods_are_omitted_as_by_that_tool() -> None:
    processes = (
        charge(Owner("slurm", "slurm/42"), pid=1),
        charge(Unknown("permission"), pid=2),
        charge(Unknown("unknown_pod", pod_uid="5678", container_id="ef"), pid=3),
    )
    found = told(families(scene(replace(NOTHING, processes=processes))))
    assert found == {"my_gpu_process_active": {("3", "0", "python3", "", "", "", "5678", "ef"): 1}}


def test_a_process_on_two_mig_devices_of_a_gpu_is_one_series() -> None:
    one = charge(
        uuid="MIG-1",
        started_at_seconds=7.0,
        memory_used_bytes=10,
        sm_ratio=0.5,
        memory_ratio=0.25,
        energy_millijoules=1_500,
    )
    processes = (one, replace(one, uuid="MIG-2", active=False, sm_ratio=1.0, memory_ratio=None))
    found = told(families(scene(replace(NOTHING, processes=processes))))
    assert {name: list(samples.values()) for name, samples in found.items()} == {
        "my_gpu_process_energy_joules": [3.0],
        "my_gpu_process_sm_utilization_ratio": [0.75],
        "my_gpu_process_memory_utilization_ratio": [0.25],
        "my_gpu_process_memory_used_bytes": [20],
        "my_gpu_process_start_time_seconds": [7.0],
        "my_gpu_process_active": [True],
    }


def test_the_bandwidth_of_a_process_is_not_supported_on_amd() -> None:
    assert set(told(families(scene(amd("mi300x"))))) == set(KINDS) - {
        "my_gpu_process_memory_utilization_ratio"
    }


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=4))
def test_energy_is_exact_to_the_millijoule(parts: list[int]) -> None:
    processes = tuple(
        charge(uuid=f"MIG-{number}", energy_millijoules=part) for number, part in enumerate(parts)
    )
    found = told(families(scene(replace(NOTHING, processes=processes))))
    assert list(found["my_gpu_process_energy_joules"].values()) == [sum(parts) / 1000]


@given(snapshots())
def test_no_series_occurs_twice(snapshot: Snapshot) -> None:
    check_sound(families(scene(snapshot)))
