"""From the model to samples: None gives no sample, zero gives 0, a lost GPU has only its state."""

from dataclasses import fields, replace

from gputally.metrics.catalog import CATALOG, GPU_INFO, GPU_METRICS, MIG_METRICS, Kind
from gputally.metrics.compat import Row
from gputally.metrics.families import Family, build_families, merge_families
from gputally.metrics.own_process import ExporterFacts
from gputally.model import (
    Charge,
    Gpu,
    GpuLedger,
    MigInstance,
    MigReading,
    Owner,
    PodInfo,
    Process,
    ProcessCharge,
    Reading,
    Snapshot,
    SourceState,
    Unknown,
    Use,
)

GPU = Gpu("GPU-a", 3, "nvidia", "H100", serial="17", minor_number=0)
FACTS = ExporterFacts(version="1", python="3.11", hostname="node-1", cpu_seconds=0.5)
Samples = dict[str, dict[tuple[str, ...], float]]


NOTHING = Snapshot(taken_at_seconds=1000.0, age_seconds=0.0, readings=(), sources=())
POD = Owner("pod", namespace="team-a", pod="train-0", container="main")


def samples_of(snapshot: Snapshot) -> Samples:
    return {family.metric.name: dict(family.samples) for family in build_families(snapshot, FACTS)}


def samples(*readings: Reading, **source: object) -> Samples:
    state = SourceState(name="nvml", up=True, **source)  # type: ignore[arg-type]
    return samples_of(replace(NOTHING, readings=readings, sources=(state,)))


def test_none_gives_no_sample_and_zero_gives_zero() -> None:
    found = samples(Reading(gpu=GPU, power_watts=0.0))
    assert found["gputally_gpu_power_watts"] == {("3", "GPU-a"): 0.0}
    assert "gputally_gpu_temperature_celsius" not in found


def test_energy_is_in_joules_exact_to_the_millijoule() -> None:
    book = GpuLedger(
        gpu_index=3,
        uuid="GPU-a",
        began_at_seconds=900.0,
        energy_source="counter",
        energy_millijoules=123456789012345,
        unattributed_millijoules={("idle",): 0, ("initial",): 123456789012344},
    )
    found = samples_of(replace(NOTHING, readings=(Reading(gpu=GPU),), gpu_ledgers=(book,)))
    assert found["gputally_gpu_energy_joules_total"] == {("3", "GPU-a"): 123456789012.345}
    assert found["gputally_gpu_unattributed_energy_joules_total"] == {
        ("3", "GPU-a", "idle"): 0,
        ("3", "GPU-a", "initial"): 123456789012.344,
    }
    ((info, _),) = found["gputally_gpu_info"].items()
    assert info[-1] == "counter"


def test_charges_have_every_basis_including_zero_for_increase() -> None:
    charges = (
        Charge(
            gpu_index=3,
            uuid="GPU-a",
            owner=POD,
            active=True,
            energy_millijoules={("measured",): 0, ("shared",): 120_001, ("held",): 0},
            held_microseconds=5_000_000,
            busy_microseconds=1_500_000,
        ),
        Charge(gpu_index=3, uuid="GPU-a", owner=Owner("slurm", "slurm/42"), active=False),
    )
    found = samples_of(replace(NOTHING, charges=charges))
    pod = ("3", "GPU-a", "team-a", "train-0", "main")
    assert found["gputally_pod_energy_joules_total"] == {
        (*pod, "measured"): 0,
        (*pod, "shared"): 120.001,
        (*pod, "held"): 0,
    }
    assert found["gputally_pod_held_seconds_total"] == {pod: 5.0}
    assert found["gputally_pod_busy_seconds_total"] == {pod: 1.5}
    assert found["gputally_pod_active"] == {pod: True}
    assert found["gputally_host_active"] == {("3", "GPU-a", "slurm/42"): False}
    assert "gputally_host_energy_joules_total" not in found, "its GPU has nothing to measure energy by"
    assert "gputally_host_busy_seconds_total" not in found


def test_labelled_values_give_one_sample_each() -> None:
    found = samples(
        Reading(gpu=GPU, ecc_errors={("corrected", "volatile"): 4, ("corrected", "aggregate"): 9})
    )
    assert found["gputally_gpu_ecc_errors_total"] == {
        ("3", "GPU-a", "corrected", "volatile"): 4,
        ("3", "GPU-a", "corrected", "aggregate"): 9,
    }


def test_a_lost_gpu_keeps_its_identity_and_xid_errors_and_is_down() -> None:
    answering = Reading(gpu=GPU, power_watts=70.0, processes=(), xid_errors={("79",): 1})
    found = samples(answering.lost())
    assert found["gputally_gpu_up"] == {("3", "GPU-a"): False}
    assert found["gputally_gpu_xid_errors_total"] == {("3", "GPU-a"): 1}
    assert found["gputally_gpu_xid_code_errors"] == {("3", "GPU-a", "79"): 1}
    assert {name for name in found if name.startswith("gputally_gpu_")} == {
        "gputally_gpu_info",
        "gputally_gpu_up",
        "gputally_gpu_xid_errors_total",
        "gputally_gpu_xid_code_errors",
    }


