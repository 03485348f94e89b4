"""`--once --push-gateway`, against a server that keeps what it gets."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gputally.cli import main


class Gateway(HTTPServer):
    """Keeps the method, path and body of each request; answers as a Pushgateway, or with `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.requests: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.command, self.path, body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing to log."""


@contextmanager
def gateway(status: int = 200) -> Iterator[Gateway]:
    with Gateway(status) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def push(url: str) -> int:
    return main(["simulate", "--once", "--gpus", "1", "--hostname-override", "node-1", "--push-gateway", url])


def test_the_sample_replaces_the_series_of_this_host() -> None:
    with gateway() as server:
        assert push(server.url) == 0
    [(method, path, body)] = server.requests
    assert (method, path) == ("POST", "/metrics/job/gputally/instance/node-1")
    names = {family.name for family in text_string_to_metric_families(body)}
    assert {"gputally_gpu_power_watts", "gputally_gpu_energy_joules", "gputally_exporter"} & names


def test_a_refused_sample_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with gateway(status=400) as server:
        assert push(server.url) == 1


def test_no_gateway_is_an_error() -> None:
    with gateway() as server:
        gone = server.url
    assert push(gone) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--push-gateway", "http://gateway:9091"],
        ["simulate", "--once", "--push-gateway", "gateway:9091"],
        ["simulate", "--once", "--push-gateway", "http://user:password@gateway:9091"],
        ["simulate", "--once", "--push-gateway", "http://gateway:9091", "--metrics-file", "/tmp/x.prom"],
    ],
)
def test_contradictions_name_the_flag(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "--push-gateway" in capsys.readouterr().err
