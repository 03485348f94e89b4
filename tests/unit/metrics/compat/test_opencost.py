"""What OpenCost asks for: how busy each container keeps its GPU, 0 to 1, of every vendor."""

from dataclasses import replace

from hypothesis import given

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import dcgm
from gputally.metrics.compat.opencost import ROWS, families
from gputally.model import Gpu, MigInstance, MigReading, Owner, Reading, Snapshot, Use
from tests.support.snapshots import check_sound, scene, simulated, snapshots, told

ACTIVE, DECODER = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_DEC_UTIL"
NVIDIA = Gpu("GPU-a", 0, "nvidia", "A100")
AMD = Gpu("GPU-b", 1, "amd", "MI210")
TRAIN = Owner("pod", namespace="team", pod="train-0", container="main")
SERVE = Owner("pod", namespace="team", pod="serve-0", container="server")
NOTHING = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=())


def active(reading: Reading, *uses: Use) -> dict[str, float]:
    """pod -> value."""
    taken = replace(NOTHING, readings=(reading,), uses=uses)
    samples = told(families(scene(taken))).get(ACTIVE, {})
    return {labels[-1]: value for labels, value in samples.items()}


def on(gpu: Gpu, owner: Owner, sm_ratio: float | None = None, uuid: str = "") -> Use:
    return Use(gpu.index, uuid or gpu.uuid, owner, 1, sm_ratio=sm_ratio)


def test_both_families_have_the_labels_that_its_queries_group_by() -> None:
    assert [(row.name, row.kind) for row in ROWS] == [(DECODER, Kind.GAUGE), (ACTIVE, Kind.GAUGE)]
    wanted = {"container", "pod", "namespace", "device", "modelName", "UUID"}
    found = families(scene(simulated()))
    assert [family.metric.name for family in found] == [row.name for row in ROWS]
    for family in found:
        assert wanted <= set(family.metric.labels)


def test_exactly_the_pods_on_gpus_exist() -> None:
    samples = told(families(scene(simulated())))[ACTIVE]
    pods = {
        (use.owner.container, use.owner.namespace, use.owner.pod, use.uuid)
        for use in simulated().uses
        if isinstance(use.owner, Owner) and use.owner.kind == "pod"
    }
    assert len(pods) > 3
    assert {(*labels[-3:], labels[1]) for labels in samples} == pods


def test_a_single_pod_has_the_value_of_the_gpu() -> None:
    reading = Reading(gpu=NVIDIA, graphics_active_ratio=0.9, gpu_utilization_ratio=1.0)
    assert active(reading, on(NVIDIA, TRAIN, 0.8)) == {"train-0": 0.9}


def test_without_profiling_the_sm_use_of_the_pod_is_used() -> None:
    assert active(Reading(gpu=NVIDIA, gpu_utilization_ratio=1.0), on(NVIDIA, TRAIN, 0.8)) == {"train-0": 0.8}


def test_pods_on_a_shared_gpu_have_their_own_use_with_a_sum_of_at_most_1() -> None:
    reading = Reading(gpu=NVIDIA, graphics_active_ratio=0.9, gpu_utilization_ratio=1.0)
    assert active(reading, on(NVIDIA, TRAIN, 1.02), on(NVIDIA, SERVE, 0.1)) == {"train-0": 1, "serve-0": 0.1}


def test_pods_on_amd_gpus_are_included() -> None:
    reading = Reading(gpu=AMD, gpu_utilization_ratio=0.6)
    assert active(reading, on(AMD, TRAIN, 0.5)) == {"train-0": 0.5}
    assert active(reading, on(AMD, TRAIN, 0.5), on(AMD, SERVE, 0.1)) == {"train-0": 0.5, "serve-0": 0.1}


def test_without_process_samples_only_a_single_pod_has_a_value() -> None:
    reading = Reading(gpu=AMD, gpu_utilization_ratio=0.6)
    assert active(reading, on(AMD, TRAIN)) == {"train-0": 0.6}
    assert active(reading, on(AMD, TRAIN), on(AMD, SERVE)) == {}


def test_a_pod_on_a_mig_instance_has_the_activity_of_the_instance() -> None:
    parts = tuple(
        MigReading(
            instance=MigInstance(f"MIG-{place}", "GPU-a", 0, place, 0), graphics_active_ratio=place / 10
        )
        for place in (1, 2)
    )
    reading = Reading(gpu=NVIDIA, gpu_utilization_ratio=1.0, mig=parts)
    assert active(reading, on(NVIDIA, TRAIN, uuid="MIG-1"), on(NVIDIA, SERVE, uuid="MIG-2")) == {
        "train-0": 0.1,
        "serve-0": 0.2,
    }


def test_gpus_without_pods_have_no_family() -> None:
    reading = Reading(gpu=NVIDIA, graphics_active_ratio=0.9, decoder_utilization_ratio=0.1)
    assert families(scene(replace(NOTHING, readings=(reading,)))) == []


@given(snapshots())
def test_the_utilisation_for_opencost_is_part_of_the_profile_dcgm_and_between_0_and_1(
    taken: Snapshot,
) -> None:
    found = families(scene(taken))
    check_sound(found)
    whole = told(dcgm.families(scene(taken)))
    for name, samples in told(found).items():
        assert samples == {labels: value for labels, value in whole[name].items() if labels[-1]}
    assert all(0 <= value <= 1 for value in told(found).get(ACTIVE, {}).values())