def test_info_has_empty_labels_for_unknown_values() -> None:
    ((labels, value),) = samples(Reading(gpu=replace(GPU, simulated=True)))["gputally_gpu_info"].items()
    assert value == 1
    known = {name: label for name, label in zip(GPU_INFO.labels, labels, strict=True) if label}
    assert known == {
        **{"gpu": "3", "uuid": "GPU-a", "vendor": "nvidia", "model": "H100"},
        **{"serial": "17", "minor_number": "0", "simulated": "true"},
    }


def test_mig_devices_have_separate_names_to_avoid_double_sums() -> None:
    instance = MigInstance("MIG-x", "GPU-a", 3, 7, 0, "3g.40gb")
    processes = (Process(41, "compute"),)
    mig = MigReading(instance=instance, memory_used_bytes=5, sm_active_ratio=0.25, processes=processes)
    found = samples(Reading(gpu=GPU, memory_used_bytes=5, mig=(mig,)))
    assert found["gputally_gpu_memory_used_bytes"] == {("3", "GPU-a"): 5}
    assert found["gputally_mig_memory_used_bytes"] == {("3", "MIG-x"): 5}
    assert found["gputally_mig_sm_active_ratio"] == {("3", "MIG-x"): 0.25}
    assert found["gputally_mig_info"] == {("3", "MIG-x", "GPU-a", "7", "0", "3g.40gb"): 1}
    assert found["gputally_mig_processes"] == {("3", "MIG-x", "compute"): 1}


def test_processes_are_counted_by_kind_and_no_process_is_0() -> None:
    idle = samples(Reading(gpu=GPU, processes=()))
    assert idle["gputally_gpu_processes"] == {("3", "GPU-a", "compute"): 0}
    busy = samples(Reading(gpu=GPU, processes=(Process(1, "compute"), Process(2, "compute+mps"))))
    assert busy["gputally_gpu_processes"] == {("3", "GPU-a", "compute"): 1, ("3", "GPU-a", "compute+mps"): 1}
    assert "gputally_gpu_processes" not in samples(Reading(gpu=GPU, processes=None))


def test_a_process_has_the_labels_of_its_owner_of_any_kind() -> None:
    def process(pid: int, owner: Owner | Unknown, **values: object) -> ProcessCharge:
        return ProcessCharge(gpu_index=3, uuid="GPU-a", pid=pid, name="python3", owner=owner, **values)  # type: ignore[arg-type]

    processes = (
        process(41, POD, active=True, memory_used_bytes=11, sm_ratio=0.5, energy_millijoules=1500),
        process(42, Owner("slurm", "slurm/42"), active=False, started_at_seconds=77.5, energy_millijoules=0),
        process(43, Unknown("exited"), active=False),
    )
    found = samples_of(replace(NOTHING, processes=processes))
    pod = ("3", "GPU-a", "41", "python3", "team-a", "train-0", "main", "")
    slurm = ("3", "GPU-a", "42", "python3", "", "", "", "slurm/42")
    unknown = ("3", "GPU-a", "43", "python3", "", "", "", "")
    assert found["gputally_process_energy_joules_total"] == {pod: 1.5, slurm: 0}
    assert found["gputally_process_memory_used_bytes"] == {pod: 11}
    assert found["gputally_process_sm_utilization_ratio"] == {pod: 0.5}
    assert found["gputally_process_start_time_seconds"] == {slurm: 77.5}
    assert found["gputally_process_active"] == {pod: True, slurm: False, unknown: False}


def test_owners_of_each_kind_have_their_own_names_and_labels() -> None:
    uses = (
        Use(3, "GPU-a", Owner("pod", namespace="team-a", pod="train-0", container="main"), 2, 7, 0.5),
        Use(3, "GPU-a", Owner("slurm", "slurm/42"), 1, 5, None),
        Use(3, "GPU-a", Unknown("exited", "uid", "cid"), 1, None, 0.1),
    )
    snapshot = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=(), uses=uses)
    found = {f.metric.name: dict(f.samples) for f in build_families(snapshot, FACTS)}
    assert found["gputally_pod_processes"] == {("3", "GPU-a", "team-a", "train-0", "main"): 2}
    assert found["gputally_pod_sm_utilization_ratio"] == {("3", "GPU-a", "team-a", "train-0", "main"): 0.5}
    assert found["gputally_host_memory_used_bytes"] == {("3", "GPU-a", "slurm/42"): 5}
    assert "gputally_host_sm_utilization_ratio" not in found
    assert found["gputally_gpu_unattributed_processes"] == {("3", "GPU-a", "exited"): 1}
    assert found.keys() <= {metric.name for metric in CATALOG}


