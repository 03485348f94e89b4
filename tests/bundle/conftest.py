"""Data for the dashboards, made once because that takes almost a minute."""

from collections.abc import Iterator

import pytest

from tests.bundle.lab.data import prometheus_with_data
from tools.servers.prometheus import Prometheus


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_with_data(tmp_path_factory.mktemp("lab")) as prometheus:
        yield prometheus
