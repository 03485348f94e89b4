"""Tasks that hang keep a thread each; all others run."""

import threading
from collections.abc import Callable

import pytest

from gputally.devices.nvml.runner import Runner
from tools.servers.waiting import wait_until

NAME = "test-runner"
LONG = 60.0
SHORT = 0.1


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def test_tasks_run_in_order_on_one_thread_that_stays() -> None:
    runner, ran = Runner(NAME), []

    def task(number: int) -> Callable[[], None]:
        return lambda: ran.append((number, threading.get_ident()))

    for _ in range(2):
        runner.run([task(number) for number in range(4)], LONG)
    assert [number for number, _ in ran] == [0, 1, 2, 3] * 2
    assert len({ident for _, ident in ran}) == 1
    runner.close()
    wait_until(lambda: threads() == 0)


def test_tasks_that_hang_stop_no_other_and_have_a_thread_each(gate: threading.Event) -> None:
    runner, ran = Runner(NAME), threading.Semaphore(0)

    def hang() -> None:
        gate.wait()

    runner.run([hang, ran.release, hang, ran.release, ran.release], SHORT)
    for _ in range(3):
        assert ran.acquire(timeout=LONG)
    for _ in range(5):
        runner.run([ran.release], LONG)
        assert ran.acquire(blocking=False), "it was waited for"
    wait_until(lambda: threads() == 3)
    gate.set()
    wait_until(lambda: threads() == 1)
    runner.run([ran.release], LONG)
    assert ran.acquire(blocking=False)
    runner.close()
    wait_until(lambda: threads() == 0)


def test_all_tasks_may_hang_and_all_are_started(gate: threading.Event) -> None:
    runner, started = Runner(NAME), threading.Semaphore(0)

    def hang() -> None:
        started.release()
        gate.wait()

    runner.run([hang] * 8, SHORT)
    runner.run([started.release], SHORT)
    wait_until(lambda: threads() <= 9)
    gate.set()
    for _ in range(9):
        assert started.acquire(timeout=LONG)
    runner.close()
    wait_until(lambda: threads() == 0)


def test_nothing_to_do_needs_no_thread() -> None:
    Runner(NAME).run([], LONG)
    assert threads() == 0
