"""The ledger as a whole: every joule is accounted for, across exits, restarts and reconfigurations."""

import json
import pickle
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.ledger import Ledger
from gputally.model import Gpu, MigReading, Owner, Resident, Unknown
from tests.support.ledger_samples import (
    GIB,
    GPU,
    SECOND,
    Holders,
    assert_balanced,
    charge_of,
    holds,
    joules,
    mig,
    new_ledger,
    nobodys,
    pod,
    reading,
    resident,
    settle,
)

A, B, C = pod("a"), pod("b"), pod("c")
STRANGER = Unknown("permission")


def one_window(
    residents: list[Resident],
    holders: Holders = (),
    *,
    used: float = 100.0,
    **more: Any,
) -> Ledger:
    """The same people from its beginning to its end."""
    ledger = new_ledger()
    settle(ledger, 0, reading(1000, **more), residents, holders)
    settle(ledger, 5, reading(1000 + used, **more), residents, holders)
    assert_balanced(ledger)
    return ledger


# The table, row by row.


def test_one_owner_resident_gets_all_measured() -> None:
    ledger = one_window([resident(1, A)], holds(A))
    assert joules(ledger, A) == {"measured": 100}
    assert nobodys(ledger) == {"initial": 1000}


def test_one_owner_that_ran_gets_all_measured_beside_a_holder_while_no_floor_is_known() -> None:
    ledger = one_window([resident(1, A, busy=1)], holds(A, B))
    assert (joules(ledger, A), joules(ledger, B)) == ({"measured": 100}, {})


def test_several_owners_share_by_sm_time() -> None:
    ledger = one_window([resident(1, A, busy=3), resident(2, B, busy=2)], used=200)
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 120}, {"shared": 80})


def test_several_owners_of_which_none_ran_get_it_equally_held() -> None:
    ledger = one_window([resident(1, A, memory=6 * GIB), resident(2, B, memory=2 * GIB)], holds(B, C))
    assert [joules(ledger, one) for one in (A, B, C)] == [
        {"held": 33.334},
        {"held": 33.333},
        {"held": 33.333},
    ]


def test_several_owners_that_are_not_sampled_get_it_by_memory_shared() -> None:
    there = [resident(1, A, memory=6 * GIB, busy=None), resident(2, B, memory=2 * GIB, busy=None)]
    ledger = one_window(there, sampled=False)
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 75}, {"shared": 25})


def test_several_indistinguishable_owners_share_equally() -> None:
    there = [resident(1, A, memory=None, busy=None), resident(2, B, memory=None, busy=None)]
    ledger = one_window(there, sampled=False)
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 50}, {"shared": 50})


def test_without_residents_holders_are_charged_equally() -> None:
    ledger = one_window([], holds(A, B))
    assert (joules(ledger, A), joules(ledger, B)) == ({"held": 50}, {"held": 50})


def test_with_invisible_processes_holders_are_charged_equally() -> None:
    ledger = one_window([], holds(A, B), visible=False, sampled=False)
    assert (joules(ledger, A), joules(ledger, B)) == ({"held": 50}, {"held": 50})


def test_a_process_that_was_never_sampled_is_charged_to_the_only_holder() -> None:
    ledger = one_window([resident(1, Unknown("exited"), ended=True)], holds(A))
    assert joules(ledger, A) == {"held": 100}


def test_a_process_that_was_never_sampled_is_unknown_with_two_holders() -> None:
    ledger = one_window([resident(1, Unknown("exited"), busy=1, ended=True)], holds(A, B))
    assert nobodys(ledger) == {"initial": 1000, "unknown": 100}


def test_an_unattributed_resident_is_unknown() -> None:
    ledger = one_window([resident(1, STRANGER, busy=1)], holds(A))
    assert nobodys(ledger) == {"initial": 1000, "unknown": 100}


def test_without_residents_and_holders_energy_is_idle() -> None:
    assert nobodys(one_window([])) == {"initial": 1000, "idle": 100}


def test_without_visible_processes_and_holders_energy_is_unknown() -> None:
    assert nobodys(one_window([], visible=False)) == {"initial": 1000, "unknown": 100}


