"""What several modules share: the data for dashboards, which take most of a minute."""

import shutil
from collections.abc import Iterator

import pytest

from tests.bundle.lab.data import write_data
from tools.dependencies.locking import locked
from tools.servers.prometheus import Prometheus, serving

_SLOW_FIXTURES = {"lab", "plane", "replay", "stack"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The time limit of a test includes its fixtures; these start servers or write days of data."""
    for item in items:
        slow = _SLOW_FIXTURES & {*getattr(item, "fixturenames", ())}
        if slow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Prometheus]:
    """A Prometheus for each worker; the first one to need the data makes them for all."""
    own = tmp_path_factory.getbasetemp()
    made = (own if worker_id == "master" else own.parent) / "lab-data"
    with locked(made.with_name("lab-data.lock"), "the data for dashboards"):
        if not made.exists():
            unfinished = tmp_path_factory.mktemp("lab-data-unfinished")
            write_data(unfinished)
            unfinished.rename(made)
    data = tmp_path_factory.mktemp("lab") / "data"
    shutil.copytree(made / "data", data)
    with serving(data) as prometheus:
        yield prometheus
