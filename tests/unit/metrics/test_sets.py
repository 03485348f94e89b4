"""The sets of metrics, and what is added to and removed from them."""

from dataclasses import fields

import pytest

from gputally.declarations import CORE, FULL, STANDARD, Group
from gputally.metrics.catalog import CATALOG
from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.metrics.sets import (
    NEEDED_FIELDS,
    SETS,
    Chosen,
    UnknownNameError,
    choose,
    skipped_fields,
)
from gputally.model import Gpu, Reading, Snapshot, SourceState

READING = Reading(
    gpu=Gpu("GPU-a", 0, "nvidia", "H100"),
    clock_hertz={("graphics",): 1.0, ("memory",): 2.0, ("sm",): 3.0, ("video",): 4.0},
    nvlink_up={("0",): 1.0, ("1",): 0.0, ("2",): 1.0},
    nvlink_errors={("0", "replay"): 1, ("1", "replay"): 2, ("1", "crc_flit"): 0},
    xid_errors={},
    recovery_action={("none",): 0.0, ("gpu_reset",): 1.0},
    fabric_problem={("degraded_bandwidth",): 0.0, ("route_unhealthy",): 0.0},
    compute_mode={("default",): 1.0, ("prohibited",): 0.0},
)
SNAPSHOT = Snapshot(
    taken_at_seconds=0,
    age_seconds=0,
    readings=(READING,),
    sources=(SourceState(name="nvml", up=True, errors={}),),
)


def exported(chosen: Chosen) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of each metric, by the labels after those of the GPU."""
    families = build_families(SNAPSHOT, ExporterFacts(version="1", python="3", hostname="n"), chosen)
    return {one.metric.name: {labels[2:]: value for labels, value in one.samples} for one in families}


def test_each_set_is_a_part_of_the_next() -> None:
    core, standard, full = (choose(one).keys() for one in SETS)
    assert core < standard < full
    assert full == {one.name for one in CATALOG}


def test_standard_sums_over_links_and_full_has_each_link_too() -> None:
    standard, full = exported(choose(STANDARD)), exported(choose(FULL))
    for found in (standard, full):
        assert found["gputally_gpu_nvlinks"] == {("up",): 2, ("down",): 1}
        assert found["gputally_gpu_nvlink_errors_total"] == {("replay",): 3, ("crc_flit",): 0}
    assert "gputally_gpu_nvlink_up" not in standard
    assert full["gputally_gpu_nvlink_up"] == {("0",): 1, ("1",): 0, ("2",): 1}
    assert full["gputally_gpu_nvlink_link_errors_total"][("1", "replay")] == 2


def test_a_set_of_states_is_the_active_one() -> None:
    found = exported(choose(FULL))
    assert found["gputally_gpu_recovery_action"] == {("gpu_reset",): 1}
    assert found["gputally_gpu_compute_mode"] == {("default",): 1}
    assert found["gputally_gpu_fabric_problem"] == {("none",): 1}, "reported, and none of them"


def test_counters_of_rare_events_begin_at_0() -> None:
    found = exported(choose(CORE, ["sources"]))
    assert found["gputally_gpu_xid_errors_total"] == {(): 0}
    assert found["gputally_source_errors_total"] == {(): 0}


def test_no_label_of_a_counter_has_values_that_are_not_known_before_the_first_event() -> None:
    """A counter that appears with its first event has no zero before it: rate() and increase() miss it."""
    rare = {"xid", "field", "error"}
    assert [one.name for one in CATALOG if one.kind == "counter" and rare.intersection(one.labels)] == []


def test_rare_label_values_are_in_full_and_where_the_metric_is_included() -> None:
    name = "gputally_gpu_clock_hertz"
    assert exported(choose(STANDARD))[name] == {("graphics",): 1, ("memory",): 2}
    for chosen in (choose(FULL), choose(STANDARD, [name]), choose(CORE, ["clocks"])):
        assert len(exported(chosen)[name]) == 4


def test_groups_and_names_are_added_and_removed() -> None:
    chosen = choose(CORE, ["modes", "gputally_gpu_bar1_used_bytes"], ["gputally_gpu_mig_mode", "energy"])
    added = chosen.keys() - choose(CORE).keys()
    assert added == {
        "gputally_gpu_accounting_mode",
        "gputally_gpu_bar1_used_bytes",
        "gputally_gpu_compute_mode",
        "gputally_gpu_ecc_mode",
        "gputally_gpu_persistence_mode",
    }
    assert choose(CORE).keys() - chosen.keys() == {"gputally_gpu_energy_joules_total"}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("nvlinks", "nvlink"),
        ("gputally_gpu_power_watt", "gputally_gpu_power_watts"),
        ("bar1_used", "gputally_gpu_bar1_used_bytes"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    for arguments in (((name,), ()), ((), (name,))):
        with pytest.raises(UnknownNameError) as error:
            choose(STANDARD, *arguments)
        assert f"{name!r}; the nearest name is {nearest} " in str(error.value)


def test_a_name_that_is_near_to_nothing_is_refused_with_the_groups() -> None:
    with pytest.raises(UnknownNameError, match=r"'qqq' .*groups: gpu, utilization, .*exporter"):
        choose(STANDARD, ["qqq"])


def test_every_group_has_a_metric() -> None:
    assert {one.group for one in CATALOG} == set(Group)


def test_what_is_exported_or_used_elsewhere_is_read() -> None:
    assert skipped_fields(choose(FULL)) == frozenset()
    core = skipped_fields(choose(CORE))
    assert {"nvlink_errors", "remap_banks", "bar1_used_bytes", "encoder_utilization_ratio"} <= core
    assert not NEEDED_FIELDS & core
    assert "nvlink_errors" not in skipped_fields(choose(CORE, ["gputally_gpu_nvlink_link_errors_total"]))
    assert {one.name for one in fields(Reading)} >= NEEDED_FIELDS
