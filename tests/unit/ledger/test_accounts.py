"""The ledger of one GPU: time, presence, departures, processes, and all of it over a restart."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.ledger.accounts import DeviceSample, GpuAccounts
from gputally.ledger.meter import MeterSample
from gputally.model import Charge, Owner, ProcessCharge, Resident, Unknown
from tests.support.ledger_samples import GIB, GPU, SECOND, pod, resident

A, B = pod("a"), pod("b")
STRANGER = Unknown("permission")


def open_books(*, process_accounts: bool = False) -> GpuAccounts:
    return GpuAccounts(GPU.uuid, 1e9, 60 * SECOND, process_accounts=process_accounts)


def settle(
    ledger: GpuAccounts,
    at: float,
    joules: float | None,
    residents: Sequence[Resident] = (),
    holders: Sequence[Owner] = (),
    **more: Any,
) -> None:
    look = MeterSample(round(at * SECOND), None if joules is None else round(joules * 1000), None)
    part = DeviceSample(GPU.uuid, residents, holders, **{"visible": True, "sampled": True, **more})
    ledger.settle(look, [part], room=1000)


def charges(ledger: GpuAccounts) -> dict[str, Charge]:
    return {one.owner.pod: one for one in ledger.charges()}


def total(charge: Charge) -> float:
    return sum((charge.energy_millijoules or {}).values())


def unattributed(ledger: GpuAccounts) -> dict[str, float]:
    book = ledger.gpu_ledger()
    assert book is not None
    return {reason: amount for (reason,), amount in book.unattributed_millijoules.items() if amount}


# Time.


def test_time_is_counted_between_samples_for_residents_and_holders() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A, busy=4)], [B])
    assert {name: one.held_microseconds for name, one in charges(ledger).items()} == {"a": 0, "b": 0}
    settle(ledger, 5, 0, [resident(1, A, busy=4)], [B])
    settle(ledger, 8, 0, [resident(1, A, busy=1)])
    assert [(one.held_microseconds, one.busy_microseconds) for one in ledger.charges()] == [
        (8 * SECOND, 5 * SECOND),
        (5 * SECOND, 0),
    ]


def test_time_before_the_first_sample_is_not_counted() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A, busy=4)])
    assert charges(ledger)["a"].busy_microseconds == 0


def test_unobserved_time_is_not_counted() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    settle(ledger, 60, 0, [resident(1, A, busy=6)])
    settle(ledger, 121, 0, [resident(1, A, busy=6)])
    assert charges(ledger)["a"].held_microseconds == 60 * SECOND
    assert charges(ledger)["a"].busy_microseconds == 6 * SECOND


def test_without_process_samples_busy_time_is_unknown() -> None:
    ledger = open_books()
    for at in (0, 5):
        settle(ledger, at, 0, [resident(1, A, busy=None)], [B], sampled=False)
    assert [one.busy_microseconds for one in ledger.charges()] == [None, None]


def test_the_busy_time_of_an_owner_whose_work_an_mps_server_runs_is_not_known_also_if_it_was() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [], [A])
    settle(ledger, 5, 0, [], [A])
    assert charges(ledger)["a"].busy_microseconds == 0
    client = replace(resident(1, A, busy=3), mediated=True)
    settle(ledger, 10, 100, [client, resident(2, A, busy=1), resident(3, B, busy=4)], [A])
    assert charges(ledger)["a"].busy_microseconds is None, "a 0 would look idle"
    assert charges(ledger)["b"].busy_microseconds == 4 * SECOND
    assert total(charges(ledger)["a"]) == 50_000, "its part of the server's work counts"
    settle(ledger, 15, 100, [], [A])
    assert charges(ledger)["a"].busy_microseconds == 0, "known again, from 0"


def test_known_activity_of_the_device_is_busy_time_of_its_only_owner() -> None:
    ledger = open_books()
    for at in (0, 5):
        settle(ledger, at, 0, [resident(1, A, busy=None)], sampled=False, active_ratio=0.3)
    assert charges(ledger)["a"].busy_microseconds == 1_500_000
    settle(
        ledger, 10, 0, [resident(1, A, busy=None), resident(2, B, busy=None)], sampled=False, active_ratio=0.3
    )
    assert charges(ledger)["a"].busy_microseconds == 1_500_000
    assert charges(ledger)["b"].busy_microseconds is None


def test_a_holder_whose_pod_is_resident_in_an_unknown_container_is_not_counted_twice() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, pod("a", ""))], [A])
    assert [one.owner.container for one in ledger.charges()] == [""]


def test_a_holder_of_another_name_is_counted_separately() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, pod("a", "sidecar")), resident(2, Owner("slurm", "slurm/4"))], [A, B])
    assert len(list(ledger.charges())) == 4


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 100))
def test_windows_of_any_length_give_the_same_busy_time(cuts: list[int], percent: int) -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    at = 0
    for length in cuts:
        at += length
        settle(ledger, at, 0, [resident(1, A, busy=length * percent / 100)])
    assert charges(ledger)["a"].busy_microseconds == at * percent * 10_000
    assert charges(ledger)["a"].held_microseconds == at * SECOND


# Who is there, and who has gone.


def test_an_owner_that_has_left_is_inactive_and_keeps_its_charges() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    settle(ledger, 5, 100, [resident(1, A)])
    settle(ledger, 10, 200)
    assert (charges(ledger)["a"].active, total(charges(ledger)["a"])) == (False, 200_000)


def test_an_owner_with_exited_processes_only_is_charged_and_inactive() -> None:
    ledger = open_books()
    settle(ledger, 0, 0)
    settle(ledger, 5, 100, [resident(1, A, busy=1, ended=True)])
    assert (charges(ledger)["a"].active, total(charges(ledger)["a"])) == (False, 100_000)


def test_a_holder_is_active_even_if_its_process_exited() -> None:
    ledger = open_books()
    settle(ledger, 0, 0)
    settle(ledger, 5, 100, [resident(1, A, busy=1, ended=True)], [A])
    assert charges(ledger)["a"].active


def test_no_owner_is_active_on_a_lost_gpu() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, A)])
    ledger.mark_inactive()
    assert not charges(ledger)["a"].active
    assert [one.active for one in ledger.process_charges()] == [False]


def test_an_owner_that_left_long_ago_is_removed_and_its_energy_stays_in_the_ledger() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, A)], [B])
    settle(ledger, 5, 100, [], [B])
    ledger.expire_before(0)
    assert charges(ledger).keys() == {"a", "b"}
    ledger.expire_before(1)
    assert charges(ledger).keys() == {"b"}
    assert not list(ledger.process_charges())
    assert unattributed(ledger) == {"expired": 50_000}


def test_a_present_owner_is_never_removed() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, A)], [B])
    ledger.expire_before(10**12)
    assert charges(ledger).keys() == {"a", "b"}
    assert len(list(ledger.process_charges())) == 1


def test_an_owner_that_returns_after_removal_starts_at_zero() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    settle(ledger, 5, 100)
    ledger.expire_before(10 * SECOND)
    settle(ledger, 10, 200, [resident(1, A)])
    assert total(charges(ledger)["a"]) == 100_000
    assert charges(ledger)["a"].held_microseconds == 5 * SECOND
    assert unattributed(ledger) == {"expired": 100_000}


def test_an_owner_removed_before_its_last_window_closes_is_charged_as_departed() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    settle(ledger, 5, None)
    ledger.expire_before(10 * SECOND)
    settle(ledger, 10, 100)
    assert unattributed(ledger) == {"expired": 100_000}
    assert not charges(ledger)


def test_on_a_gpu_with_neither_counter_nor_power_no_owner_is_kept() -> None:
    ledger = open_books()
    for at in range(50):
        settle(ledger, at, None, [resident(at, pod(f"pod-{at}"))])
        ledger.expire_before(at * SECOND)
    assert ledger.gpu_ledger() is None
    assert [one.energy_millijoules for one in ledger.charges()] == [None]
    settle(ledger, 50, 0)
    settle(ledger, 51, 100)
    assert unattributed(ledger) == {"idle": 100_000}


def test_while_a_counter_is_missing_no_owner_is_kept_for_it() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    for at in range(5, 100, 5):
        settle(ledger, at, None, [resident(at, B)])
    settle(ledger, 100, 100, [resident(7, B)])
    settle(ledger, 105, 150, [resident(7, B)])
    assert unattributed(ledger) == {"unobserved": 100_000}
    assert dict(charges(ledger)["b"].energy_millijoules or {}) == {
        ("measured",): 50_000,
        ("shared",): 0,
        ("held",): 0,
    }


# Processes.


def processes(ledger: GpuAccounts) -> dict[int, ProcessCharge]:
    return {one.pid: one for one in ledger.process_charges()}


def test_processes_are_kept_only_on_request() -> None:
    ledger = open_books()
    settle(ledger, 0, 0, [resident(1, A)])
    assert not processes(ledger)


def test_a_process_has_its_share_and_its_description() -> None:
    ledger = open_books(process_accounts=True)
    for at, used in ((0, 0), (5, 200)):
        settle(
            ledger, at, used, [resident(1, A, busy=6), resident(2, B, busy=4, memory=2 * GIB, name="java")]
        )
    assert [processes(ledger)[pid].energy_millijoules for pid in (1, 2)] == [120_000, 80_000]
    assert processes(ledger)[2] == ProcessCharge(
        gpu_index=0,
        uuid=GPU.uuid,
        pid=2,
        name="java",
        owner=B,
        active=True,
        started_at_seconds=1.0,
        memory_used_bytes=2 * GIB,
        sm_ratio=0.4,
        memory_ratio=0.1,
        energy_millijoules=80_000,
    )


def test_an_exited_process_keeps_its_name_and_energy() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, A)])
    settle(ledger, 5, 200, [resident(1, A)])
    settle(ledger, 10, 300, [resident(1, A, busy=1, ended=True)])
    one = processes(ledger)[1]
    assert (one.name, one.active, one.energy_millijoules) == ("python", False, 300_000)
    assert (one.memory_used_bytes, one.sm_ratio, one.memory_ratio) == (None, None, None)


def test_a_process_that_was_never_sampled_is_charged_under_its_pid() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0)
    settle(ledger, 5, 200, [resident(1, A, busy=1, ended=True)])
    assert (processes(ledger)[1].name, processes(ledger)[1].energy_millijoules) == ("", 200_000)


@pytest.mark.parametrize("heir", [A, B])
@pytest.mark.parametrize("turn", [1, -1])
def test_a_reused_pid_starts_at_zero(turn: int, heir: Owner) -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, A, started=1.0)])
    settle(ledger, 5, 200, [resident(1, A, started=1.0)])
    both = [resident(1, A, busy=1, started=None, ended=True), resident(1, heir, busy=3, started=7.0)]
    settle(ledger, 10, 300, both[::turn])
    one = processes(ledger)[1]
    assert (one.owner, one.energy_millijoules, one.started_at_seconds, one.active) == (
        heir,
        75_000,
        7.0,
        True,
    )
    assert total(charges(ledger)["a"]) == (300_000 if heir == A else 225_000)


def test_a_process_whose_owner_becomes_known_starts_at_zero() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, Unknown("unknown_pod"))])
    settle(ledger, 5, 200, [resident(1, Unknown("unknown_pod"))])
    assert processes(ledger)[1].energy_millijoules == 200_000
    settle(
        ledger, 10, 300, [resident(1, A)]
    )  # it did not run: half is for the time in which its owner was unknown
    assert processes(ledger)[1].energy_millijoules == total(charges(ledger)["a"]) == 50_000
    settle(ledger, 15, 400, [resident(1, A)])
    assert processes(ledger)[1].energy_millijoules == total(charges(ledger)["a"]) == 150_000


def test_a_process_without_a_name_does_not_get_the_energy_of_its_predecessor() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [resident(1, A, started=None)])
    settle(ledger, 5, 200, [resident(1, STRANGER, started=None, memory=0)])
    assert (total(charges(ledger)["a"]), processes(ledger)[1].energy_millijoules) == (100_000, 100_000)


def test_a_process_without_samples_has_its_share_of_the_holder() -> None:
    ledger = open_books(process_accounts=True)
    settle(ledger, 0, 0, [], [A])
    settle(ledger, 5, 200, [resident(1, Unknown("exited"), busy=1, ended=True)], [A])
    assert processes(ledger)[1].energy_millijoules == 200_000
    assert total(charges(ledger)["a"]) == 200_000


# Over a restart.


def resumed(ledger: GpuAccounts, at: float, joules: float | None) -> GpuAccounts:
    after = open_books()
    look = MeterSample(round(at * SECOND), None if joules is None else round(joules * 1000), None)
    after.resume(json.loads(json.dumps(ledger.state())), look)
    settle(after, at, joules)
    return after


def test_the_whole_state_is_resumed() -> None:
    owner = Owner("slurm", "slurm/42", slurm_job="42", user="u")
    before = open_books()
    settle(before, 0, 7, [resident(1, A), resident(2, owner, busy=None)], sampled=False)
    settle(before, 5, 107, [resident(1, A, busy=1), resident(2, owner, busy=None)], sampled=False)
    after = resumed(before, 20, 117)
    book = after.gpu_ledger()
    assert book is not None
    assert (book.began_at_seconds, book.energy_millijoules) == (1e9, 117_000)
    assert unattributed(after) == {"initial": 7_000, "unobserved": 10_000}

    def told(ledger: GpuAccounts) -> list[tuple[Any, ...]]:
        return [
            (one.owner, one.uuid, one.energy_millijoules, one.held_microseconds, one.busy_microseconds)
            for one in ledger.charges()
        ]

    assert told(after) == told(before)
    assert told(before)[1][3:] == (5 * SECOND, None)
    assert not any(one.active for one in after.charges())


def test_the_time_since_an_owner_left_is_kept_without_the_time_of_the_restart() -> None:
    before = open_books()
    settle(before, 0, 0, [resident(1, A)])
    settle(before, 10, 0)
    after = resumed(before, 1000, 0)
    after.expire_before(990 * SECOND)
    assert charges(after)
    after.expire_before(990 * SECOND + 1)
    assert not charges(after)


def test_a_counter_that_does_not_continue_leaves_the_ledger_empty() -> None:
    before = open_books()
    settle(before, 0, 100, [resident(1, A)])
    settle(before, 5, 200, [resident(1, A)])
    after = resumed(before, 10, 150)
    assert not charges(after)
    assert unattributed(after) == {"initial": 150_000}
