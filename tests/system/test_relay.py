"""Another exporter is read, its series get pods, and they are served beside ours."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gputally.devices.simulated import simulated_reader
from tests.running import Exporter, parse_samples

SIMULATE = ("simulate", "--interval", "200ms", "--gpus", "2", "--seed", "7", "--began", "1760000000")


def uuids() -> list[str]:
    reader = simulated_reader(scenario=None, gpus=2, model=None, seed=7, began_at=1760000000.0)
    return [reading.gpu.uuid for reading in reader.read().readings]


def dcgm_text() -> bytes:
    lines = ["# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).", "# TYPE DCGM_FI_DEV_GPU_TEMP gauge"]
    lines += [
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="{index}",UUID="{uuid}",device="nvidia{index}"}} {40 + index}'
        for index, uuid in enumerate(uuids())
    ]
    return ("\n".join(lines) + "\n").encode()


class DcgmExporter(BaseHTTPRequestHandler):
    """Answers every path with the same text."""

    def do_GET(self) -> None:
        body = dcgm_text()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to say."""


@pytest.fixture
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), DcgmExporter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def relayed(exporter: Exporter, path: str) -> dict[tuple[str, ...], float]:
    status, body = exporter.get(path)
    assert status == 200
    return parse_samples(body.decode()).get("DCGM_FI_DEV_GPU_TEMP", {})


def test_an_exporter_is_served_with_pods(tmp_path: Path, upstream: str) -> None:
    with Exporter(tmp_path / "log", *SIMULATE, "--relay", upstream) as exporter:
        exporter.wait_until(lambda: relayed(exporter, "/gpu/metrics"), "the series are relayed")
        assert exporter.value("gputally_source_up", "relay") == 1
        assert sorted(relayed(exporter, "/gpu/metrics").values()) == [40, 41]
        pods = {pod for labels in exporter.samples()["gputally_pod_info"] for pod in labels[1:2]}
        assert any(pods & set(labels) for labels in relayed(exporter, "/gpu/metrics"))
        assert not relayed(exporter, "/metrics")


def test_with_relay_metrics_they_are_with_ours_too(tmp_path: Path, upstream: str) -> None:
    flags = ("--relay", upstream, "--relay-metrics")
    with Exporter(tmp_path / "log", *SIMULATE, *flags) as exporter:
        exporter.wait_until(lambda: relayed(exporter, "/metrics"), "the series are relayed")
        assert relayed(exporter, "/metrics") == relayed(exporter, "/gpu/metrics")
        assert len(exporter.samples()["gputally_gpu_up"]) == 2


def test_a_file_that_nobody_writes_any_more_is_reported_and_no_longer_served(tmp_path: Path) -> None:
    file = tmp_path / "dcgm.prom"
    file.write_bytes(dcgm_text())
    with Exporter(tmp_path / "log", *SIMULATE, "--relay", str(tmp_path / "*.prom")) as exporter:
        exporter.wait_until(lambda: relayed(exporter, "/gpu/metrics"), "the series are relayed")
        os.utime(file, (0, 0))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "relay") == 0, "it is down")
        exporter.wait_until(lambda: not relayed(exporter, "/gpu/metrics"), "it is not served any more")
        assert exporter.value("gputally_gpu_up", "0") == 1