def test_time_without_an_exporter_is_unobserved() -> None:
    ledger = new_ledger()
    settle(ledger, 0, reading(1000), [resident(1, A)])
    settle(ledger, 61, reading(1500), [resident(1, A)])
    assert nobodys(ledger) == {"initial": 1000, "unobserved": 500}
    assert joules(ledger, A) == {}


def test_a_reset_of_the_counter_is_unobserved_and_reported() -> None:
    ledger = new_ledger()
    settle(ledger, 0, reading(90_000), [resident(1, A)])
    settle(ledger, 5, reading(50), [resident(1, A)])
    assert nobodys(ledger) == {"initial": 90_000, "unobserved": 50}
    assert ledger.problems() == {("energy_millijoules", "reset"): 1}
    assert_balanced(ledger)


def test_a_counter_that_contradicts_the_power_is_reported_and_not_used() -> None:
    ledger = new_ledger()
    for at in (0, 5, 10, 15):
        settle(ledger, at, reading(1000, watts=300), [resident(1, A)])
    [book] = assert_balanced(ledger)
    assert (book.energy_source, joules(ledger, A)) == ("integrated", {"measured": 4500})
    assert ledger.problems() == {("energy_millijoules", "counter_unfit"): 1}


def test_the_highest_limit_bounds_the_possible_energy() -> None:
    ledger = new_ledger()
    unlimited = replace(reading(0), power_limit_watts=100.0, power_max_limit_watts=1000.0)
    settle(ledger, 0, unlimited)
    settle(ledger, 5, replace(unlimited, energy_millijoules=10_999_000))
    assert nobodys(ledger) == {"idle": 10_999}


# The example of docs/energy.md.


def worked_example() -> Ledger:
    """Its windows. The counter held nothing before."""
    ledger = new_ledger(boot_id="boot")
    both = holds(A, B)

    def a(busy: float) -> Resident:
        return resident(1, A, busy=busy, memory=6 * GIB)

    def b(busy: float, *, ended: bool = False) -> Resident:
        return resident(2, B, busy=busy, memory=2 * GIB, ended=ended)

    settle(ledger, 0, reading(0), [a(0), b(0)], both)
    settle(ledger, 5, reading(50), [a(0), b(0)], both)
    settle(ledger, 10, reading(100), [a(0), b(0)], both)
    settle(ledger, 15, reading(300), [a(3), b(2)], both)
    settle(ledger, 20, reading(450), [a(3), b(1, ended=True)], both)
    settle(ledger, 25, reading(630), [a(2)], both)
    settle(ledger, 30, reading(630), [resident(1, A, busy=1, ended=True)], both)
    settle(ledger, 35, reading(700), [], both)
    settle(ledger, 40, reading(760))
    return ledger


def test_sixty_and_forty_percent_of_the_sm_time_of_200_joules_are_120_and_80() -> None:
    ledger = one_window([resident(1, A, busy=0.6), resident(2, B, busy=0.4)], used=200)
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 120}, {"shared": 80})


def test_the_worked_example_gives_the_documented_charges() -> None:
    ledger = worked_example()
    assert joules(ledger, A) == {"shared": 90 + 75, "measured": 130, "held": 5 * 25 + 35}
    assert joules(ledger, B) == {"shared": 60 + 25, "held": 5 * 25 + 35}
    assert nobodys(ledger) == {"idle": 60}


def test_the_worked_example_continues_after_a_restart_and_ends_in_departures() -> None:
    state = json.loads(json.dumps(worked_example().state()))
    ledger = new_ledger(boot_id="boot", resume=state)
    settle(ledger, 45, reading(800))
    assert nobodys(ledger) == {"idle": 60, "unobserved": 40}
    assert sum(joules(ledger, A).values()) == 455
    assert sum(joules(ledger, B).values()) == 245
    ledger.expire(400 * SECOND)
    assert not ledger.charges()
    assert nobodys(ledger) == {"idle": 60, "unobserved": 40, "expired": 700}
    assert_balanced(ledger)


