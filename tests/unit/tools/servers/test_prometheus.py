"""The client of Prometheus's API."""

import pytest

from tools import Failed
from tools.servers.prometheus import Prometheus


@pytest.mark.parametrize("path", ["query", "targets"])
def test_a_prometheus_that_cannot_be_reached_is_named(path: str) -> None:
    with pytest.raises(Failed, match=r"http://127\.0\.0\.1:1/api/v1/"):
        Prometheus("http://127.0.0.1:1").api(path, query="up")
