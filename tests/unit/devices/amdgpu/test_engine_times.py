"""Engine time between two looks: never negative, never more than there was, never twice."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.fdinfo import Client, EngineTimes, Held, Task

CARD = "0000:c1:00.0"
KEY = (CARD, 1)
OLD, NEW = Task(7, 100, "python3"), Task(7, 200, "python3")
PARENT, CHILD = Task(8, 100, "train"), Task(9, 150, "train")


def held(gfx: int, *holders: Task, fresh: bool = False, capacity: int = 1) -> Held:
    client = Client(CARD, 1, engine_ns={"gfx": gfx}, capacity={"gfx": capacity})
    return Held(client, holders[0], frozenset(holders), None, fresh)


def gfx(times: EngineTimes, one: Held, elapsed_ns: int | None = 1000) -> int | None:
    ran = times.advance([one], {task.pid for task in one.holders}, elapsed_ns)[KEY]
    return None if ran is None else ran["gfx"]


def test_the_first_sample_has_no_time() -> None:
    assert gfx(EngineTimes(), held(500, OLD, fresh=True), None) is None


def test_time_is_the_difference_of_two_samples() -> None:
    times = EngineTimes()
    assert [gfx(times, held(ns, OLD)) for ns in (500, 700, 700)] == [None, 200, 0]


def test_a_client_opened_since_then_counts_from_its_start() -> None:
    assert gfx(EngineTimes(), held(500, OLD, fresh=True)) == 500


def test_a_client_with_more_time_than_has_passed_was_inherited() -> None:
    times = EngineTimes()
    assert gfx(times, held(5000, OLD, fresh=True)) is None
    assert gfx(times, held(5100, OLD, fresh=True)) == 100


def test_a_counter_that_decreases_counts_again_when_it_has_caught_up() -> None:
    times = EngineTimes()
    assert [gfx(times, held(ns, OLD)) for ns in (500, 400, 450, 600)] == [None, 0, 0, 100]
    renamed = replace(OLD, name="pt_main_thread")
    assert [gfx(times, held(ns, renamed, fresh=True)) for ns in (550, 650)] == [0, 50]


def test_time_is_limited_to_the_time_that_has_passed() -> None:
    times = EngineTimes()
    gfx(times, held(0, OLD))
    assert gfx(times, held(5000, OLD)) == 1000
    assert gfx(times, held(9000, OLD, capacity=2)) == 2000


def test_a_client_inherited_from_a_parent_continues_its_count() -> None:
    times = EngineTimes()
    gfx(times, held(5000, PARENT))
    assert gfx(times, held(5300, CHILD, fresh=True)) == 300


def test_a_reused_id_of_another_process_starts_a_new_count() -> None:
    times = EngineTimes()
    gfx(times, held(5000, OLD))
    assert gfx(times, held(30, NEW, fresh=True)) == 30
    assert gfx(times, held(50, NEW)) == 20


def test_a_client_that_is_unreadable_once_is_kept_while_its_process_runs() -> None:
    times = EngineTimes()
    gfx(times, held(5000, OLD))
    times.advance([], {OLD.pid}, 1000)
    assert gfx(times, held(5200, OLD, fresh=True)) == 200
    times.advance([], set(), 1000)
    assert gfx(times, held(400, OLD, fresh=True)) == 400


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), max_size=30))
def test_any_counter_history_gives_plausible_times(steps: list[tuple[int, int]]) -> None:
    times = EngineTimes()
    gfx(times, held(0, OLD), None)
    told = 0
    for counter, elapsed_ns in steps:
        ran = gfx(times, held(counter, OLD), elapsed_ns)
        assert ran is not None
        assert 0 <= ran <= elapsed_ns
        told += ran
    assert told <= max((counter for counter, _ in steps), default=0)
