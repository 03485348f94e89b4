"""pod-gpu-metrics-exporter: the names of dcgm-exporter 1.x with their pods, and no value told twice."""

from dataclasses import replace

import pytest
from hypothesis import given

from gputally.metrics.catalog import CATALOG, Kind
from gputally.metrics.compat.pod_gpu import ROWS, families
from gputally.model import (
    Charge,
    Gpu,
    GpuLedger,
    Labelled,
    MigInstance,
    MigReading,
    Owner,
    Reading,
    Snapshot,
    Use,
)
from tests.support.snapshots import (
    Samples,
    amd,
    check_sound,
    kinds,
    ours,
    scene,
    simulated,
    snapshots,
    told,
)

GAUGES = (
    "sm_clock memory_clock memory_temp gpu_temp power_usage gpu_utilization mem_copy_utilization "
    "enc_utilization dec_utilization xid_errors fb_free fb_used"
)
COUNTERS = (
    "total_energy_consumption pcie_tx_throughput pcie_rx_throughput pcie_replay_counter power_violation "
    "thermal_violation sync_boost_violation board_limit_violation low_util_violation reliability_violation "
    "ecc_sbe_volatile_total ecc_dbe_volatile_total ecc_sbe_aggregate_total ecc_dbe_aggregate_total "
    "retired_pages_sbe retired_pages_dbe retired_pages_pending nvlink_flit_crc_error_count_total "
    "nvlink_data_crc_error_count_total nvlink_replay_error_count_total nvlink_recovery_error_count_total"
)
KINDS = {f"dcgm_{name}": Kind.GAUGE for name in GAUGES.split()} | {
    f"dcgm_{name}": Kind.COUNTER for name in COUNTERS.split()
}
LABELS = ("gpu", "uuid", "pod_name", "pod_namespace", "container_name")
MIB = 1 << 20
NOBODY = ("", "", "")
GPU = Gpu("GPU-2b39", 0, "nvidia", "V100")
NOTHING = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=())
ONE = Owner("pod", namespace="default", pod="pod1", container="pod1-ctr")
TWO = Owner("pod", namespace="default", pod="pod2", container="pod2-ctr")
OF_ONE = ("0", "GPU-2b39", "pod1", "default", "pod1-ctr")
OF_TWO = ("0", "GPU-2b39", "pod2", "default", "pod2-ctr")
OF_GPU = ("0", "GPU-2b39", *NOBODY)
READING = Reading(
    gpu=GPU,
    gpu_utilization_ratio=0.9,
    memory_used_bytes=100 * MIB,
    temperature_celsius=33.0,
    power_watts=200.0,
    clock_hertz={("memory",): 810e6},
    throttle_seconds={("low_utilization",): 1.5},
)


def tell(*uses: Use, reading: Reading = READING, **more: object) -> dict[str, Samples]:
    snapshot = replace(NOTHING, readings=(reading,), uses=uses, **more)  # type: ignore[arg-type]
    return told(families(scene(snapshot)))


def charge(owner: Owner, millijoules: int, *, active: bool = True) -> Charge:
    energy: Labelled = {("measured",): millijoules - 1, ("shared",): 1}
    return Charge(gpu_index=0, uuid=GPU.uuid, owner=owner, active=active, energy_millijoules=energy)


BOOK = GpuLedger(
    gpu_index=0,
    uuid=GPU.uuid,
    began_at_seconds=0,
    energy_source="counter",
    energy_millijoules=9_000,
    unattributed_millijoules={},
)


def test_the_profile_has_every_name_of_that_tool_with_its_type() -> None:
    assert {row.name: row.kind for row in ROWS} == KINDS
    assert len(ROWS) == len(KINDS)
    assert {row.ours for row in ROWS} <= {metric.name for metric in CATALOG}


def test_the_simulator_has_the_violation_that_the_document_shows() -> None:
    found = told(families(scene(simulated())))["dcgm_low_util_violation"]
    assert len(found) == len(simulated().readings)
    assert set(found.values()) == {0}


def test_labels_are_those_of_that_tool() -> None:
    found = families(scene(simulated()))
    assert {family.metric.labels for family in found} == {LABELS}
    assert kinds(found).items() <= KINDS.items()


