"""A real Prometheus scrapes the real exporter, in either format."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.exporter import Exporter
from tools.dependencies.programs import path as program


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    def api(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def wait_for(self, query: str) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                result: list[dict[str, Any]] = self.api("query", query=query)["result"]
            except (urllib.error.URLError, ConnectionError):
                result = []
            if result:
                return result
            time.sleep(0.2)
        raise AssertionError(f"no answer to {query}: {self.api('targets')}")


@contextmanager
def prometheus_on(folder: Path) -> Iterator[Prometheus]:
    """With the configuration in the folder."""
    port = free_port()
    command = [
        str(program("prometheus")),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        running = Prometheus(port)
        running.wait_for("vector(1)")
        yield running
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def prometheus(folder: Path, address: str, **settings: Any) -> Iterator[Prometheus]:
    """It scrapes this address with these settings, whether or not somebody serves there."""
    target = {"job_name": "gputally", **settings, "static_configs": [{"targets": [address]}]}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [target]}))  # JSON is YAML
    with prometheus_on(folder) as running:
        yield running


def prometheus_scraping(
    exporter: Exporter, folder: Path, protocol: str, path: str = "/metrics"
) -> AbstractContextManager[Prometheus]:
    return prometheus(
        folder,
        exporter.address,
        scrape_interval="1s",
        metrics_path=path,
        scrape_protocols=[protocol],
        honor_labels=True,
    )


@pytest.mark.parametrize("protocol", ["PrometheusText0.0.4", "OpenMetricsText1.0.0"])
def test_prometheus_stores_every_series_that_is_served(protocol: str, tmp_path: Path) -> None:
    with (
        Exporter(tmp_path / "log", "simulate", "--gpus", "8", "--process-metrics") as exporter,
        prometheus_scraping(exporter, tmp_path, protocol) as prometheus,
    ):
        prometheus.wait_for('gputally_gpu_up{job="gputally"}')
        served = exporter.samples()
        for name, values in served.items():
            stored = prometheus.wait_for(f'count({{__name__="{name}",job="gputally"}})')
            assert int(stored[0]["value"][1]) >= len(values), name
        (target,) = prometheus.api("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        metadata = prometheus.api("metadata")
        assert metadata["gputally_gpu_power_watts"][0]["type"] == "gauge"
        counter = metadata.get("gputally_gpu_energy_joules_total") or metadata["gputally_gpu_energy_joules"]
        assert counter[0]["type"] == "counter"
