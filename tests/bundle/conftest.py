"""What several modules share: the data for dashboards, which take most of a minute, and the chart's stack."""

from collections.abc import Iterator

import pytest

from tests.bundle.lab.data import prometheus_with_data
from tests.bundle.running_stack import Stack, running_stack
from tools.servers.prometheus import Prometheus


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_with_data(tmp_path_factory.mktemp("lab")) as prometheus:
        yield prometheus


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running
