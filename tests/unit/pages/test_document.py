import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.model import (
    Charge,
    Gpu,
    GpuLedger,
    MigInstance,
    MigReading,
    Owner,
    PodInfo,
    ProcessCharge,
    Reading,
    Snapshot,
    SourceState,
    Unknown,
    Use,
)
from gputally.pages.about import About
from gputally.pages.document import MOST_OWNERS, build_document
from tests.support.snapshots import simulated, snapshots

NOW = 1_800_000_000.0
ABOUT = About(version="1.2.3", hostname="gpu-node-7", interval_seconds=5)
UP = SourceState(name="nvml", up=True)
DOWN = SourceState(name="nvml", up=False, reason="driver not loaded", fix="modprobe nvidia")
TRAIN = Owner("pod", namespace="team-a", pod="train-0", container="main")
Json = dict[str, Any]


def gpu(index: int = 0, **facts: Any) -> Gpu:
    known: Json = {"uuid": f"GPU-{index}", "index": index, "vendor": "nvidia", "model": "NVIDIA H100"}
    return Gpu(**(known | facts))


def snapshot(*readings: Reading, sources: tuple[SourceState, ...] = (UP,), **more: Any) -> Snapshot:
    return Snapshot(taken_at_seconds=NOW, age_seconds=0, readings=readings, sources=sources, **more)


def charge(millijoules: int, owner: Owner = TRAIN, uuid: str = "GPU-0", active: bool = True) -> Charge:
    return Charge(
        gpu_index=0,
        uuid=uuid,
        owner=owner,
        active=active,
        energy_millijoules={("measured",): millijoules, ("shared",): 0},
        held_microseconds=2_000_000,
        busy_microseconds=None,
    )


def ledger(millijoules: int, uuid: str = "GPU-0") -> GpuLedger:
    return GpuLedger(
        gpu_index=0,
        uuid=uuid,
        energy_source="counter",
        energy_millijoules=millijoules,
        unattributed_millijoules={("idle",): 500},
        began_at_seconds=NOW,
    )


def owners(document: Json) -> list[Json]:
    return [owner for gpu in document["gpus"] for owner in gpu["owners"]]


def test_a_busy_gpu_and_its_pod() -> None:
    taken = snapshot(
        Reading(gpu=gpu(), gpu_utilization_ratio=0.97, power_limit_watts=700.0, processes=()),
        uses=(Use(0, "GPU-0", TRAIN, 1, 2**30, 0.95),),
        charges=(charge(5_000),),
        gpu_ledgers=(ledger(9_000),),
        pods=(PodInfo("team-a", "train-0", workload="Job/train", requested=True),),
    )
    document = build_document(taken, None, ABOUT)
    (found,) = document["gpus"]
    (owner,) = found["owners"]
    assert (document["version"], document["severity"], document["summary"]) == (1, "ok", "1 GPU up")
    assert (found["utilization_ratio"], found["power_limit_watts"], found["energy_joules"]) == (0.97, 700, 9)
    assert (owner["pod"], owner["workload"], owner["allocated"], owner["active"]) == (
        "train-0",
        "Job/train",
        True,
        True,
    )
    assert (owner["memory_used_bytes"], owner["sm_utilization_ratio"]) == (2**30, 0.95)
    assert (owner["energy_joules"], owner["held_seconds"], owner["busy_seconds"]) == (5, 2, None)


def test_what_is_not_supported_is_null_and_zero_is_zero() -> None:
    document = build_document(snapshot(Reading(gpu=gpu(), gpu_utilization_ratio=0.0)), None, ABOUT)
    (found,) = document["gpus"]
    assert found["utilization_ratio"] == 0
    for name in ("power_watts", "memory_used_bytes", "temperature_celsius", "energy_joules"):
        assert found[name] is None


def test_without_the_gpus_power_that_of_an_owner_is_its_energy_by_time() -> None:
    before = replace(
        snapshot(charges=(charge(1_000),), gpu_ledgers=(ledger(2_000),)), taken_at_seconds=NOW - 2
    )
    now = snapshot(Reading(gpu=gpu()), charges=(charge(2_000),), gpu_ledgers=(ledger(4_000),))
    assert [owner["power_watts"] for owner in owners(build_document(now, before, ABOUT))] == [0.5]
    assert [owner["power_watts"] for owner in owners(build_document(now, None, ABOUT))] == [None]


def test_power_of_an_owner_is_its_part_of_the_gpus_power_however_long_the_time_between_samples() -> None:
    before = replace(
        snapshot(charges=(charge(1_000),), gpu_ledgers=(ledger(2_000),)), taken_at_seconds=NOW - 0.1
    )
    reading = Reading(gpu=gpu(), power_watts=600.0)
    now = snapshot(reading, charges=(charge(2_000),), gpu_ledgers=(ledger(4_000),))
    assert [owner["power_watts"] for owner in owners(build_document(now, before, ABOUT))] == [300]


