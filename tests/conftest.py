"""Settings and fixtures of all tests."""

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

END_TO_END = "tests/e2e"

# The machine may be busy: the duration of an example says nothing about the code.
settings.register_profile("gputally", deadline=None)
settings.load_profile("gputally")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files, then compare")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


class OneCluster(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay in one worker. So do all end-to-end tests, which come first: they take longest."""

    def _split_scope(self, nodeid: str) -> str:
        return END_TO_END if nodeid.startswith(f"{END_TO_END}/") else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        if END_TO_END in self.workqueue:
            self.workqueue.move_to_end(END_TO_END, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneCluster | None:
    return OneCluster(config, log) if config.getvalue("dist") == "loadfile" else None