# The idle floor.


def idle_for_two_windows(ledger: Ledger, residents: list[Resident], **more: Any) -> None:
    """At 10 W: 50 J in each window of five seconds, up to a counter of 1100 J at second 10."""
    for at in (0, 5, 10):
        settle(ledger, at, reading(1000 + 10 * at, **more), residents)


def test_a_floor_goes_to_all_who_hold_the_gpu_and_the_rest_to_who_worked() -> None:
    ledger = new_ledger()
    idle_for_two_windows(ledger, [])
    settle(ledger, 15, reading(1600), [resident(1, A, busy=1), resident(2, B)], holds(C))
    assert joules(ledger, A) == {"held": 16.667, "shared": 450}
    assert (joules(ledger, B), joules(ledger, C)) == ({"held": 16.667}, {"held": 16.666})
    assert_balanced(ledger)


def test_a_floor_with_processes_is_preferred_to_one_without() -> None:
    ledger = new_ledger()
    idle_for_two_windows(ledger, [])
    for at, counted in ((15, 1200), (20, 1300)):
        settle(ledger, at, reading(counted), [resident(1, A)])
    settle(ledger, 25, reading(1900), [resident(1, A, busy=1), resident(2, B)])
    assert joules(ledger, B) == {"held": 50}


def test_a_sole_owner_gets_floor_and_rest_measured() -> None:
    ledger = new_ledger()
    idle_for_two_windows(ledger, [])
    settle(ledger, 15, reading(1600), [resident(1, A, busy=1)], holds(A))
    assert joules(ledger, A) == {"measured": 500}


def test_a_floor_above_the_energy_of_a_window_is_all_of_it() -> None:
    ledger = new_ledger()
    idle_for_two_windows(ledger, [])
    settle(ledger, 15, reading(1120), [resident(1, A, busy=1), resident(2, B)])
    assert (joules(ledger, A), joules(ledger, B)) == ({"held": 10}, {"held": 10})


def test_a_floor_is_not_learned_while_the_gpu_reports_work_of_processes_that_are_not_sampled() -> None:
    ledger = new_ledger()
    for at in (0, 5, 10):
        busy = replace(reading(1000 + 100 * at), gpu_utilization_ratio=0.9)
        settle(ledger, at, busy, [resident(1, A)])
    settle(ledger, 15, reading(2600), [resident(1, A, busy=1), resident(2, B)])
    assert joules(ledger, B) == {}


def test_a_floor_is_resumed_after_a_restart() -> None:
    before = new_ledger(boot_id="boot")
    idle_for_two_windows(before, [])
    ledger = new_ledger(boot_id="boot", resume=json.loads(json.dumps(before.state())))
    there = [resident(1, A, busy=1), resident(2, B)]
    settle(ledger, 100, reading(1200), there)
    settle(ledger, 105, reading(1700), there)
    assert (joules(ledger, A), joules(ledger, B)) == ({"held": 25, "shared": 450}, {"held": 25})


def test_a_floor_of_mig_devices_goes_by_size_also_to_those_that_are_idle() -> None:
    def instances(*active: float) -> tuple[MigReading, ...]:
        return tuple(
            mig(n, profile=f"{slices}g.10gb", graphics_active_ratio=ratio)
            for n, (slices, ratio) in enumerate(zip((4, 3), active, strict=True))
        )

    there = [resident(1, A, uuid="MIG-0", busy=None)]
    ledger = new_ledger()
    idle_for_two_windows(ledger, there, mig=instances(0, 0))
    before = joules(ledger, A)["measured"]
    settle(ledger, 15, reading(1850, mig=instances(0.5, 0)), there, holds(B, uuid="MIG-1"))
    assert joules(ledger, A)["measured"] - before == pytest.approx(50 * 4 / 7 + 700, abs=0.001)
    assert joules(ledger, B)["held"] == pytest.approx(50 * 3 / 7, abs=0.001)
    assert_balanced(ledger)


# MIG.


def on_mig(instances: tuple[MigReading, ...], residents: list[Resident], holders: Holders = ()) -> Ledger:
    return one_window(residents, holders, mig=instances, used=700.0)


