"""How the tests are dealt out to workers: all that need the cluster to one of them, and first."""

from types import SimpleNamespace

import pytest

from tests.conftest import OneCluster

UNIT = [f"tests/unit/test_{name}.py::test_{case}" for name in "abc" for case in range(5)]
END_TO_END = [f"tests/e2e/test_{name}.py::test_it" for name in ("cluster", "operator", "pages", "workloads")]


class Worker:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="worker")
        self.given: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.given += [[*UNIT, *END_TO_END][place] for place in places]

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def workers() -> tuple[OneCluster, Worker, Worker]:
    options = {"tx": ["popen", "popen"], "px": []}
    config = SimpleNamespace(getvalue=options.get, option=SimpleNamespace(loadscopereorder=True))
    scheduler = OneCluster(config)
    made = Worker(), Worker()
    for worker in made:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, [*UNIT, *END_TO_END])
    scheduler.schedule()
    return scheduler, *made


def test_one_worker_begins_with_all_end_to_end_tests(workers: tuple[OneCluster, Worker, Worker]) -> None:
    _, first, second = workers

    assert first.given == END_TO_END
    assert not set(second.given) & set(END_TO_END)


def test_it_goes_on_with_others_when_they_are_done(workers: tuple[OneCluster, Worker, Worker]) -> None:
    scheduler, first, second = workers
    left = [test for test in UNIT if test not in second.given]

    for test in END_TO_END:
        scheduler.mark_test_complete(first, len(UNIT) + END_TO_END.index(test))

    assert left
    assert set(first.given[len(END_TO_END) :]) <= set(left)
    assert len(first.given) > len(END_TO_END)


def test_when_it_dies_the_other_worker_takes_over(workers: tuple[OneCluster, Worker, Worker]) -> None:
    scheduler, first, second = workers

    crashed = scheduler.remove_node(first)
    for test in second.given.copy():
        scheduler.mark_test_complete(second, UNIT.index(test))

    assert crashed == END_TO_END[0]
    assert second.given[-len(END_TO_END) :] == END_TO_END