def test_of_two_dies_with_one_meter_both_have_their_part_of_its_power() -> None:
    dies = (
        Reading(gpu=gpu(), power_watts=500.0),
        Reading(gpu=gpu(1, metered_by="GPU-0")),
    )
    before = replace(snapshot(gpu_ledgers=(ledger(2_000),)), taken_at_seconds=NOW - 2)
    charges = (charge(1_000), charge(4_000, uuid="GPU-1"))
    now = snapshot(*dies, charges=charges, gpu_ledgers=(ledger(7_000),))
    assert [owner["power_watts"] for owner in owners(build_document(now, before, ABOUT))] == [100, 400]


def test_power_is_unknown_without_a_new_reading_of_the_gpu() -> None:
    taken = snapshot(Reading(gpu=gpu()), charges=(charge(1_000),), gpu_ledgers=(ledger(2_000),))
    before = replace(taken, taken_at_seconds=NOW - 2)
    assert [owner["power_watts"] for owner in owners(build_document(taken, before, ABOUT))] == [None]


def test_a_new_owner_has_the_power_of_its_first_window() -> None:
    before = replace(snapshot(gpu_ledgers=(ledger(2_000),)), taken_at_seconds=NOW - 2)
    now = snapshot(Reading(gpu=gpu()), charges=(charge(2_000),), gpu_ledgers=(ledger(4_000),))
    assert [owner["power_watts"] for owner in owners(build_document(now, before, ABOUT))] == [1]


def test_a_pod_that_has_exited_is_inactive_and_comes_last() -> None:
    other = replace(TRAIN, pod="train-1")
    taken = snapshot(
        Reading(gpu=gpu()),
        uses=(Use(0, "GPU-0", TRAIN, 1),),
        charges=(charge(9_000, other, active=False), charge(1_000)),
    )
    found = owners(build_document(taken, None, ABOUT))
    assert [(owner["pod"], owner["active"], owner["processes"]) for owner in found] == [
        ("train-0", True, 1),
        ("train-1", False, None),
    ]


def test_owners_on_a_mig_device_name_it_and_belong_to_its_gpu() -> None:
    instance = MigInstance("MIG-abc", "GPU-0", 0, 1, 0, "1g.10gb")
    reading = Reading(gpu=gpu(), mig=(MigReading(instance=instance, graphics_active_ratio=0.42),))
    taken = snapshot(reading, Reading(gpu=gpu(1)), uses=(Use(0, "MIG-abc", TRAIN, 1),))
    first, second = build_document(taken, None, ABOUT)["gpus"]
    assert [(one["name"], one["utilization_ratio"]) for one in first["mig"]] == [("MIG 1g.10gb", 0.42)]
    assert [owner["uuid"] for owner in first["owners"]] == ["MIG-abc"]
    assert second["owners"] == []


def test_gpus_of_two_vendors_with_the_same_index_keep_their_own_owners() -> None:
    amd = Gpu("AMD-0", 0, "amd", "MI300X")
    taken = snapshot(Reading(gpu=gpu()), Reading(gpu=amd), uses=(Use(0, "AMD-0", TRAIN, 1),))
    found = build_document(taken, None, ABOUT)["gpus"]
    assert [(one["vendor"], len(one["owners"])) for one in found] == [("amd", 1), ("nvidia", 0)]


def test_a_lost_gpu_is_critical_with_its_reason() -> None:
    document = build_document(snapshot(Reading(gpu=gpu()), Reading(gpu=gpu(1), up=False)), None, ABOUT)
    assert (document["severity"], document["summary"]) == ("critical", "1 of 2 GPUs lost")
    assert [one["severity"] for one in document["gpus"]] == ["ok", "critical"]
    (fault,) = document["gpus"][1]["faults"]
    assert fault["name"] == "lost"
    assert fault["reason"]


def test_a_source_that_is_down_has_its_reason_and_fix() -> None:
    document = build_document(snapshot(Reading(gpu=gpu()), sources=(UP, DOWN)), None, ABOUT)
    assert document["severity"] == "warning"
    assert [(one["up"], one["reason"], one["fix"]) for one in document["sources"]] == [
        (True, "", ""),
        (False, "driver not loaded", "modprobe nvidia"),
    ]


@pytest.mark.parametrize(
    ("sources", "severity"), [((), "waiting"), ((UP,), "warning"), ((DOWN,), "critical")]
)
def test_a_host_without_gpus(sources: tuple[SourceState, ...], severity: str) -> None:
    document = build_document(snapshot(sources=sources), None, ABOUT)
    assert (document["severity"], document["gpus"]) == (severity, [])