def test_the_energy_of_the_gpu_is_divided_among_its_instances_by_size() -> None:
    instances = (mig(1, profile="4g.40gb"), mig(2, profile="2g.20gb"), mig(3, profile="1g.10gb"))
    there = [resident(1, A, uuid="MIG-1", busy=None), resident(2, B, uuid="MIG-2", busy=None)]
    ledger = on_mig(instances, there)
    assert (joules(ledger, A), joules(ledger, B)) == ({"measured": 400}, {"measured": 200})
    assert nobodys(ledger) == {"initial": 1000, "idle": 100}


def test_the_size_is_the_number_of_multiprocessors_if_known() -> None:
    instances = (mig(1, profile="1g.10gb", multiprocessors=60), mig(2, profile="1g.10gb", multiprocessors=10))
    ledger = on_mig(instances, [resident(1, A, uuid="MIG-1", busy=None)])
    assert joules(ledger, A) == {"measured": 600}


def test_instances_of_unknown_size_get_equal_parts() -> None:
    ledger = on_mig((mig(1), mig(2)), [resident(1, A, uuid="MIG-1", busy=None)])
    assert joules(ledger, A) == {"measured": 350}


def test_the_energy_is_divided_by_activity_times_size_if_activity_is_known() -> None:
    instances = (
        mig(1, profile="4g.40gb", graphics_active_ratio=0.5),
        mig(2, profile="2g.20gb", graphics_active_ratio=0.75),
        mig(3, profile="1g.10gb", graphics_active_ratio=0.0),
    )
    there = [resident(n, owner, uuid=f"MIG-{n}", busy=None) for n, owner in ((1, A), (2, B), (3, C))]
    ledger = on_mig(instances, there)
    assert (joules(ledger, A), joules(ledger, B), joules(ledger, C)) == (
        {"measured": 400},
        {"measured": 300},
        {},
    )


@pytest.mark.parametrize("ratios", [(0.0, 0.0), (0.9, None), (None, None)])
def test_zero_or_incomplete_activity_is_not_used(ratios: tuple[float | None, ...]) -> None:
    instances = (
        mig(1, profile="3g.40gb", graphics_active_ratio=ratios[0]),
        mig(2, profile="4g.40gb", graphics_active_ratio=ratios[1]),
    )
    ledger = on_mig(instances, [resident(1, A, uuid="MIG-1", busy=None)])
    assert joules(ledger, A) == {"measured": 300}


def test_within_an_instance_the_rules_of_a_gpu_apply() -> None:
    instances = (
        mig(1, profile="3g.40gb"),
        mig(2, profile="3g.40gb", visible=False),
        mig(3, profile="1g.10gb"),
    )
    there = [
        resident(1, A, uuid="MIG-1", busy=None, memory=2 * GIB),
        resident(2, B, uuid="MIG-1", busy=None, memory=1 * GIB),
        resident(3, STRANGER, uuid="MIG-3", busy=None),
    ]
    ledger = on_mig(instances, there, holds(C, uuid="MIG-2"))
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 200}, {"shared": 100})
    assert joules(ledger, C, uuid="MIG-2") == {"held": 300}
    assert nobodys(ledger) == {"initial": 1000, "unknown": 100}


def test_within_a_partition_with_process_samples_sm_time_is_used() -> None:
    instances = (replace(mig(1), process_samples=()), replace(mig(2), process_samples=()))
    there = [resident(1, A, uuid="MIG-1", busy=6.0), resident(2, B, uuid="MIG-1", busy=1.0)]
    ledger = on_mig(instances, there, holds(C, uuid="MIG-2"))
    assert (joules(ledger, A), joules(ledger, B)) == ({"shared": 300}, {"shared": 50})
    assert charge_of(ledger, A, uuid="MIG-1").busy_microseconds == 6 * SECOND
    assert charge_of(ledger, C, uuid="MIG-2").busy_microseconds == 0, "it would have been sampled"