def test_allowed_labels_become_unique_label_names() -> None:
    pods = (
        PodInfo("team-a", "a", "u1", "n", "Job/a", True, (("app.x", "2"), ("app/x", "1"), ("team", "red"))),
        PodInfo("team-b", "b", requested=False, labels=(("app/x", "3"),)),
    )
    labels = (("gpu.model", "h100"), ("zone", "z1"))
    snapshot = Snapshot(
        taken_at_seconds=0, age_seconds=0, readings=(), sources=(), pods=pods, node_labels=labels
    )
    families = {f.metric.name: f for f in build_families(snapshot, FACTS)}
    info = families["gputally_pod_info"]
    assert info.metric.labels[-3:] == ("requested", "label_app_x", "label_team")
    assert [values for values, _ in info.samples] == [
        ("team-a", "a", "u1", "n", "Job/a", "true", "2", "red"),
        ("team-b", "b", "", "", "", "false", "3", ""),
    ], "labels of team-a that are written alike do not empty the one of team-b"
    assert families.keys() <= {metric.name for metric in CATALOG}
    node = families["gputally_node_labels_info"]
    assert (node.metric.labels, node.samples) == (("label_gpu_model", "label_zone"), [(("h100", "z1"), 1)])


def test_an_unknown_node_name_is_not_exported() -> None:
    snapshot = Snapshot(
        taken_at_seconds=0, age_seconds=0, readings=(), sources=(), pods=(PodInfo("team-a", "a"),)
    )
    (info,) = (f for f in build_families(snapshot, FACTS) if f.metric.name == "gputally_pod_info")
    assert info.metric.labels == ("namespace", "pod", "pod_uid", "workload", "requested")
    assert [values for values, _ in info.samples] == [("team-a", "a", "", "", "")]


def test_claims_are_labels_where_any_pod_has_one() -> None:
    pods = (PodInfo("team-a", "a", claim="one-gpu", claim_request="large"), PodInfo("team-b", "b"))
    snapshot = Snapshot(taken_at_seconds=0, age_seconds=0, readings=(), sources=(), pods=pods)
    (info,) = (f for f in build_families(snapshot, FACTS) if f.metric.name == "gputally_pod_info")
    assert info.metric.labels[-2:] == ("claim", "claim_request")
    assert [values[-2:] for values, _ in info.samples] == [("one-gpu", "large"), ("", "")]


def test_sources_and_the_exporter_have_their_own_metrics() -> None:
    found = samples(failures=2, errors={("fan_speed_ratio", "Unknown"): 3})
    assert found["gputally_source_failures_total"] == {("nvml",): 2}
    assert found["gputally_source_errors_total"] == {("nvml",): 3}
    assert found["gputally_source_field_errors"] == {("nvml", "fan_speed_ratio", "Unknown"): 3}
    assert found["gputally_snapshot_timestamp_seconds"] == {(): 1000.0}
    assert found["process_cpu_seconds_total"] == {(): 0.5}
    assert "process_open_fds" not in found
    assert found["gputally_exporter_info"] == {("1", "3.11", "node-1"): 1}


def test_every_field_of_the_model_is_exported_and_every_metric_has_its_field() -> None:
    not_metrics = {
        "late",
        "read_at_us",
        "gpu",
        "instance",
        "mig",
        "process_samples",
        "accounted",
        "energy_millijoules",
        "temperature_slowdown_offset_celsius",
        "nvlink_bytes_per_second",
        "nvidia_smi_row",
        "nvidia_smi_names",
    }
    for metrics, model in ((GPU_METRICS, Reading), (MIG_METRICS, MigReading)):
        exported = {metric.field for metric in metrics}
        assert exported == {field.name for field in fields(model)} - not_metrics


def test_names_follow_the_rules() -> None:
    names = [metric.name for metric in CATALOG]
    assert len(set(names)) == len(names)
    for metric in CATALOG:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.name.endswith("_info") == (metric.kind is Kind.INFO), metric.name
        assert metric.help.endswith("."), metric.name
        assert metric.name.startswith(("gputally_", "process_")), metric.name


def test_of_two_families_of_one_name_the_first_is_exported() -> None:
    row = Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Kind.GAUGE, "Busy.", "")
    first = Family(row.metric(("gpu",)), [(("0",), 0.5)])
    second = Family(row.metric(("pod",)), [(("train",), 0.5)])
    other = Family(Row("x", Kind.GAUGE, "X.", "").metric(()), [((), 1)])
    assert merge_families([first, other, second]) == [first, other]


def test_two_families_of_one_name_and_labels_are_merged() -> None:
    metric = Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Kind.GAUGE, "Busy.", "").metric(("gpu", "pod"))
    of_pods = Family(metric, [(("0", "train"), 0.5)])
    of_all = Family(metric, [(("0", "train"), 0.6), (("1", ""), 0.1)])
    (both,) = merge_families([of_pods, of_all])
    assert sorted(both.samples) == [(("0", "train"), 0.5), (("1", ""), 0.1)]
    assert of_pods.samples == [(("0", "train"), 0.5)], "what was given is as it was"
