"""What no GPU can have measured goes, by itself; all else stays as it was."""

import math
from dataclasses import fields, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.plausible import bounds_of, drop_implausible
from gputally.model import Activity, Gpu, Labelled, MigInstance, MigReading, Process, ProcessSample, Reading

GPU = Gpu(uuid="GPU-1", index=0, vendor="nvidia", model="M")
INSTANCE = MigInstance("MIG-1", "GPU-1", 0, 1, 0)
STRUCTURE = {
    *("gpu", "up", "late", "read_at_us", "instance"),
    *("processes", "process_samples", "accounted", "mig"),
    *("nvidia_smi_row", "nvidia_smi_names"),
}


def measured(model: type[Reading] | type[MigReading]) -> list[tuple[str, bool]]:
    return [
        (field.name, Labelled in get_args(field.type))
        for field in fields(model)
        if field.name not in STRUCTURE and bool not in get_args(field.type)
    ]


def reading(**values: Any) -> Reading:
    return Reading(gpu=GPU, **values)


def test_every_measured_field_of_the_model_has_bounds() -> None:
    names = [name for model in (Reading, MigReading) for name, _ in measured(model)]
    assert [name for name in names if bounds_of(name) is None] == []
    assert len(names) > 60
    assert {bounds_of(name) for name in STRUCTURE} == {None}


@pytest.mark.parametrize(
    ("new_field", "as_of"),
    [
        ("hotspot_celsius", "temperature_celsius"),
        ("module_power_watts", "power_watts"),
        ("module_power_limit_watts", "power_limit_watts"),
        ("shared_memory_bytes", "memory_used_bytes"),
        ("c2c_bytes_per_second", "pcie_throughput_bytes_per_second"),
        ("c2c_link_up", "nvlink_up"),
        ("c2c_errors", "nvlink_errors"),
    ],
)
def test_a_new_field_gets_the_bounds_of_its_unit(new_field: str, as_of: str) -> None:
    assert bounds_of(new_field) == bounds_of(as_of)


def test_a_counter_is_never_negative_and_has_at_most_63_bits() -> None:
    assert bounds_of("ecc_errors") == bounds_of("energy_millijoules") == (0, 2**63 - 1)


HEALTHY = reading(
    gpu_utilization_ratio=1.0,
    sm_active_ratio=0.0,
    memory_total_bytes=192 * 2**30,
    memory_used_bytes=0,
    power_watts=1199.9,
    power_limit_watts=1200.0,
    energy_millijoules=10**15,
    temperature_celsius=88.0,
    temperature_margin_celsius=-4.0,
    clock_hertz={("sm",): 0.0, ("memory",): 14.001e9},
    fan_speed_ratio={("0",): 1.05},
    performance_state=0,
    throttle_active={("gpu_idle",): 1.0},
    throttle_seconds={("gpu_idle",): 86400.0},
    ecc_errors={("corrected", "volatile"): 0.0},
    pcie_generation=6,
    pcie_width=16,
    pcie_replays=3,
    xid_last_timestamp_seconds={("79",): 1.8e9},
    persistence_mode=True,
    processes=(Process(1, "compute", "a", 2**30), Process(2, "compute", None, None)),
    process_samples=(ProcessSample(1, 5, 1.0, 0.5, 0.0, 0.0),),
    mig=(MigReading(instance=INSTANCE, multiprocessors=14, sm_active_ratio=0.3, memory_used_bytes=1),),
)


@pytest.mark.parametrize("healthy", [HEALTHY, reading(), reading(up=False)])
def test_a_plausible_reading_is_returned_unchanged(healthy: Reading) -> None:
    kept, dropped = drop_implausible(healthy)
    assert kept is healthy
    assert dropped == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_utilization_ratio", 1.01),
        ("gpu_utilization_ratio", -0.01),
        ("tensor_active_ratio", 42.0),
        ("memory_used_bytes", 2**64 - 1),
        ("memory_total_bytes", -1),
        ("power_watts", 10_000.0),
        ("power_watts", -1.0),
        ("power_limit_watts", 0.0),
        ("power_enforced_limit_watts", 0.0),
        ("power_min_limit_watts", 4_294_967.295),
        ("energy_millijoules", 2**64 - 1),
        ("energy_millijoules", -1),
        ("temperature_celsius", 255.0),
        ("temperature_celsius", -61.0),
        ("temperature_margin_celsius", -101.0),
        ("temperature_slowdown_celsius", 4_294_967_295.0),
        ("performance_state", 32),
        ("pcie_generation", 0),
        ("pcie_width", 33),
        ("pcie_replays", 2**32 - 1),
    ],
)
def test_only_the_implausible_value_is_dropped(field: str, value: float) -> None:
    wrong: dict[str, Any] = {field: value}
    without: dict[str, Any] = {field: None}
    kept, dropped = drop_implausible(replace(HEALTHY, **wrong))
    assert dropped == (field,)
    assert kept == replace(HEALTHY, **without)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("field", "labelled"), measured(Reading))