def test_the_busy_time_of_the_only_owner_of_an_instance_is_its_activity() -> None:
    ledger = on_mig((mig(1, graphics_active_ratio=0.4),), [resident(1, A, uuid="MIG-1", busy=None)])
    charge = charge_of(ledger, A, uuid="MIG-1")
    assert (charge.held_microseconds, charge.busy_microseconds) == (5 * SECOND, 2 * SECOND)


def test_recreated_instances_keep_the_charges_of_the_old_ones() -> None:
    ledger = on_mig((mig(1),), [resident(1, A, uuid="MIG-1", busy=None)])
    settle(ledger, 10, reading(1800, mig=(mig(2), mig(3))), [resident(2, B, uuid="MIG-2", busy=None)])
    assert (joules(ledger, A), joules(ledger, B)) == ({"measured": 700}, {"measured": 50})
    settle(ledger, 15, reading(1900), [resident(3, C)])
    assert joules(ledger, C, uuid=GPU.uuid) == {"measured": 100}
    assert joules(ledger, A, uuid="MIG-1") == {"measured": 700}
    assert [one.active for one in ledger.charges()] == [False, False, True]
    assert_balanced(ledger)


# GPUs that come and go.


SECOND_DIE = Gpu("GPU-b", 1, "AMD", "MI250", metered_by=GPU.uuid)


@pytest.mark.parametrize(
    ("busy", "split"),
    [((0.75, 0.25), (75, 25)), ((0.0, 0.0), (50, 50)), ((0.75, None), (50, 50)), ((0.0, 0.5), (0, 100))],
)
def test_two_dies_with_one_meter_share_its_energy_by_utilisation(
    busy: tuple[float | None, float | None], split: tuple[int, int]
) -> None:
    ledger = new_ledger()
    there = [resident(1, A), resident(2, B, uuid=SECOND_DIE.uuid)]
    for at, counted in ((0, 1000), (5, 1100)):
        first = replace(reading(counted), gpu_utilization_ratio=busy[0])
        second = replace(reading(None, gpu=SECOND_DIE), gpu_utilization_ratio=busy[1])
        settle(ledger, at, [second, first], there)
    assert_balanced(ledger)
    charged = tuple(joules(ledger, owner).get("measured", 0) for owner in (A, B))
    assert charged == split
    assert {charge.gpu_index for charge in ledger.charges()} == {0}, (
        "as MIG devices, by the index of the meter"
    )


def test_a_die_without_its_meter_has_time_but_no_energy() -> None:
    ledger = new_ledger()
    for at in (0, 5):
        settle(ledger, at, reading(None, gpu=SECOND_DIE), [resident(2, B, uuid=SECOND_DIE.uuid)])
    (charge,) = ledger.charges()
    assert (charge.energy_millijoules, charge.held_microseconds) == (None, 5 * SECOND)
    assert ledger.gpu_ledgers() == ()


def test_a_short_loss_of_a_gpu_is_charged_and_a_long_one_is_not() -> None:
    ledger = new_ledger()
    lost = reading(None).lost()
    settle(ledger, 0, reading(0), [resident(1, A)])
    settle(ledger, 5, lost)
    assert not charge_of(ledger, A).active
    settle(ledger, 10, reading(100), [resident(1, A)])
    assert joules(ledger, A) == {"measured": 100}
    settle(ledger, 15, lost)
    settle(ledger, 75, reading(500), [resident(1, A)])
    assert (joules(ledger, A), nobodys(ledger)) == ({"measured": 100}, {"unobserved": 400})
    assert charge_of(ledger, A).held_microseconds == 10 * SECOND


def test_a_gpu_lost_before_its_identity_was_read_has_no_ledger() -> None:
    ledger = new_ledger()
    nameless = replace(reading(5), gpu=replace(GPU, uuid=""))
    settle(ledger, 0, [nameless, nameless.lost(), reading(None).lost()])
    assert ledger.gpu_ledgers() == ()