@pytest.mark.parametrize(
    ("hidden", "left"),
    [
        ("pods", {"slurm", "unknown"}),
        ("hosts", {"pod", "unknown"}),
        ("unattributed", {"pod", "slurm"}),
    ],
)
def test_owners_that_the_metrics_do_not_name_are_not_here(hidden: str, left: set[str]) -> None:
    everyone = (TRAIN, Owner("slurm", "slurm/42"), Unknown("exited"))
    taken = snapshot(Reading(gpu=gpu()), uses=tuple(Use(0, "GPU-0", one, 1) for one in everyone))
    about: Json = {hidden: False}
    document = build_document(taken, None, replace(ABOUT, **about))
    assert {owner["kind"] for owner in owners(document)} == left


def test_process_names_are_here_only_when_asked_for() -> None:
    process = ProcessCharge(
        gpu_index=0, uuid="GPU-0", pid=4711, name="secret", owner=TRAIN, active=True, energy_millijoules=7
    )
    ended = replace(process, pid=4712, active=False)
    taken = snapshot(Reading(gpu=gpu()), uses=(Use(0, "GPU-0", TRAIN, 1),), processes=(process, ended))
    without = build_document(taken, None, ABOUT)
    assert "secret" not in json.dumps(without)
    assert owners(without)[0]["process_list"] is None
    (owner,) = owners(build_document(taken, None, replace(ABOUT, processes=True)))
    assert [(one["pid"], one["name"]) for one in owner["process_list"]] == [(4711, "secret")]


def test_a_gpu_with_very_many_owners_has_the_largest_of_them() -> None:
    many = [replace(TRAIN, pod=f"train-{number}") for number in range(MOST_OWNERS + 36)]
    taken = snapshot(
        Reading(gpu=gpu()), charges=tuple(charge(number, owner) for number, owner in enumerate(many))
    )
    (found,) = build_document(taken, None, ABOUT)["gpus"]
    assert (len(found["owners"]), found["owners_left_out"]) == (MOST_OWNERS, 36)
    assert found["owners"][0]["pod"] == many[-1].pod


def test_it_has_the_numbers_of_the_metrics() -> None:
    taken = simulated()
    served = {
        family.metric.name: dict(family.samples)
        for family in build_families(taken, ExporterFacts(version="1", python="3", hostname="h"))
    }
    document = build_document(taken, None, ABOUT)
    assert document["exporter"]["simulated"]
    for one in document["gpus"]:
        labels = (str(one["index"]), one["uuid"])
        assert one["utilization_ratio"] == served["gputally_gpu_utilization_ratio"][labels]
        assert one["memory_used_bytes"] == served["gputally_gpu_memory_used_bytes"][labels]
        assert one["energy_joules"] == served["gputally_gpu_energy_joules_total"][labels]
        for owner in one["owners"]:
            if owner["kind"] != "pod":
                continue
            pod = (*labels, owner["namespace"], owner["pod"], owner["container"])
            assert owner["memory_used_bytes"] == served["gputally_pod_memory_used_bytes"].get(pod)
            for basis, joules in owner["energy_basis_joules"].items():
                assert joules == served["gputally_pod_energy_joules_total"].get((*pod, basis), 0)


@given(snapshots(), snapshots())
def test_any_snapshot_can_be_written_as_json(now: Snapshot, before: Snapshot) -> None:
    document = build_document(replace(now, taken_at_seconds=5), before, replace(ABOUT, processes=True))
    assert json.loads(json.dumps(document, allow_nan=False)) == document


HOSTILE = st.one_of(
    st.text(max_size=40), st.sampled_from(["a\nb", "\x1b[2J", "\u202egnp.exe", "\ud800", "</script>"])
)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_text_of_others_is_printable(one: str, two: str, three: str) -> None:
    owner = replace(TRAIN, pod=one, namespace=two, container=three)
    process = ProcessCharge(gpu_index=0, uuid="GPU-0", pid=1, name=one, owner=owner, active=True)
    taken = snapshot(
        Reading(gpu=gpu(model=one, driver_version=two, pci_bus_id=three), up=False),
        sources=(replace(DOWN, name=three, reason=one, fix=two),),
        uses=(Use(0, "GPU-0", owner, 1),),
        processes=(process,),
    )
    document = build_document(taken, None, replace(ABOUT, hostname=three, processes=True))

    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for each in value.values() for text in texts(each)]
        if isinstance(value, list):
            return [text for each in value for text in texts(each)]
        return [value] if isinstance(value, str) else []

    assert all(text.isprintable() for text in texts(document))
