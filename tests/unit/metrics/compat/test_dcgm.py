"""dcgm-exporter's names up to 4.8: its list, its labels, its units, and a pod's own value on a shared GPU."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given

from gputally.metrics.catalog import CATALOG
from gputally.metrics.compat.dcgm import ROWS, families
from gputally.metrics.compat.xid_messages import xid_message
from gputally.model import (
    THROTTLE_REASONS,
    Activity,
    Charge,
    Gpu,
    GpuLedger,
    Labelled,
    MigInstance,
    MigReading,
    Owner,
    Reading,
    Snapshot,
    Unknown,
    Use,
)
from tests.support.snapshots import amd, check_sound, ours, scene, simulated, snapshots, told
from tests.support.worlds import mig_world
from tests.unit.metrics.compat.dcgm_lists import DEFAULT, listed

# Those that stand there as comments.
OPTIONAL = """
counter DEV_POWER_VIOLATION DEV_THERMAL_VIOLATION DEV_SYNC_BOOST_VIOLATION DEV_BOARD_LIMIT_VIOLATION
counter DEV_LOW_UTIL_VIOLATION DEV_RELIABILITY_VIOLATION
counter DEV_ECC_SBE_VOL_TOTAL DEV_ECC_DBE_VOL_TOTAL DEV_ECC_SBE_AGG_TOTAL DEV_ECC_DBE_AGG_TOTAL
counter DEV_RETIRED_SBE DEV_RETIRED_DBE DEV_RETIRED_PENDING
counter DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
counter DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
gauge PROF_SM_ACTIVE PROF_SM_OCCUPANCY PROF_PIPE_FP64_ACTIVE PROF_PIPE_FP32_ACTIVE PROF_PIPE_FP16_ACTIVE
"""
# Others that people select, from dcgm_fields.h of DCGM 4.6.0 with the names it had before.
OTHERS = """
gauge DEV_FB_TOTAL DEV_FB_USED_PERCENT DEV_VIDEO_CLOCK DEV_CLOCK_THROTTLE_REASONS DEV_CLOCKS_EVENT_REASONS
gauge DEV_SLOWDOWN_TEMP DEV_SHUTDOWN_TEMP DEV_POWER_MGMT_LIMIT DEV_ENFORCED_POWER_LIMIT
gauge DEV_PSTATE DEV_FAN_SPEED DEV_ROW_REMAP_PENDING
counter DEV_NVLINK_COUNT_TX_BYTES DEV_NVLINK_COUNT_RX_BYTES
"""
# The names in the source documents.
SEEDS = "GPU_TEMP POWER_USAGE GPU_UTIL MEM_COPY_UTIL FB_USED SM_CLOCK MEM_CLOCK"
LABELS = (
    "gpu UUID pci_bus_id device modelName GPU_I_PROFILE GPU_I_ID Hostname DCGM_FI_DRIVER_VERSION "
    "container namespace pod"
)

VIOLATIONS = ("sw_power_cap", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")
MIB = 1 << 20
GPU = Gpu("GPU-a", 3, "nvidia", "H100", pci_bus_id="00000000:07:00.0", driver_version="580.95.05")
AMD = replace(GPU, vendor="amd", model="MI210")
TRAIN = Owner("pod", namespace="team", pod="train-0", container="main")
SERVE = Owner("pod", namespace="team", pod="serve-0", container="server")
DOCKER = Owner("docker", "docker/1")
NOTHING = Snapshot(taken_at_seconds=1000.0, age_seconds=0.0, readings=(), sources=())
Found = dict[tuple[str, str], float]


def use(owner: Owner | Unknown, uuid: str = "GPU-a", **what: object) -> Use:
    return Use(3, uuid, owner, 1, **what)  # type: ignore[arg-type]


def charge(owner: Owner, *, active: bool = True, uuid: str = "GPU-a", **bases: int) -> Charge:
    energy: Labelled = {(basis,): amount for basis, amount in bases.items()}
    return Charge(gpu_index=3, uuid=uuid, owner=owner, active=active, energy_millijoules=energy)


def book(energy: int, uuid: str = "GPU-a") -> GpuLedger:
    return GpuLedger(
        gpu_index=3,
        uuid=uuid,
        began_at_seconds=0,
        energy_source="counter",
        energy_millijoules=energy,
        unattributed_millijoules={},
    )


def snapshot(*readings: Reading, **what: tuple[object, ...]) -> Snapshot:
    return replace(NOTHING, readings=readings, **what)  # type: ignore[arg-type]


def found(taken: Snapshot, name: str) -> Found:
    """(pod, GPU_I_ID) -> value."""
    samples = told(families(scene(taken))).get(f"DCGM_FI_{name}", {})
    by_pod = {(labels[11], labels[6]): value for labels, value in samples.items()}
    assert len(by_pod) == len(samples)
    return by_pod


def everything() -> Reading:
    """A GPU that tells all that the model has a place for."""
    ratios: dict[str, Any] = {field.name: 0.5 for field in fields(Activity)}
    return Reading(
        gpu=GPU,
        **ratios,
        gpu_utilization_ratio=0.07,
        memory_utilization_ratio=0.5,
        encoder_utilization_ratio=0.0,
        decoder_utilization_ratio=0.29,
        memory_total_bytes=100 * MIB,
        memory_used_bytes=30 * MIB,
        memory_free_bytes=60 * MIB,
        memory_reserved_bytes=10 * MIB,
        power_watts=71.5,
        power_limit_watts=300.0,
        power_enforced_limit_watts=250.0,
        energy_millijoules=123_456,
        temperature_celsius=50.0,
        memory_temperature_celsius=60.0,
        temperature_slowdown_celsius=90.0,
        temperature_shutdown_celsius=95.0,
        clock_hertz={("sm",): 1.98e9, ("graphics",): 1.0e9, ("memory",): 2.619e9, ("video",): 1.5e9},
        fan_speed_ratio={("0",): 0.3, ("1",): 0.4},
        performance_state=2,
        throttle_active={(reason,): float(reason == "sw_power_cap") for reason in THROTTLE_REASONS},
        throttle_seconds={(reason,): 1.5 for reason in VIOLATIONS},
        ecc_errors={
            ("corrected", "volatile"): 1,
            ("uncorrected", "volatile"): 2,
            ("corrected", "aggregate"): 3,
            ("uncorrected", "aggregate"): 4,
        },
        retired_pages={("single_bit",): 5, ("double_bit",): 6},
        retired_pages_pending=True,
        remapped_rows={("correctable",): 7, ("uncorrectable",): 8},
        remapped_rows_pending=False,
        remapped_rows_failure=True,
        pcie_replays=9,
        pcie_throughput_bytes_per_second={("tx",): 10.0, ("rx",): 11.0},
        nvlink_errors={
            (link, kind): count
            for link in ("0", "1")
            for count, kind in enumerate(("crc_flit", "crc_data", "replay", "recovery"), 1)
        },
        nvlink_bytes={("tx",): 4_000_000, ("rx",): 2_000_000},
        nvlink_bytes_per_second=7_167_999,  # one byte a second less than 7 times 1000 KiB
        xid_errors={("79",): 1, ("13",): 4},
        xid_last_timestamp_seconds={("79",): 100.0, ("13",): 200.0},
    )


def test_exactly_the_fields_of_the_lists_exist_with_their_types() -> None:
    assert {row.name: row.kind for row in ROWS} == listed(DEFAULT + OPTIONAL.lstrip() + OTHERS.lstrip())
    assert {f"DCGM_FI_DEV_{name}" for name in SEEDS.split()} <= {row.name for row in ROWS}


def test_a_card_with_all_values_fills_every_row_with_ordered_labels() -> None:
    given = families(scene(snapshot(everything())))
    assert [family.metric.name for family in given] == [row.name for row in ROWS]
    assert {" ".join(family.metric.labels) for family in given} == {LABELS, f"{LABELS} err_code err_msg"}
    assert {row.ours for row in ROWS} <= {metric.name for metric in CATALOG}
    ((labels, _),) = given[0].samples
    assert labels == (
        *("3", "GPU-a", "00000000:07:00.0", "nvidia3", "H100", "", "", "node-1", "580.95.05"),
        *("", "", ""),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEV_SM_CLOCK", 1980),
        ("DEV_MEM_CLOCK", 2619),
        ("DEV_VIDEO_CLOCK", 1500),
        ("DEV_MEMORY_TEMP", 60),
        ("DEV_GPU_TEMP", 50),
        ("DEV_SLOWDOWN_TEMP", 90),
        ("DEV_SHUTDOWN_TEMP", 95),
        ("DEV_POWER_USAGE", 71.5),
        ("DEV_POWER_MGMT_LIMIT", 300),
        ("DEV_ENFORCED_POWER_LIMIT", 250),
        ("DEV_TOTAL_ENERGY_CONSUMPTION", 123_456),
        ("DEV_PCIE_REPLAY_COUNTER", 9),
        ("DEV_GPU_UTIL", 7),
        ("DEV_MEM_COPY_UTIL", 50),
        ("DEV_ENC_UTIL", 0),
        ("DEV_DEC_UTIL", 29),
        ("DEV_XID_ERRORS", 13),
        ("DEV_CLOCK_THROTTLE_REASONS", 4),
        ("DEV_CLOCKS_EVENT_REASONS", 4),
        ("DEV_THERMAL_VIOLATION", 1_500_000_000),
        ("DEV_FB_TOTAL", 100),
        ("DEV_FB_FREE", 60),
        ("DEV_FB_USED", 30),
        ("DEV_FB_RESERVED", 10),
        ("DEV_FB_USED_PERCENT", 30 / 90),
        ("DEV_ECC_SBE_VOL_TOTAL", 1),
        ("DEV_ECC_DBE_VOL_TOTAL", 2),
        ("DEV_ECC_SBE_AGG_TOTAL", 3),
        ("DEV_ECC_DBE_AGG_TOTAL", 4),
        ("DEV_RETIRED_SBE", 5),
        ("DEV_RETIRED_DBE", 6),
        ("DEV_RETIRED_PENDING", 1),
        ("DEV_CORRECTABLE_REMAPPED_ROWS", 7),
        ("DEV_UNCORRECTABLE_REMAPPED_ROWS", 8),
        ("DEV_ROW_REMAP_PENDING", 0),
        ("DEV_ROW_REMAP_FAILURE", 1),
        ("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 2),
        ("DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 4),
        ("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 6),
        ("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 8),
        ("DEV_NVLINK_BANDWIDTH_TOTAL", 6),
        ("DEV_NVLINK_COUNT_TX_BYTES", 4_000_000),
        ("DEV_NVLINK_COUNT_RX_BYTES", 2_000_000),
        ("DEV_PSTATE", 2),
        ("DEV_FAN_SPEED", 30),
        ("PROF_PIPE_TENSOR_ACTIVE", 0.5),
        ("PROF_PCIE_TX_BYTES", 10),
        ("PROF_PCIE_RX_BYTES", 11),
    ],
)
def test_each_field_is_exact_in_the_unit_of_dcgm(name: str, value: float) -> None:
    assert found(snapshot(everything()), name) == {("", ""): value}


WHOLE = {
    "DEV_SM_CLOCK": ("gputally_gpu_clock_hertz", ("sm",), 1e-6),
    "DEV_MEM_CLOCK": ("gputally_gpu_clock_hertz", ("memory",), 1e-6),
    "DEV_GPU_TEMP": ("gputally_gpu_temperature_celsius", (), 1),
    "DEV_MEMORY_TEMP": ("gputally_gpu_memory_temperature_celsius", (), 1),
    "DEV_POWER_USAGE": ("gputally_gpu_power_watts", (), 1),
    "DEV_PCIE_REPLAY_COUNTER": ("gputally_gpu_pcie_replays_total", (), 1),
    "DEV_FB_FREE": ("gputally_gpu_memory_free_bytes", (), 1 / MIB),
    "DEV_FB_RESERVED": ("gputally_gpu_memory_reserved_bytes", (), 1 / MIB),
    "DEV_ECC_SBE_VOL_TOTAL": ("gputally_gpu_ecc_errors_total", ("corrected", "volatile"), 1),
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": ("gputally_gpu_remapped_rows", ("uncorrectable",), 1),
    "DEV_POWER_VIOLATION": ("gputally_gpu_throttle_seconds_total", ("sw_power_cap",), 1e9),
    "PROF_PIPE_TENSOR_ACTIVE": ("gputally_gpu_tensor_active_ratio", (), 1),
    "PROF_DRAM_ACTIVE": ("gputally_gpu_dram_active_ratio", (), 1),
    "PROF_SM_ACTIVE": ("gputally_gpu_sm_active_ratio", (), 1),
}
OF_PODS = {
    "DEV_GPU_UTIL": ("gputally_pod_sm_utilization_ratio", "gputally_gpu_utilization_ratio", 100),
    "DEV_MEM_COPY_UTIL": (
        "gputally_pod_memory_utilization_ratio",
        "gputally_gpu_memory_utilization_ratio",
        100,
    ),
    "DEV_ENC_UTIL": ("gputally_pod_encoder_utilization_ratio", "gputally_gpu_encoder_utilization_ratio", 100),
    "DEV_DEC_UTIL": ("gputally_pod_decoder_utilization_ratio", "gputally_gpu_decoder_utilization_ratio", 100),
    "DEV_FB_USED": ("gputally_pod_memory_used_bytes", "gputally_gpu_memory_used_bytes", 1 / MIB),
}


@pytest.mark.parametrize("name", WHOLE)
def test_values_of_the_whole_gpu_equal_ours_and_occur_once(name: str) -> None:
    our_name, extra, factor = WHOLE[name]
    theirs = told(families(scene(simulated())))[f"DCGM_FI_{name}"]
    expected = {
        labels[:2]: value * factor
        for labels, value in ours(simulated())[our_name].items()
        if labels[2:] == extra
    }
    assert len(theirs) == len(expected) == 8
    assert {labels[:2]: value for labels, value in theirs.items()} == pytest.approx(expected)


@pytest.mark.parametrize("name", OF_PODS)
def test_values_of_pods_equal_ours_and_the_value_of_the_gpu_exists_only_without_pods(name: str) -> None:
    of_pod, of_gpu, factor = OF_PODS[name]
    theirs = told(families(scene(simulated())))[f"DCGM_FI_{name}"]
    pods = ours(simulated())[of_pod]
    taken = {labels[:2] for labels in pods}
    assert len(pods) > len(taken) > 1  # some share a GPU
    expected = {(*labels[:2], *labels[2:]): value * factor for labels, value in pods.items()} | {
        (*labels, "", "", ""): value * factor
        for labels, value in ours(simulated())[of_gpu].items()
        if labels not in taken
    }
    by_pod = {(*labels[:2], labels[10], labels[11], labels[9]): value for labels, value in theirs.items()}
    assert by_pod == pytest.approx(expected)


def test_energy_is_the_charge_of_pods_or_the_counter_of_gpus_without_pods() -> None:
    theirs = told(families(scene(simulated())))["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]
    known = ours(simulated())
    charged: dict[tuple[str, ...], float] = {}
    for labels, joules in known["gputally_pod_energy_joules_total"].items():
        if known["gputally_pod_active"][labels[:5]]:
            charged[labels[:5]] = charged.get(labels[:5], 0) + joules * 1000
    taken = {labels[:2] for labels in charged}
    counters = known["gputally_gpu_energy_joules_total"].items()
    expected = charged | {(*gpu, "", "", ""): joules * 1000 for gpu, joules in counters if gpu not in taken}
    assert any(charged.values())
    assert len(expected) > len(charged)
    by_pod = {(*labels[:2], labels[10], labels[11], labels[9]): value for labels, value in theirs.items()}
    assert by_pod == pytest.approx(expected)


def test_every_value_of_an_exclusive_gpu_has_the_pod() -> None:
    taken = snapshot(
        everything(),
        uses=(use(TRAIN, memory_used_bytes=20 * MIB, sm_ratio=0.06),),
        charges=(charge(TRAIN, measured=90, shared=9),),
    )
    assert {labels[9:12] for family in families(scene(taken)) for labels, _ in family.samples} == {
        ("main", "team", "train-0")
    }
    assert found(taken, "DEV_GPU_TEMP") == {("train-0", ""): 50}
    assert found(taken, "DEV_FB_USED") == {("train-0", ""): 20}
    assert found(taken, "DEV_GPU_UTIL") == {("train-0", ""): 6}
    assert found(taken, "DEV_TOTAL_ENERGY_CONSUMPTION") == {("train-0", ""): 99}
    assert found(taken, "PROF_GR_ENGINE_ACTIVE") == {("train-0", ""): 0.5}


def test_on_a_shared_gpu_each_pod_has_its_share_and_other_values_occur_once_without_a_pod() -> None:
    taken = snapshot(
        everything(),
        uses=(
            use(TRAIN, memory_used_bytes=20 * MIB, sm_ratio=0.06, decoder_ratio=0.2),
            use(SERVE, memory_used_bytes=5 * MIB, sm_ratio=0.0, decoder_ratio=0.0),
            use(DOCKER, memory_used_bytes=MIB, sm_ratio=0.01, decoder_ratio=0.0),
        ),
        charges=(charge(TRAIN, shared=60), charge(SERVE, shared=40), charge(DOCKER, shared=7)),
        gpu_ledgers=(book(1000),),
    )
    assert found(taken, "DEV_FB_USED") == {("train-0", ""): 20, ("serve-0", ""): 5}
    assert found(taken, "DEV_GPU_UTIL") == {("train-0", ""): 6, ("serve-0", ""): 0}
    assert found(taken, "DEV_DEC_UTIL") == {("train-0", ""): 20, ("serve-0", ""): 0}
    assert found(taken, "PROF_GR_ENGINE_ACTIVE") == {("train-0", ""): 0.06, ("serve-0", ""): 0}
    assert found(taken, "DEV_TOTAL_ENERGY_CONSUMPTION") == {("train-0", ""): 60, ("serve-0", ""): 40}
    for name in ("DEV_POWER_USAGE", "DEV_GPU_TEMP", "DEV_FB_FREE", "PROF_SM_ACTIVE", "DEV_XID_ERRORS"):
        assert list(found(taken, name)) == [("", "")]


def test_values_without_attribution_belong_to_the_gpu() -> None:
    shared = snapshot(everything(), uses=(use(TRAIN), use(SERVE)))
    assert found(shared, "DEV_GPU_UTIL") == {("", ""): 7}
    assert found(shared, "DEV_FB_USED") == {("", ""): 30}
    alone = snapshot(everything(), uses=(use(TRAIN),))
    assert found(alone, "DEV_GPU_UTIL") == {("train-0", ""): 7}


def test_without_pods_the_values_of_the_gpu_have_no_pod() -> None:
    taken = snapshot(
        everything(), uses=(use(DOCKER, memory_used_bytes=MIB), use(Unknown("exited"), sm_ratio=0.5))
    )
    assert found(taken, "DEV_FB_USED") == {("", ""): 30}
    assert found(taken, "DEV_GPU_UTIL") == {("", ""): 7}


def test_engine_activity_is_not_attributed_to_a_pod_beside_a_container_of_the_host() -> None:
    taken = snapshot(everything(), uses=(use(TRAIN, sm_ratio=0.25), use(DOCKER, sm_ratio=0.25)))
    assert found(taken, "PROF_GR_ENGINE_ACTIVE") == {("train-0", ""): 0.25}
    assert found(taken, "DEV_GPU_TEMP") == {("train-0", ""): 50}


def test_an_exited_pod_has_no_energy() -> None:
    taken = snapshot(
        everything(), charges=(charge(TRAIN, active=False, measured=90),), gpu_ledgers=(book(1000),)
    )
    assert found(taken, "DEV_TOTAL_ENERGY_CONSUMPTION") == {("", ""): 1000}


def test_the_counter_of_the_gpu_never_appears_in_the_series_of_a_pod() -> None:
    going = snapshot(
        everything(),
        uses=(use(TRAIN),),
        charges=(charge(TRAIN, active=False, measured=90),),
        gpu_ledgers=(book(1000),),
    )
    coming = snapshot(everything(), uses=(use(TRAIN, sm_ratio=0.1),), gpu_ledgers=(book(1000),))
    for taken in (going, coming):
        assert found(taken, "DEV_TOTAL_ENERGY_CONSUMPTION") == {}


def test_a_meter_of_two_dies_is_not_added_to_the_pods_of_the_other_die() -> None:
    other = Reading(gpu=replace(GPU, uuid="GPU-b", index=4, metered_by="GPU-a"))
    charges = (charge(TRAIN, uuid="GPU-b", measured=50),)
    taken = snapshot(Reading(gpu=GPU), other, charges=charges, gpu_ledgers=(book(1000),))
    assert found(taken, "DEV_TOTAL_ENERGY_CONSUMPTION") == {("train-0", ""): 50}


def mig(gpu_instance: int, compute_instance: int, profile: str, **what: object) -> MigReading:
    uuid = f"MIG-{gpu_instance}-{compute_instance}"
    instance = MigInstance(uuid, "GPU-a", 3, gpu_instance, compute_instance, profile)
    return MigReading(instance=instance, **what)  # type: ignore[arg-type]


def test_mig_instances_have_their_memory_and_activity_and_the_gpu_the_rest() -> None:
    sliced = replace(
        everything(),
        mig=(
            mig(1, 0, "3g.40gb", memory_used_bytes=7 * MIB, graphics_active_ratio=0.75),
            mig(9, 0, "1g.10gb", memory_used_bytes=2 * MIB, graphics_active_ratio=0.25),
        ),
    )
    taken = snapshot(
        sliced,
        uses=(use(TRAIN, "MIG-1-0", memory_used_bytes=6 * MIB),),
        charges=(charge(TRAIN, uuid="MIG-1-0", measured=90),),
        gpu_ledgers=(book(1000),),
    )
    assert found(taken, "DEV_FB_USED") == {("train-0", "1"): 6, ("", "9"): 2}
    assert found(taken, "PROF_GR_ENGINE_ACTIVE") == {("train-0", "1"): 0.75, ("", "9"): 0.25}
    assert found(taken, "DEV_TOTAL_ENERGY_CONSUMPTION") == {("train-0", "1"): 90}
    assert found(taken, "DEV_GPU_TEMP") == {("", ""): 50}
    assert found(taken, "DEV_FB_FREE") == {("", ""): 60}
    samples = told(families(scene(taken)))["DCGM_FI_DEV_FB_USED"]
    assert [labels[:7] for labels in samples] == [
        ("3", "GPU-a", "00000000:07:00.0", "nvidia3", "H100", "3g.40gb", "1"),
        ("3", "GPU-a", "00000000:07:00.0", "nvidia3", "H100", "1g.10gb", "9"),
    ]


def test_compute_instances_of_one_gpu_instance_are_one_entity() -> None:
    parts = (
        mig(1, 0, "1c.3g.40gb", memory_used_bytes=9 * MIB),
        mig(1, 1, "1c.3g.40gb", memory_used_bytes=9 * MIB),
    )
    sliced = replace(everything(), mig=parts)
    uses = (
        use(TRAIN, "MIG-1-0", memory_used_bytes=4 * MIB),
        use(TRAIN, "MIG-1-1", memory_used_bytes=2 * MIB),
        use(SERVE, "MIG-1-1", memory_used_bytes=3 * MIB),
    )
    assert found(snapshot(sliced, uses=uses), "DEV_FB_USED") == {("train-0", "1"): 6, ("serve-0", "1"): 3}
    samples = told(families(scene(snapshot(sliced))))["DCGM_FI_DEV_FB_USED"]
    assert [(labels[5], value) for labels, value in samples.items()] == [("3g.40gb", 9)]


def test_simulated_mig_instances_agree_with_ours() -> None:
    taken = snapshot(*mig_world("a100", "3g.20gb", "2g.10gb", "1g.5gb"))
    theirs = told(families(scene(taken)))["DCGM_FI_DEV_FB_USED"]
    known = ours(taken)
    instance_of = {uuid: number for _, uuid, _, number, _, _ in known["gputally_mig_info"]}
    expected = {
        instance_of[labels[1]]: value / MIB
        for labels, value in known["gputally_mig_memory_used_bytes"].items()
    }
    assert len(expected) == 3
    assert {labels[6]: value for labels, value in theirs.items() if labels[0] == "0"} == expected


def test_without_xid_errors_the_value_is_0_and_without_a_listener_absent() -> None:
    quiet = Reading(gpu=GPU, xid_errors={}, xid_last_timestamp_seconds={})
    assert found(snapshot(quiet), "DEV_XID_ERRORS") == {("", ""): 0}
    assert families(scene(snapshot(Reading(gpu=GPU)))) == []


def test_a_lost_gpu_still_has_its_last_xid() -> None:
    lost = replace(everything(), xid_last_timestamp_seconds={("79",): 300.0, ("13",): 200.0}).lost()
    given = families(scene(snapshot(lost)))
    assert [family.metric.name for family in given] == ["DCGM_FI_DEV_XID_ERRORS"]
    assert found(snapshot(lost), "DEV_XID_ERRORS") == {("", ""): 79}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (0, "No Error"),
        (13, "Graphics Engine Exception"),
        (79, "GPU has fallen off the bus"),
        (95, "Uncontained ECC error"),
        (119, "GSP RPC Timeout"),
        (149, "NVLINK: NETIR Error"),
        (172, "Uncorrectable SRAM Error"),
        (173, "Unknown Error"),
    ],
)
def test_an_xid_error_has_its_code_and_message_as_labels(code: int, message: str) -> None:
    """As in gpu_collector.go and xid_errors.go of dcgm-exporter 4.5.3-4.8.2."""
    xids: Labelled = {(str(code),): 1} if code else {}
    (family,) = (
        family
        for family in families(scene(snapshot(Reading(gpu=GPU, xid_errors=xids))))
        if family.metric.name == "DCGM_FI_DEV_XID_ERRORS"
    )
    ((labels, value),) = family.samples
    assert value == code
    assert dict(zip(family.metric.labels, labels, strict=True)).items() >= {
        ("err_code", str(code)),
        ("err_msg", message),
    }


def test_every_code_of_the_exporter_has_a_message() -> None:
    assert [code for code in range(-1, 174) if xid_message(code) == "Unknown Error"] == [-1, 173]


def test_nvlink_throughput_is_dcgms_rate_and_absent_at_the_first_sample() -> None:
    """DCGM 4.6, ReadAndCacheNvLinkBandwidth: KiB/s divided by 1000, as a whole number."""
    first = replace(everything(), nvlink_bytes_per_second=None)
    assert found(snapshot(first), "DEV_NVLINK_BANDWIDTH_TOTAL") == {}
    busy = replace(everything(), nvlink_bytes_per_second=450e9)
    assert found(snapshot(busy), "DEV_NVLINK_BANDWIDTH_TOTAL") == {("", ""): 439_453}


def test_each_reason_has_the_bit_of_nvml() -> None:
    # nvmlClocksEventReason* in nvml.h
    bits = (0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100)
    for reason, bit in zip(THROTTLE_REASONS, bits, strict=True):
        held = Reading(gpu=GPU, throttle_active={(reason,): 1.0, ("other",): 1.0})
        assert found(snapshot(held), "DEV_CLOCKS_EVENT_REASONS") == {("", ""): bit}
    free = Reading(gpu=GPU, throttle_active={(reason,): 0.0 for reason in THROTTLE_REASONS})
    assert found(snapshot(free), "DEV_CLOCKS_EVENT_REASONS") == {("", ""): 0}


def test_amd_gpus_have_the_same_names_with_their_own_device() -> None:
    given = told(families(scene(amd("mi300x"))))
    known = ours(amd("mi300x"))
    for name, our_name in (("DEV_GPU_TEMP", "temperature_celsius"), ("DEV_POWER_USAGE", "power_watts")):
        theirs = given[f"DCGM_FI_{name}"]
        assert {labels[:2]: value for labels, value in theirs.items()} == known[f"gputally_gpu_{our_name}"]
        assert {labels[3] for labels in theirs} == {f"amd{labels[0]}" for labels in theirs}


def test_the_graphics_clock_of_an_amd_gpu_is_its_sm_clock() -> None:
    reading = Reading(gpu=AMD, clock_hertz={("graphics",): 1.7e9})
    assert found(snapshot(reading), "DEV_SM_CLOCK") == {("", ""): 1700}


@given(snapshots())
def test_no_series_occurs_twice(taken: Snapshot) -> None:
    check_sound(families(scene(taken)))


@given(snapshots())
def test_memory_of_pods_adds_up_to_ours(taken: Snapshot) -> None:
    theirs = told(families(scene(taken))).get("DCGM_FI_DEV_FB_USED", {})
    pods = sum(value for labels, value in theirs.items() if labels[-1])
    alone = sum(value for labels, value in theirs.items() if labels[-1] and not _told_of_pods(taken, labels))
    expected = sum(ours(taken).get("gputally_pod_memory_used_bytes", {}).values()) / MIB
    assert pods - alone == pytest.approx(expected)


def _told_of_pods(taken: Snapshot, labels: tuple[str, ...]) -> bool:
    """Whether the driver says the memory of this pod, on this GPU or GPU instance."""
    places = {
        mig.instance.uuid
        for one in taken.readings
        for mig in one.mig
        if (one.gpu.uuid, str(mig.instance.gpu_instance_id)) == (labels[1], labels[6])
    }
    return any(
        isinstance(one.owner, Owner)
        and (one.owner.container, one.owner.namespace, one.owner.pod) == labels[-3:]
        and one.uuid in (places if labels[6] else {labels[1]})
        and one.memory_used_bytes is not None
        for one in taken.uses
    )