def test_the_documented_example_has_the_same_values() -> None:
    found = tell(Use(0, GPU.uuid, ONE, 1, 0, 0.0, 0.0))
    assert found["dcgm_gpu_temp"] == {OF_ONE: 33}
    assert found["dcgm_gpu_utilization"] == {OF_ONE: 0}
    assert found["dcgm_low_util_violation"] == {OF_ONE: 1_500_000}
    assert found["dcgm_mem_copy_utilization"] == {OF_ONE: 0}
    assert found["dcgm_memory_clock"] == {OF_ONE: 810}


@pytest.mark.parametrize(
    ("name", "our_name", "times", "where"),
    [
        ("gpu_temp", "temperature_celsius", 1, ()),
        ("memory_temp", "memory_temperature_celsius", 1, ()),
        ("power_usage", "power_watts", 1, ()),
        ("sm_clock", "clock_hertz", 1e-6, ("sm",)),
        ("memory_clock", "clock_hertz", 1e-6, ("memory",)),
        ("fb_free", "memory_free_bytes", 1 / MIB, ()),
        ("pcie_replay_counter", "pcie_replays_total", 1, ()),
        ("power_violation", "throttle_seconds_total", 1e6, ("sw_power_cap",)),
        ("ecc_sbe_volatile_total", "ecc_errors_total", 1, ("corrected", "volatile")),
        ("ecc_dbe_aggregate_total", "ecc_errors_total", 1, ("uncorrected", "aggregate")),
    ],
)
def test_values_of_the_whole_gpu_equal_ours(
    name: str, our_name: str, times: float, where: tuple[str, ...]
) -> None:
    theirs = told(families(scene(simulated())))[f"dcgm_{name}"]
    found = ours(simulated())[f"gputally_gpu_{our_name}"]
    assert len(theirs) == len(simulated().readings), "once per GPU, with any owners"
    assert {labels[:2]: value for labels, value in theirs.items()} == pytest.approx(
        {labels[:2]: value * times for labels, value in found.items() if labels[2:] == where}
    )


@pytest.mark.parametrize(
    ("name", "our_name", "of_gpu", "times"),
    [
        ("gpu_utilization", "sm_utilization_ratio", "utilization_ratio", 100),
        ("mem_copy_utilization", "memory_utilization_ratio", "memory_utilization_ratio", 100),
        ("enc_utilization", "encoder_utilization_ratio", "encoder_utilization_ratio", 100),
        ("dec_utilization", "decoder_utilization_ratio", "decoder_utilization_ratio", 100),
        ("fb_used", "memory_used_bytes", "memory_used_bytes", 1 / MIB),
    ],
)
def test_values_of_a_pod_equal_ours_without_the_value_of_the_gpu(
    name: str, our_name: str, of_gpu: str, times: float
) -> None:
    theirs = told(families(scene(simulated())))[f"dcgm_{name}"]
    pods = {
        (gpu, uuid, pod, space, container): value * times
        for (gpu, uuid, space, pod, container), value in ours(simulated())[f"gputally_pod_{our_name}"].items()
    }
    taken = {labels[1] for labels in pods}
    free = {
        (*labels, *NOBODY): value * times
        for labels, value in ours(simulated())[f"gputally_gpu_{of_gpu}"].items()
        if labels[1] not in taken
    }
    assert free
    assert theirs == pytest.approx(pods | free)


def test_energy_is_the_charge_of_the_pods_in_millijoules() -> None:
    theirs = told(families(scene(simulated())))["dcgm_total_energy_consumption"]
    pods: Samples = {}
    for (gpu, uuid, space, pod, container, _), joules in ours(simulated())[
        "gputally_pod_energy_joules_total"
    ].items():
        key = (gpu, uuid, pod, space, container)
        pods[key] = pods.get(key, 0) + round(joules * 1000)
    assert {labels: value for labels, value in theirs.items() if labels[2:] != NOBODY} == pods
    assert all(labels[1] not in {pod[1] for pod in pods} for labels in theirs if labels[2:] == NOBODY)


def test_two_pods_on_a_gpu_have_their_own_values_and_never_those_of_the_gpu() -> None:
    found = tell(
        Use(0, GPU.uuid, ONE, 1, 30 * MIB, 0.5),
        Use(0, GPU.uuid, TWO, 1, 60 * MIB, 0.25),
        charges=(charge(ONE, 120_000), charge(TWO, 80_000)),
        gpu_ledgers=(BOOK,),
    )
    assert found["dcgm_gpu_utilization"] == {OF_ONE: 50, OF_TWO: 25}
    assert found["dcgm_fb_used"] == {OF_ONE: 30, OF_TWO: 60}
    assert found["dcgm_total_energy_consumption"] == {OF_ONE: 120_000, OF_TWO: 80_000}
    assert found["dcgm_gpu_temp"] == {OF_GPU: 33}
    assert found["dcgm_power_usage"] == {OF_GPU: 200}