def test_values_that_are_not_finite_numbers_are_dropped(field: str, labelled: bool, nonsense: float) -> None:
    value = {("a",): nonsense} if labelled else nonsense
    assert drop_implausible(reading(**{field: value})) == (reading(), (field,))


def test_of_several_values_only_implausible_ones_are_dropped() -> None:
    clocks = {("sm",): 1e9, ("memory",): 2e11, ("video",): math.nan, ("graphics",): -1.0}
    kept, dropped = drop_implausible(reading(clock_hertz=clocks))
    assert kept == reading(clock_hertz={("sm",): 1e9})
    assert dropped == ("clock_hertz",) * 3


def test_states_are_zero_or_one() -> None:
    kept, dropped = drop_implausible(reading(nvlink_up={("0",): 1.0, ("1",): 2.0}))
    assert (kept, dropped) == (reading(nvlink_up={("0",): 1.0}), ("nvlink_up",))


def test_a_process_with_implausible_memory_is_kept() -> None:
    processes = (Process(1, "compute", "a", 2**64 - 1), Process(2, "compute", "b", 5))
    kept, dropped = drop_implausible(reading(processes=processes))
    assert kept.processes == (Process(1, "compute", "a", None), Process(2, "compute", "b", 5))
    assert dropped == ("processes.memory_used_bytes",)


def test_an_implausible_sample_of_a_process_is_dropped_completely() -> None:
    good = ProcessSample(1, 5, 0.5, 0.0, 0.0, 0.0)
    unmeasured = ProcessSample(1, 5, 0.5, None, None, None)
    samples = (
        good,
        unmeasured,
        replace(good, sm_ratio=1.5),
        replace(good, decoder_ratio=-0.1),
        replace(good, memory_ratio=2.0),
    )
    kept, dropped = drop_implausible(reading(process_samples=samples))
    assert kept.process_samples == (good, unmeasured)
    assert dropped == ("process_samples",) * 3


def test_mig_instances_have_the_same_bounds() -> None:
    sick = MigReading(
        instance=INSTANCE,
        sm_active_ratio=3.0,
        memory_used_bytes=2**60,
        multiprocessors=14,
        processes=(Process(1, "compute", "a", -1),),
        process_samples=(ProcessSample(1, 5, 1.5, None, 0.0, 0.0),),
    )
    healthy = MigReading(instance=INSTANCE, sm_active_ratio=0.3)
    kept, dropped = drop_implausible(reading(mig=(sick, healthy), power_watts=1.0))
    assert kept.mig[0] == MigReading(
        instance=INSTANCE,
        multiprocessors=14,
        processes=(Process(1, "compute", "a", None),),
        process_samples=(),
    )
    assert kept.mig[1] is healthy
    assert kept.power_watts == 1.0
    assert sorted(dropped) == [
        "mig.memory_used_bytes",
        "mig.process_samples",
        "mig.processes.memory_used_bytes",
        "mig.sm_active_ratio",
    ]


NUMBERS = st.floats() | st.integers(-(2**70), 2**70)
PLAIN = [name for name, labelled in measured(Reading) if not labelled]
LABELLED = [name for name, labelled in measured(Reading) if labelled]


@given(
    st.dictionaries(st.sampled_from(PLAIN), NUMBERS, max_size=8),
    st.dictionaries(
        st.sampled_from(LABELLED),
        st.dictionaries(st.tuples(st.text(max_size=2)), NUMBERS, max_size=4),
        max_size=4,
    ),
)
def test_kept_values_are_plausible_and_dropped_values_are_named(
    plain: dict[str, float], labelled: dict[str, dict[tuple[str, ...], float]]
) -> None:
    before = reading(**plain, **labelled)
    kept, dropped = drop_implausible(before)
    again, nothing = drop_implausible(kept)
    assert again is kept
    assert nothing == ()
    for name, value in plain.items():
        assert (getattr(kept, name) is None) == (name in dropped)
        assert getattr(kept, name) in (None, value)
    for name, values in labelled.items():
        left = getattr(kept, name) or {}
        assert left.items() <= values.items()
        assert len(values) - len(left) == dropped.count(name)


def test_gpus_and_instances_share_the_activity_bounds() -> None:
    for field in fields(Activity):
        assert bounds_of(field.name) == bounds_of("gpu_utilization_ratio")
