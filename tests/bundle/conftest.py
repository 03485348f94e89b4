"""What several modules share: the data for dashboards, which take most of a minute, and the chart's stack."""

from collections.abc import Iterator

import pytest

from tests.bundle.lab.data import prometheus_with_data
from tests.bundle.running_stack import Stack, running_stack
from tools.servers.prometheus import Prometheus

_SLOW_FIXTURES = {"lab", "plane", "replay", "stack"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The time limit of a test includes its fixtures; these start servers or write days of data."""
    for item in items:
        slow = _SLOW_FIXTURES & {*getattr(item, "fixturenames", ())}
        if slow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_with_data(tmp_path_factory.mktemp("lab")) as prometheus:
        yield prometheus


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running
