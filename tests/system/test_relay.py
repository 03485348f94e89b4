"""Another exporter is read, its series get pods, and they are served beside ours."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gputally.metrics.exposition import OPENMETRICS, TEXT
from gputally.simulator import simulated_reader
from tests.support.exporter import Exporter, parse_samples
from tests.support.fake_servers import refusing_address
from tests.support.prometheus import prometheus_scraping

# The scenario begins with one pod on each GPU; later there are hours without.
BEGAN = int(time.time())
SIMULATE = ("simulate", "--interval", "200ms", "--gpus", "2", "--seed", "7", "--scenario-start", str(BEGAN))


def uuids() -> list[str]:
    reader = simulated_reader(scenario=None, gpus=2, model=None, seed=7, began_at=float(BEGAN))
    return [reading.gpu.uuid for reading in reader.read().readings]


def dcgm_text() -> bytes:
    lines = ["# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).", "# TYPE DCGM_FI_DEV_GPU_TEMP gauge"]
    lines += [
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="{index}",UUID="{uuid}",device="nvidia{index}"}} {40 + index}'
        for index, uuid in enumerate(uuids())
    ]
    return ("\n".join(lines) + "\n").encode()


@contextmanager
def dcgm_exporter(content_type: str = TEXT, end: bytes = b"") -> Iterator[str]:
    """Its URL; every path is answered with the same text."""
    body = dcgm_text() + end

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing to say."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def upstream() -> Iterator[str]:
    with dcgm_exporter() as url:
        yield url


def relayed(exporter: Exporter, path: str) -> dict[tuple[str, ...], float]:
    status, body = exporter.get(path)
    if status == 503 and path == "/gpu/metrics":
        return {}
    assert status == 200
    return parse_samples(body.decode()).get("DCGM_FI_DEV_GPU_TEMP", {})


def test_the_series_of_another_exporter_are_served_with_pods(tmp_path: Path, upstream: str) -> None:
    with Exporter(tmp_path / "log", *SIMULATE, "--relay", upstream) as exporter:
        exporter.wait_until(lambda: relayed(exporter, "/gpu/metrics"), "the series are relayed")
        assert exporter.value("gputally_source_up", "relay") == 1
        assert sorted(relayed(exporter, "/gpu/metrics").values()) == [40, 41]
        pods = {pod for labels in exporter.samples()["gputally_pod_info"] for pod in labels[1:2]}
        assert any(pods & set(labels) for labels in relayed(exporter, "/gpu/metrics"))
        assert not relayed(exporter, "/metrics")


def test_with_relay_metrics_they_are_appended_to_metrics(tmp_path: Path, upstream: str) -> None:
    flags = ("--relay", upstream, "--relay-metrics")
    with Exporter(tmp_path / "log", *SIMULATE, *flags) as exporter:
        exporter.wait_until(lambda: relayed(exporter, "/metrics"), "the series are relayed")
        assert relayed(exporter, "/metrics") == relayed(exporter, "/gpu/metrics")
        assert len(exporter.samples()["gputally_gpu_up"]) == 2


def test_a_stale_file_is_reported_and_not_served(tmp_path: Path) -> None:
    file = tmp_path / "dcgm.prom"
    file.write_bytes(dcgm_text())
    with Exporter(tmp_path / "log", *SIMULATE, "--relay", str(tmp_path / "*.prom")) as exporter:
        exporter.wait_until(lambda: relayed(exporter, "/gpu/metrics"), "the series are relayed")
        os.utime(file, (0, 0))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "relay") == 0, "it is down")
        exporter.wait_until(lambda: not relayed(exporter, "/gpu/metrics"), "it is not served any more")
        assert exporter.value("gputally_gpu_up", "0") == 1


def test_without_an_upstream_the_relay_page_fails_with_the_reason_and_metrics_is_unchanged(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        url = f"http://{stack.enter_context(refusing_address())}/metrics"
        exporter = stack.enter_context(
            Exporter(tmp_path / "log", *SIMULATE, "--relay", url, "--relay-metrics")
        )
        exporter.wait_until(lambda: "relay" in exporter.scrape(), "there is a sample")
        status, body = exporter.get("/gpu/metrics")
        assert (status, body.count(b"\n")) == (503, 1)
        assert url in body.decode()
        assert body.endswith(b"Connection refused\n")
        assert exporter.value("gputally_source_up", "relay") == 0
        assert exporter.value("gputally_gpu_up", "0") == 1


@pytest.mark.parametrize(
    ("protocol", "content_type", "end"),
    [("PrometheusText0.0.4", TEXT, b""), ("OpenMetricsText1.0.0", OPENMETRICS, b"# EOF\n")],
)
def test_prometheus_stores_relayed_series_with_pods_and_marks_their_end(
    tmp_path: Path, protocol: str, content_type: str, end: bytes
) -> None:
    with ExitStack() as stack:
        upstream = ExitStack()
        url = upstream.enter_context(dcgm_exporter(content_type, end))
        stack.push(upstream)
        exporter = stack.enter_context(Exporter(tmp_path / "log", *SIMULATE, "--relay", url))
        prometheus = stack.enter_context(prometheus_scraping(exporter, tmp_path, protocol, "/gpu/metrics"))
        assert len(prometheus.wait_for("DCGM_FI_DEV_GPU_TEMP")) == 2
        pods = {labels[:2] for labels in exporter.samples()["gputally_pod_info"]}
        for entry in prometheus.wait_for('DCGM_FI_DEV_GPU_TEMP{pod!="",container!=""}'):
            metric = entry["metric"]
            assert (metric["namespace"], metric["pod"]) in pods
            assert float(entry["value"][1]) == 40 + int(metric["gpu"])
        prometheus.wait_for('up{job="gputally"} == 1')
        upstream.close()
        prometheus.wait_for('up{job="gputally"} == 0')
        (target,) = prometheus.api("targets")["activeTargets"]
        assert "503" in target["lastError"]