def test_each_gpu_has_its_own_ledger_and_its_index_may_change() -> None:
    ledger = new_ledger()
    other = replace(GPU, uuid="GPU-b", index=1)
    there = [resident(1, A), resident(1, A, uuid="GPU-b")]
    settle(ledger, 0, [reading(0), reading(50, gpu=other)], there)
    settle(
        ledger, 5, [reading(10, gpu=replace(GPU, index=1)), reading(70, gpu=replace(other, index=0))], there
    )
    assert [(book.gpu_index, book.uuid, book.energy_millijoules) for book in ledger.gpu_ledgers()] == [
        (1, "GPU-a", 10_000),
        (0, "GPU-b", 70_000),
    ]
    assert [joules(ledger, A, uuid=uuid) for uuid in ("GPU-a", "GPU-b")] == [
        {"measured": 10},
        {"measured": 20},
    ]
    assert_balanced(ledger)


def test_the_wall_clock_only_determines_the_start_of_the_ledger() -> None:
    ledger = new_ledger()
    for at, now in ((0, 1e9), (5, 2e9), (10, 5.0)):
        ledger.settle(
            at_us=at * SECOND, now_seconds=now, readings=[reading(at)], residents=[resident(1, A)], holders=()
        )
    assert ledger.gpu_ledgers()[0].began_at_seconds == 1e9
    assert charge_of(ledger, A).held_microseconds == 10 * SECOND
    assert joules(ledger, A) == {"measured": 10}


# Restarts.


def state_after_a_window() -> dict[str, Any]:
    ledger = new_ledger(boot_id="boot")
    settle(ledger, 0, reading(1000), [resident(1, A)])
    settle(ledger, 5, reading(1100), [resident(1, A)])
    state: dict[str, Any] = json.loads(json.dumps(ledger.state()))
    return state


def test_a_restart_on_the_same_boot_loses_nothing() -> None:
    ledger = new_ledger(boot_id="boot", resume=state_after_a_window())
    settle(ledger, 100, reading(1150), [resident(1, A)])
    settle(ledger, 105, reading(1200), [resident(1, A)])
    assert joules(ledger, A) == {"measured": 150}
    assert nobodys(ledger) == {"initial": 1000, "unobserved": 50}
    assert charge_of(ledger, A).held_microseconds == 10 * SECOND


@pytest.mark.parametrize(("boot_id", "counter"), [("another", 1150), ("boot", 1099)])
def test_another_boot_or_a_reloaded_driver_begins_a_new_epoch(boot_id: str, counter: float) -> None:
    ledger = new_ledger(boot_id=boot_id, resume=state_after_a_window())
    settle(ledger, 100, reading(counter), [resident(1, A)])
    assert (joules(ledger, A), nobodys(ledger)) == ({}, {"initial": counter})
    assert ledger.state()["gpus"][GPU.uuid]["owners"][0]["millijoules"] == [0, 0, 0]


def test_a_counter_unreadable_at_the_first_sample_loses_no_history() -> None:
    ledger = new_ledger(boot_id="boot", resume=state_after_a_window())
    settle(ledger, 100, reading(None, watts=300), [resident(1, A)])
    assert ledger.state() == state_after_a_window()
    settle(ledger, 105, reading(1150, watts=300), [resident(1, A)])
    assert (joules(ledger, A), nobodys(ledger)) == ({"measured": 100}, {"initial": 1000, "unobserved": 50})
    assert charge_of(ledger, A).active
    assert charge_of(ledger, A).held_microseconds == 10 * SECOND
    assert_balanced(ledger)


def test_a_counter_that_disappears_permanently_begins_a_new_epoch_by_power() -> None:
    ledger = new_ledger(boot_id="boot", resume=state_after_a_window())
    for at, counter in ((100, None), (105, None), (110, 2000), (115, None)):
        settle(ledger, at, reading(counter, watts=300), [resident(1, A)])
    assert (joules(ledger, A), nobodys(ledger)) == ({"measured": 3000}, {})


