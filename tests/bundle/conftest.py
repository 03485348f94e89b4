"""What several modules share: the data for dashboards, which take most of a minute."""

import shutil
from collections.abc import Iterator

import pytest

from tests.bundle.lab.data import write_data
from tools.dependencies.locking import locked
from tools.servers.prometheus import Prometheus, serving


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