def test_values_without_attribution_belong_to_the_gpu_or_its_only_pod() -> None:
    alone = tell(Use(0, GPU.uuid, ONE, 1))
    assert (alone["dcgm_gpu_utilization"], alone["dcgm_fb_used"]) == ({OF_ONE: 90}, {OF_ONE: 100})
    both = tell(Use(0, GPU.uuid, ONE, 1), Use(0, GPU.uuid, TWO, 1))
    assert (both["dcgm_gpu_utilization"], both["dcgm_fb_used"]) == ({OF_GPU: 90}, {OF_GPU: 100})


def test_a_gpu_without_pods_has_its_own_values_without_a_pod() -> None:
    found = tell(Use(0, GPU.uuid, Owner("slurm", "slurm/42"), 1, MIB, 0.5), gpu_ledgers=(BOOK,))
    assert {labels for samples in found.values() for labels in samples} == {OF_GPU}
    assert found["dcgm_gpu_utilization"] == {OF_GPU: 90}
    assert found["dcgm_total_energy_consumption"] == {OF_GPU: 9_000}


def test_a_pod_on_a_mig_device_has_the_label_of_the_device() -> None:
    mig = MigReading(instance=MigInstance("MIG-1", GPU.uuid, 0, 1, 0))
    reading = replace(READING, gpu_utilization_ratio=None, mig=(mig,))
    found = tell(Use(0, "MIG-1", ONE, 1, 40 * MIB), reading=reading)
    assert found["dcgm_fb_used"] == {("0", "MIG-1", *OF_ONE[2:]): 40}
    assert found["dcgm_gpu_temp"] == {OF_ONE: 33}
    assert "dcgm_gpu_utilization" not in found


def test_the_last_xid_error_is_exported_and_no_error_is_0() -> None:
    errors: Labelled = {("13",): 5.0, ("79",): 1.0}
    came: Labelled = {("13",): 200.0, ("79",): 100.0}
    both = replace(READING, xid_errors=errors, xid_last_timestamp_seconds=came)
    assert tell(reading=both)["dcgm_xid_errors"] == {OF_GPU: 13}
    same_moment = replace(both, xid_last_timestamp_seconds=dict.fromkeys(errors, 100.0))
    assert tell(reading=same_moment)["dcgm_xid_errors"] == {OF_GPU: 79}
    assert tell(reading=replace(READING, xid_errors={}))["dcgm_xid_errors"] == {OF_GPU: 0}
    assert "dcgm_xid_errors" not in tell()


def test_the_errors_of_all_links_are_summed() -> None:
    errors: Labelled = {("0", "crc_flit"): 1.0, ("1", "crc_flit"): 2.0, ("0", "replay"): 4.0}
    found = tell(reading=replace(READING, nvlink_errors=errors))
    assert found["dcgm_nvlink_flit_crc_error_count_total"] == {OF_GPU: 3}
    assert found["dcgm_nvlink_replay_error_count_total"] == {OF_GPU: 4}
    assert "dcgm_nvlink_data_crc_error_count_total" not in found


def test_pcie_throughput_is_in_kilobytes() -> None:
    reading = replace(READING, pcie_throughput_bytes_per_second={("tx",): 5_000.0, ("rx",): 0.0})
    found = tell(reading=reading)
    assert found["dcgm_pcie_tx_throughput"] == {OF_GPU: 5}
    assert found["dcgm_pcie_rx_throughput"] == {OF_GPU: 0}


def test_an_amd_gpu_has_exactly_its_supported_values() -> None:
    found = told(families(scene(amd("mi300x"))))
    uuids = {reading.gpu.uuid for reading in amd("mi300x").readings}
    assert {labels[1] for labels in found["dcgm_gpu_temp"]} == uuids
    assert not {"dcgm_xid_errors", "dcgm_sm_clock", "dcgm_low_util_violation"} & set(found)


def test_a_lost_gpu_has_no_values() -> None:
    assert not tell(reading=READING.lost())


@given(snapshots())
def test_no_series_occurs_twice(snapshot: Snapshot) -> None:
    check_sound(families(scene(snapshot)))
