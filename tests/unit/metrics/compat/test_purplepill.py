"""CM PurplePill: its five names, its labels, and the memory of pods, each once."""

from dataclasses import replace

import pytest
from hypothesis import given

from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat.purplepill import ROWS, families
from gputally.model import Gpu, MigInstance, MigReading, Owner, Reading, Snapshot, Unknown, Use
from tests.support.snapshots import (
    amd,
    check_sound,
    kinds,
    ours,
    scene,
    simulated,
    snapshots,
    told,
)

MIB = 1 << 20
GPU_LABELS = ("gpu", "UUID", "modelName", "Hostname")
LABELS = {
    "CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB": GPU_LABELS,
    "CM_PURPLEPILL_GPU_MEMORY_USED_TOTAL_MIB": GPU_LABELS,
    "CM_PURPLEPILL_GPU_MEMORY_FREE_MIB": GPU_LABELS,
    "CM_PURPLEPILL_GPU_UTILIZATION": GPU_LABELS,
    "CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB": (
        "gpu",
        "UUID",
        "Hostname",
        "device",
        "pod",
        "namespace",
        "stack_id",
    ),
}


def test_every_name_exists_with_its_labels_as_a_gauge() -> None:
    found = families(scene(simulated()))
    assert {family.metric.name: family.metric.labels for family in found} == LABELS
    assert set(kinds(found).values()) == {Kind.GAUGE}
    assert [row.name for row in ROWS] == list(LABELS)
    assert {row.ours for row in ROWS} <= {metric.name for metric in CATALOG}


@pytest.mark.parametrize(
    ("name", "our_name", "unit"),
    [
        ("MEMORY_TOTAL_MIB", "gputally_gpu_memory_total_bytes", MIB),
        ("MEMORY_USED_TOTAL_MIB", "gputally_gpu_memory_used_bytes", MIB),
        ("MEMORY_FREE_MIB", "gputally_gpu_memory_free_bytes", MIB),
        ("UTILIZATION", "gputally_gpu_utilization_ratio", 0.01),
    ],
)
def test_values_equal_ours(name: str, our_name: str, unit: float) -> None:
    theirs = told(families(scene(simulated())))[f"CM_PURPLEPILL_GPU_{name}"]
    expected = {labels: value / unit for labels, value in ours(simulated())[our_name].items()}
    assert {(gpu, uuid): value for (gpu, uuid, _, _), value in theirs.items()} == pytest.approx(expected)
    assert {(model, host) for _, _, model, host in theirs} == {("NVIDIA H100 80GB HBM3", "node-1")}


def test_the_memory_of_each_pod_equals_ours() -> None:
    theirs = told(families(scene(simulated())))["CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB"]
    found = ours(simulated())["gputally_pod_memory_used_bytes"]
    assert {
        (gpu, uuid, space, pod): mib * MIB for (gpu, uuid, _, _, pod, space, _), mib in theirs.items()
    } == {(gpu, uuid, space, pod): value for (gpu, uuid, space, pod, _), value in found.items()}
    shared = [labels for labels in theirs if labels[0] == "2"]
    assert {labels[2:] for labels in shared} == {
        ("node-1", "nvidia2", "ranker-7d9c5f6b8-4xk2p", "search", "ranker"),
        ("node-1", "nvidia2", "ranker-7d9c5f6b8-qm8vt", "search", "ranker"),
    }


def test_a_pod_in_two_containers_or_on_two_mig_devices_is_one_series() -> None:
    gpu = Gpu("GPU-a", 0, "nvidia", "A100")
    slices = tuple(
        MigReading(instance=MigInstance(f"MIG-{number}", gpu.uuid, 0, number, 0)) for number in (1, 2)
    )
    pod = Owner("pod", namespace="team", pod="train-0", container="main")
    snapshot = Snapshot(
        taken_at_seconds=0,
        age_seconds=0,
        readings=(Reading(gpu=gpu, mig=slices),),
        sources=(),
        uses=(
            Use(0, "MIG-1", pod, 1, 3 * MIB),
            Use(0, "MIG-1", replace(pod, container="helper"), 1, 4 * MIB),
            Use(0, "MIG-2", pod, 1, 5 * MIB),
            Use(0, "MIG-2", replace(pod, pod="untold"), 1),
            Use(0, "MIG-2", Owner("slurm", "slurm/42"), 1, 6 * MIB),
            Use(0, "MIG-2", Unknown("exited"), 1, 7 * MIB),
        ),
    )
    assert told(families(scene(snapshot))) == {
        "CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB": {
            ("0", "GPU-a", "node-1", "nvidia0", "train-0", "team", "train"): 12
        }
    }


def test_an_amd_gpu_has_its_supported_values() -> None:
    found = told(families(scene(amd("mi300x"))))
    assert set(found) == {name for name in LABELS if "POD" not in name}, "its pods are not named there"
    assert {labels[3] for labels in found["CM_PURPLEPILL_GPU_UTILIZATION"]} == {"node-1"}


def test_a_lost_gpu_has_no_values() -> None:
    readings = tuple(reading.lost() for reading in simulated().readings)
    assert not families(scene(replace(simulated(), readings=readings, uses=())))


@given(snapshots())
def test_no_series_occurs_twice(snapshot: Snapshot) -> None:
    check_sound(families(scene(snapshot)))
