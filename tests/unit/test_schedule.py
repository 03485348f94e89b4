"""The order of files: end-to-end tests in one worker, and the slowest files first."""

from types import SimpleNamespace

import pytest

from tests.support.schedule import LongestFirst, slow_files
from tools import ROOT

UNIT = [f"tests/unit/test_{name}.py::test_{case}" for name in "abc" for case in range(5)]
CLUSTER = [f"tests/e2e/test_{name}.py::test_it" for name in ("cluster", "operator", "pages", "workloads")]
OPTION = SimpleNamespace(loadscopereorder=True)


class Worker:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="worker")
        self.given: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.given += [[*UNIT, *CLUSTER][place] for place in places]

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def workers() -> tuple[LongestFirst, Worker, Worker]:
    options = {"tx": ["popen", "popen"], "px": []}
    config = SimpleNamespace(getvalue=options.get, option=OPTION)
    scheduler = LongestFirst(config)
    made = Worker(), Worker()
    for worker in made:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, [*UNIT, *CLUSTER])
    scheduler.schedule()
    return scheduler, *made


def test_one_worker_begins_with_all_end_to_end_tests(workers: tuple[LongestFirst, Worker, Worker]) -> None:
    _, first, second = workers

    assert first.given == CLUSTER
    assert not set(second.given) & set(CLUSTER)


def test_the_worker_continues_with_other_tests_afterwards(
    workers: tuple[LongestFirst, Worker, Worker],
) -> None:
    scheduler, first, second = workers
    left = [test for test in UNIT if test not in second.given]

    for test in CLUSTER:
        scheduler.mark_test_complete(first, len(UNIT) + CLUSTER.index(test))

    assert left
    assert set(first.given[len(CLUSTER) :]) <= set(left)
    assert len(first.given) > len(CLUSTER)


def test_another_worker_takes_over_after_a_crash(workers: tuple[LongestFirst, Worker, Worker]) -> None:
    scheduler, first, second = workers

    crashed = scheduler.remove_node(first)
    for test in second.given.copy():
        scheduler.mark_test_complete(second, UNIT.index(test))

    assert crashed == CLUSTER[0]
    assert second.given[-len(CLUSTER) :] == CLUSTER


def test_the_slowest_file_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"tests/unit/test_b.py": 9.0, "tests/unit/test_c.py": 20.0}
    monkeypatch.setattr("tests.support.schedule.slow_files", lambda: seconds)
    scheduler = LongestFirst(SimpleNamespace(getvalue={"tx": ["popen"], "px": []}.get, option=OPTION))
    worker = Worker()
    scheduler.add_node(worker)
    scheduler.add_node_collection(worker, UNIT)
    scheduler.schedule()
    for done in range(len(UNIT)):
        scheduler.mark_test_complete(worker, UNIT.index(worker.given[done]))
    files = list(dict.fromkeys(test.partition("::")[0] for test in worker.given))
    assert files == ["tests/unit/test_c.py", "tests/unit/test_b.py", "tests/unit/test_a.py"]


def test_slow_files_exist() -> None:
    assert [file for file in slow_files() if not (ROOT / file).exists()] == []
