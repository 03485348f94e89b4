"""Another exporter, as its authors publish it, on the stand-in: there it sees what a driver would show."""

import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.exporter import parse_samples
from tests.support.worlds import play, world
from tools.dependencies import programs
from tools.servers.waiting import wait_until
from tools.standin.scenario import environment


@contextmanager
def nvitop_exporter(scenario: Path, log: Path) -> Iterator[str]:
    """The address of its metrics, once it answers with those of a GPU."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}/metrics"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                programs.path("nvitop-exporter"),
                "--hostname",
                "node",
                "--port",
                str(port),
                "--interval",
                "0.25",
            ],
            env={**os.environ, **environment(scenario)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def answers() -> bool:
        assert process.poll() is None, f"it ended:\n{log.read_text()}"
        try:
            return "gpu_power_usage_W{" in page(address)
        except urllib.error.URLError:
            return False

    try:
        wait_until(answers, seconds=60)
        yield address
    finally:
        process.kill()
        process.wait()


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as response:
        text: str = response.read().decode()
        return text


def power_by_uuid(address: str) -> dict[str, float]:
    samples = parse_samples(page(address))["gpu_power_usage_W"]
    return {uuid: watts for (_name, _host, _index, uuid), watts in samples.items()}


def test_nvitop_exporter_reports_every_gpu_of_the_scenario_with_its_power(tmp_path: Path) -> None:
    gpus = world("h100", 3)
    expected = {reading.gpu.uuid: reading.power_watts for reading in gpus}
    assert len(set(expected.values())) > 1
    with nvitop_exporter(play(tmp_path / "world", gpus), tmp_path / "log") as address:
        wait_until(lambda: len(power_by_uuid(address)) == len(gpus))
        assert power_by_uuid(address) == pytest.approx(expected, abs=0.001)
