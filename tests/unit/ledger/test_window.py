"""One window on one device: the table of who is charged, row by row."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gputally.ledger.power import BY_SM_TIME, Weights
from gputally.ledger.window import IDLE, UNKNOWN, Share, Window, account_of, process_id
from gputally.model import UNKNOWN_REASONS, Owner, ProcessSample, Resident, Unknown
from tests.support.ledger_samples import GIB, pod, resident

A, B, C = pod("a"), pod("b"), pod("c")
ON_A, ON_B, ON_C = account_of(A), account_of(B), account_of(C)
Shares = list[tuple[tuple[str, ...], str, int]]


def look(
    window: Window, residents: Sequence[Resident] = (), holders: Sequence[Owner] = (), *, visible: bool = True
) -> None:
    window.observe(residents, {account_of(one): one for one in holders}, visible=visible)


def with_memory(one: Resident, ratio: float | None) -> Resident:
    """Memory was active for this part of its SM time."""
    samples = tuple(
        replace(sample, memory_ratio=None if ratio is None else ratio * sample.sm_ratio)
        for sample in one.samples or ()
    )
    return replace(one, samples=samples)


def short(shares: list[Share]) -> Shares:
    return sorted((share.account, share.basis, share.millijoules) for share in shares)


def charged(
    residents: Sequence[Resident] = (),
    holders: Sequence[Owner] = (),
    *,
    visible: bool = True,
    millijoules: int = 1000,
    floor: int = 0,
    weights: Weights = BY_SM_TIME,
) -> Shares:
    """After one look, which closes the window."""
    window = Window(by_process=False)
    look(window, residents, holders, visible=visible)
    return short(window.close(millijoules, floor, weights))


def test_a_single_owner_gets_everything_at_any_activity() -> None:
    assert charged([resident(1, A), resident(2, A, busy=3)]) == [(ON_A, "measured", 1000)]


def test_one_owner_that_ran_gets_the_work_and_all_who_hold_the_device_the_floor() -> None:
    there = [resident(1, A, busy=1)]
    assert charged(there, [B]) == [(ON_A, "measured", 1000)]
    assert charged(there, [B], floor=100) == [(ON_A, "held", 50), (ON_A, "measured", 900), (ON_B, "held", 50)]


def test_a_holder_is_not_another_owner_if_its_pod_is_there_in_an_unknown_container() -> None:
    assert charged([resident(1, pod("a", ""), busy=1)], [A], floor=100)[0][1:] == ("measured", 1000)


def test_several_owners_share_by_sm_time() -> None:
    there = [resident(1, A, busy=2), resident(2, A, busy=1, memory=0), resident(3, B, busy=2, memory=9 * GIB)]
    assert charged(there) == [(ON_A, "shared", 600), (ON_B, "shared", 400)]


def test_the_floor_goes_equally_to_all_and_the_rest_by_sm_time() -> None:
    there = [resident(1, A, busy=3), resident(2, B, busy=1, memory=9 * GIB), resident(3, Unknown("zombie"))]
    assert charged(there, [C], floor=400) == [
        (ON_A, "held", 100),
        (ON_A, "shared", 450),
        (ON_B, "held", 100),
        (ON_B, "shared", 150),
        (ON_C, "held", 100),
        (UNKNOWN, "held", 100),
        (UNKNOWN, "shared", 0),
    ]


def test_sm_time_with_memory_activity_has_its_own_weight() -> None:
    there = [with_memory(resident(1, A, busy=4), 0.0), with_memory(resident(2, B, busy=4), 1.0)]
    assert charged(there, weights=Weights(1000, 250)) == [(ON_A, "shared", 800), (ON_B, "shared", 200)]
    there[1] = with_memory(there[1], 0.5)
    assert charged(there, weights=Weights(600, 1000)) == [(ON_A, "shared", 429), (ON_B, "shared", 571)]


def test_memory_activity_never_counts_for_more_than_the_sm_time() -> None:
    there = [resident(1, A, busy=4), with_memory(resident(2, B, busy=2), 5.0)]
    assert charged(there, weights=Weights(1000, 1000)) == [(ON_A, "shared", 667), (ON_B, "shared", 333)]


def test_where_the_memory_activity_of_one_is_not_known_sm_time_alone_counts() -> None:
    there = [with_memory(resident(1, A, busy=4), 1.0), with_memory(resident(2, B, busy=4), None)]
    assert charged(there, weights=Weights(1000, 250)) == [(ON_A, "shared", 500), (ON_B, "shared", 500)]


def test_if_no_owner_ran_all_holders_get_equal_parts() -> None:
    there = [resident(1, A, memory=6 * GIB), resident(2, B, memory=None)]
    assert charged(there) == [(ON_A, "held", 500), (ON_B, "held", 500)]
    assert charged(there, [B, C]) == [(ON_A, "held", 334), (ON_B, "held", 333), (ON_C, "held", 333)]


def test_owners_without_process_samples_share_by_memory() -> None:
    there = [resident(1, A, busy=None, memory=6 * GIB), resident(2, B, busy=None, memory=2 * GIB)]
    assert charged(there) == [(ON_A, "shared", 750), (ON_B, "shared", 250)]


def test_where_the_driver_tells_neither_sm_time_nor_memory_they_get_it_equally() -> None:
    there = [resident(n, owner, busy=None, memory=None) for n, owner in enumerate((A, B, C))]
    assert charged(there) == [(ON_A, "shared", 334), (ON_B, "shared", 333), (ON_C, "shared", 333)]


def test_an_idle_owner_gets_nothing_beside_a_busy_one() -> None:
    assert charged([resident(1, A), resident(2, B, busy=1)]) == [(ON_A, "shared", 0), (ON_B, "shared", 1000)]


def test_without_residents_holders_share_equally() -> None:
    assert charged([], [A]) == [(ON_A, "held", 1000)]
    assert charged([], [A, B]) == [(ON_A, "held", 500), (ON_B, "held", 500)]


def test_with_invisible_processes_holders_share_equally() -> None:
    assert charged([], [A, B], visible=False) == [(ON_A, "held", 500), (ON_B, "held", 500)]


def test_with_processes_of_another_pid_namespace_holders_share_equally() -> None:
    strangers = [resident(n, Unknown("pid_namespace"), busy=n) for n in (1, 2, 3)]
    assert charged(strangers, [A, B]) == [(ON_A, "held", 500), (ON_B, "held", 500)]
    assert charged(strangers, [A]) == [(ON_A, "held", 1000)]


def test_processes_of_another_pid_namespace_without_a_holder_are_unknown() -> None:
    assert charged([resident(1, Unknown("pid_namespace"))]) == [(UNKNOWN, "", 1000)]


def test_without_residents_and_holders_energy_is_idle() -> None:
    assert charged() == [(IDLE, "", 1000)]


def test_without_visible_processes_and_holders_energy_is_unknown() -> None:
    assert charged(visible=False) == [(UNKNOWN, "", 1000)]


@pytest.mark.parametrize("reason", [one for one in UNKNOWN_REASONS if one != "pid_namespace"])
def test_an_unattributed_resident_is_unknown(reason: str) -> None:
    assert [share[::2] for share in charged([resident(1, Unknown(reason))])] == [(UNKNOWN, 1000)]


def test_unattributed_residents_of_several_kinds_are_one_account() -> None:
    there = [resident(1, Unknown("zombie"), busy=1), resident(2, Unknown("unknown_pod", "uid"), busy=1)]
    assert [share[::2] for share in charged(there)] == [(UNKNOWN, 1000)]


def test_an_unattributed_resident_gets_its_share() -> None:
    there = [resident(1, A, busy=3), resident(2, Unknown("unreadable"), busy=1)]
    assert charged(there) == [(ON_A, "shared", 750), (UNKNOWN, "shared", 250)]


@pytest.mark.parametrize("reason", UNKNOWN_REASONS)
def test_the_only_holder_is_charged_for_unsampled_processes_only(reason: str) -> None:
    not_seen = reason in ("exited", "pid_namespace")
    charges = charged([resident(1, Unknown(reason), busy=1)], [A])
    assert [account for account, _, _ in charges] == [ON_A if not_seen else UNKNOWN]


def test_unsampled_energy_is_held_beside_measured_energy() -> None:
    there = [resident(1, A, busy=3), resident(2, Unknown("exited"), busy=1)]
    assert charged(there, [A]) == [(ON_A, "held", 250), (ON_A, "measured", 750)]


def test_unsampled_energy_belongs_to_the_holder_beside_another_owner() -> None:
    there = [resident(1, B, busy=3), resident(2, Unknown("exited"), busy=1)]
    assert charged(there, [A]) == [(ON_A, "held", 250), (ON_B, "shared", 750)]


def test_with_two_holders_unsampled_energy_is_unknown() -> None:
    there = [resident(1, Unknown("exited"), busy=1)]
    assert [share[::2] for share in charged(there, [A, B])] == [(UNKNOWN, 1000)]


# From window to window.


def test_an_owner_that_leaves_is_charged_for_its_last_window() -> None:
    window = Window(by_process=False)
    look(window, [resident(1, A)])
    window.close(0)
    look(window)
    assert short(window.close(1000)) == [(ON_A, "measured", 1000)]
    look(window)
    assert short(window.close(1000)) == [(IDLE, "", 1000)]


def test_an_exited_process_is_charged_for_its_last_window_only() -> None:
    window = Window(by_process=True)
    look(window, [resident(1, A, busy=1, ended=True), resident(2, B, busy=3)])
    assert short(window.close(1000)) == [(ON_A, "shared", 250), (ON_B, "shared", 750)]
    look(window, [resident(2, B)])
    assert short(window.close(1000)) == [(ON_B, "measured", 1000)]


def test_an_owner_with_one_exited_and_one_running_process_stays() -> None:
    window = Window(by_process=True)
    look(window, [resident(1, A, busy=1, ended=True), resident(2, A)])
    window.close(0)
    look(window)
    [share] = window.close(1000)
    assert (share.account, share.processes) == (ON_A, {(2, 1.0): 1000})


def test_sm_time_of_one_window_does_not_count_in_the_next() -> None:
    window = Window(by_process=False)
    look(window, [resident(1, A, busy=9), resident(2, B, busy=1)])
    window.close(0)
    look(window, [resident(1, A, busy=1), resident(2, B, busy=1)])
    assert short(window.close(1000)) == [(ON_A, "shared", 500), (ON_B, "shared", 500)]


def test_sm_time_accumulates_in_an_open_window_even_for_owners_that_left() -> None:
    window = Window(by_process=False)
    look(window, [resident(1, A, busy=1), resident(2, B, busy=1)])
    look(window, [resident(2, B, busy=1)])
    look(window, [resident(2, B, busy=1), resident(3, C, busy=1)])
    assert short(window.close(1000)) == [(ON_A, "shared", 200), (ON_B, "shared", 600), (ON_C, "shared", 200)]


def test_the_last_memory_value_counts() -> None:
    window = Window(by_process=False)
    for memory in (7 * GIB, 3 * GIB):
        look(window, [resident(1, A, busy=None, memory=memory), resident(2, B, busy=None)])
    assert short(window.close(1000)) == [(ON_A, "shared", 750), (ON_B, "shared", 250)]


# Accounts, presence, processes.


def test_owners_are_distinguished_like_their_series() -> None:
    assert account_of(pod("a", pod_uid="1")) == account_of(pod("a", pod_uid="2", container_id="3"))
    assert account_of(pod("a")) != account_of(pod("a", "sidecar"))
    assert account_of(Owner("slurm", "slurm/42")) == account_of(Owner("slurm", "slurm/42", slurm_step="1"))
    assert account_of(Owner("slurm", "slurm/42")) != account_of(Owner("slurm", "slurm/43"))


def test_a_sample_has_the_residents_and_their_run_time() -> None:
    window = Window(by_process=False)
    there = window.observe(
        [
            resident(1, A, busy=1),
            resident(2, A, busy=0.25, ended=True),
            resident(3, B, busy=0.5, ended=True),
            resident(4, C, busy=None),
            resident(5, Unknown("zombie"), busy=1),
        ],
        {},
        visible=True,
    )
    assert {key: (one.busy_us, one.present) for key, one in there.items()} == {
        ON_A: (1_250_000, True),
        ON_B: (500_000, False),
        ON_C: (None, True),
        UNKNOWN: (1_000_000, True),
    }
    again = window.observe([resident(1, A, busy=1)], {}, visible=True)
    assert again[ON_A].busy_us == 1_000_000


def test_a_sample_that_covers_no_time_has_no_run_time() -> None:
    sample = ProcessSample(1, 0, 1.0, 0.0, 0.0, 0.0)
    one = resident(1, A)
    there = Window(by_process=False).observe(
        [Resident(0, one.uuid, one.process, A, (sample,))], {}, visible=True
    )
    assert there[ON_A].busy_us == 0


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("pids", [(1, 2), (2, 1), (1, 1)])
def test_of_two_containers_of_one_name_the_one_with_the_lowest_pid_is_exported(
    pids: tuple[int, int], turn: int
) -> None:
    one, other = pod("a", container_id="1"), pod("a", container_id="2")
    there = [resident(pids[0], one), resident(pids[1], other, started=2.0), resident(9, other)][::turn]
    shown = Window(by_process=False).observe(there, {}, visible=True)[ON_A].owner
    assert shown == (one if pids[0] < pids[1] else other)


@pytest.mark.parametrize("turn", [1, -1])
def test_of_two_containers_of_one_name_the_choice_is_independent_of_order(turn: int) -> None:
    old, new = pod("a", container_id="1", pod_uid="z"), pod("a", container_id="2", pod_uid="y")
    there = [resident(1, old), resident(2, new), resident(3, Unknown("exited"))][::turn]
    shown = Window(by_process=False).observe(there, {ON_A: A}, visible=True)[ON_A].owner
    assert shown == old


def test_each_process_gets_its_share_of_its_owner() -> None:
    window = Window(by_process=True)
    look(window, [resident(1, A, busy=3), resident(2, A, busy=1), resident(3, B, busy=6)])
    parts = {share.account: share.processes for share in window.close(1000)}
    assert parts == {ON_A: {(1, 1.0): 300, (2, 1.0): 100}, ON_B: {(3, 1.0): 600}}


def test_each_process_gets_an_equal_part_of_its_owners_floor() -> None:
    window = Window(by_process=True)
    look(window, [resident(1, A, busy=1), resident(2, A), resident(3, Unknown("exited"), busy=1)], [A])
    look(window, [resident(1, A, busy=1), resident(2, A), resident(4, B)], [A])
    shares = window.close(1000, 400)
    assert sum(share.millijoules for share in shares) == 1000
    held = [(share.account, share.not_seen, share.processes) for share in shares if share.basis == "held"]
    assert held == [
        (ON_A, False, {(1, 1.0): 50, (2, 1.0): 50}),
        (ON_A, True, {(3, 1.0): 100}),
        (ON_B, False, {(4, 1.0): 200}),
        (ON_A, True, {(3, 1.0): 200}),
    ]


def test_a_reused_pid_is_another_process() -> None:
    old, new = resident(7, A, busy=1, started=1.0), resident(7, B, busy=1, started=2.0)
    assert process_id(old) != process_id(new)
    window = Window(by_process=True)
    look(window, [old])
    look(window, [new])
    parts = {share.account: share.processes for share in window.close(1000)}
    assert parts == {ON_A: {(7, 1.0): 500}, ON_B: {(7, 2.0): 500}}