def test_a_gpu_without_a_sample_since_the_start_is_kept() -> None:
    state = state_after_a_window()
    ledger = new_ledger(boot_id="boot", resume=state)
    settle(ledger, 100, [reading(5, gpu=Gpu("GPU-b", 1, "NVIDIA", "H100")), reading(None).lost()])
    again = new_ledger(boot_id="boot", resume=json.loads(json.dumps(ledger.state())))
    settle(again, 200, [reading(1150)], [resident(1, A)])
    assert (joules(again, A), nobodys(again)) == ({"measured": 100}, {"initial": 1000, "unobserved": 50})


def test_a_gpu_whose_counter_is_being_verified_is_not_kept() -> None:
    ledger = new_ledger(boot_id="boot")
    settle(ledger, 0, reading(1000, watts=300))
    assert ledger.state() == {"boot_id": "boot", "gpus": {}}


# Properties.


OWNERS: list[Owner | Unknown] = [A, B, C, Owner("slurm", "slurm/7"), STRANGER, Unknown("exited")]
ACTIVITY = st.lists(
    st.tuples(st.sampled_from(OWNERS), st.integers(0, 1000), st.integers(0, 8)), min_size=1, max_size=6
)


def totals(ledger: Ledger) -> dict[Any, float]:
    found: dict[Any, float] = {(): ledger.gpu_ledgers()[0].energy_millijoules}
    for book in ledger.gpu_ledgers():
        found |= {(book.uuid, *reason): amount for reason, amount in book.unattributed_millijoules.items()}
    for charge in ledger.charges():
        for basis, amount in (charge.energy_millijoules or {}).items():
            found[charge.uuid, charge.owner, *basis] = amount
        found[charge.uuid, charge.owner, "held"] = charge.held_microseconds
        found[charge.uuid, charge.owner, "busy"] = charge.busy_microseconds or 0
    return found


@given(
    ACTIVITY,
    st.integers(0, 500_000),
    st.lists(st.integers(1, 19), max_size=4, unique=True),
    st.sampled_from([(), (A,), (A, B)]),
)
def test_splitting_a_window_changes_at_most_a_millijoule_per_owner(
    activity: list[tuple[Owner | Unknown, int, int]],
    milliwatts: int,
    cuts: list[int],
    holding: tuple[Owner, ...],
) -> None:
    def run(looks: list[int]) -> dict[Any, float]:
        ledger = new_ledger()
        for last, at in pairwise([0, 0, *looks]):
            there = [
                resident(pid, owner, busy=(at - last) * mille / 1000, memory=memory * GIB)
                for pid, (owner, mille, memory) in enumerate(activity)
            ]
            settle(
                ledger, at, replace(reading(0), energy_millijoules=milliwatts * at), there, holds(*holding)
            )
        assert_balanced(ledger)
        return totals(ledger)

    whole, split = run([20]), run([*sorted(cuts), 20])
    assert whole.keys() == split.keys()
    for key, amount in whole.items():
        # Each window deals every owner less than a millijoule away from its exact share.
        assert abs(split[key] - amount) <= (1 + len(cuts) if cuts else 0)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
def test_the_order_of_readings_residents_and_holders_does_not_matter(seed: int, by_process: bool) -> None:
    luck = random.Random(seed)
    plain, shuffled = (new_ledger(process_accounts=by_process) for _ in range(2))
    gpus = [replace(GPU, uuid=f"GPU-{n}", index=n) for n in range(3)]
    owners = [*OWNERS, pod("a", pod_uid="1", container_id="x"), pod("a", pod_uid="2", container_id="w")]
    instances = (mig(1, profile="2g.20gb"), mig(2, profile="1g.10gb"))
    devices = ["GPU-0", "GPU-1", "MIG-1", "MIG-2"]
    for turn in range(6):
        readings = [
            reading(turn * (n + 1) * 0.011 + luck.random(), gpu=gpu, mig=instances if n == 2 else ())
            for n, gpu in enumerate(gpus)
        ]
        residents = [
            resident(
                pid,
                luck.choice(owners),
                busy=luck.choice([0, 0, 0.001, 1, luck.random()]),
                memory=luck.choice([None, 1, GIB]),
                uuid=uuid,
                started=started,
                ended=luck.random() < 0.2,
            )
            for uuid in devices
            for pid in luck.sample(range(5), 3)
            for started in luck.sample([None, 1.0, 2.0], luck.choice([1, 1, 2]))
        ]
        holders = [((0, uuid), one) for uuid in devices for one in (A, B) if luck.random() < 0.4]
        for ledger in (plain, shuffled):
            settle(ledger, turn * 5, readings, residents, holders)
            ledger.expire(turn * 5 * SECOND)
            for some in (readings, residents, holders):
                luck.shuffle(some)

    def told(ledger: Ledger) -> list[list[str]]:
        return [
            sorted(map(repr, some)) for some in (ledger.gpu_ledgers(), ledger.charges(), ledger.processes())
        ]

    assert told(plain) == told(shuffled)
    assert_balanced(plain)


# Memory.


def a_day_of_short_pods(ledger: Ledger, *, windows: int, pods: int, counter: bool) -> None:
    """Windows of a minute, in each of which so many pods come and go, beside one that stays."""
    sizes: list[tuple[int, int, int]] = []
    for turn in range(windows):
        at = turn * 60
        short = [
            resident(pid, pod(f"job-{turn}-{pid}"), busy=0.1, ended=pid % 2 == 0)
            for pid in range(2, 2 + pods)
        ]
        settle(ledger, at, reading(300.007 * at if counter else None), [resident(1, A, busy=1), *short])
        ledger.expire(at * SECOND)
        if turn % (windows // 4) == 10:  # more than the retention of five minutes later
            sizes.append((len(ledger.charges()), len(ledger.processes()), len(pickle.dumps(ledger))))
    charges, processes, size = sizes[0]
    assert charges == 1 + 6 * pods
    assert len(sizes) == 4
    for one in sizes:
        assert one[:2] == (charges, processes)
        assert one[2] < size * 1.1


def test_fifty_thousand_short_pods_leave_only_their_energy_in_memory() -> None:
    ledger = new_ledger(boot_id="boot")
    a_day_of_short_pods(ledger, windows=720, pods=70, counter=True)
    [book] = assert_balanced(ledger)
    assert book.energy_millijoules == round(300.007 * 719 * 60 * 1000)
    assert len(ledger.state()["gpus"][GPU.uuid]["owners"]) == 1 + 6 * 70
    # Each window: 1 s of the one that stays, 0.1 s of each of the others.
    assert joules(ledger, A)["shared"] == pytest.approx(book.energy_millijoules / 1000 / 8, rel=0.01)
    assert nobodys(ledger)["expired"] == pytest.approx(book.energy_millijoules / 1000 * 7 / 8, rel=0.01)


@pytest.mark.parametrize("counter", [True, False])
def test_short_processes_and_a_gpu_without_a_meter_leave_nothing_in_memory(counter: bool) -> None:
    a_day_of_short_pods(new_ledger(process_accounts=True), windows=80, pods=20, counter=counter)


def test_with_too_many_owners_those_that_are_absent_for_longest_are_closed_early_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gputally.ledger.MOST_OWNERS", 3)
    ledger = new_ledger()
    settle(ledger, 0, reading(0), [resident(1, pod("stays")), resident(100, pod("gone-0"))])
    for at in range(1, 6):
        settle(ledger, at, reading(at), [resident(1, pod("stays")), resident(100 + at, pod(f"gone-{at}"))])
        ledger.expire(at * SECOND)
        assert_balanced(ledger)
    assert [charge.owner.pod for charge in ledger.charges()] == ["stays", "gone-4", "gone-5"]
    assert ledger.problems() == {("owners", "limit"): 4}


def test_with_too_many_processes_the_owners_are_still_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputally.ledger.MOST_PROCESSES", 2)
    ledger = new_ledger(process_accounts=True)
    there = [resident(pid, pod(f"pod-{pid}")) for pid in (1, 2, 3)]
    for at in (0, 1):
        settle(ledger, at, reading(at), there)
    assert len(ledger.processes()) == 2
    assert len(ledger.charges()) == 3
    assert ledger.problems() == {("processes", "limit"): 2}
    assert_balanced(ledger)
