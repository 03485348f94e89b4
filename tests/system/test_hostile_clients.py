"""A thousand slow or malformed clients at once, while a scraper scrapes."""

import json
import select
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
import trustme

from tests.support.exporter import Exporter
from tests.support.http_client import Client
from tools import ROOT

CLIENTS = 1000
KINDS = 14
SCRAPES = 80


@dataclass
class HostileClients:
    """A thousand of every kind, who come back when they are thrown out; counted when they are gone."""

    said: IO[bytes]
    visits: Counter[str] = field(default_factory=Counter)

    def have_come_back(self) -> bool:
        """Whether there have been twice as many visits as there are clients."""
        ready, _, _ = select.select([self.said], [], [], 0)
        return bool(ready) and self.said.readline() == b"reconnected\n"


@contextmanager
def hostile_clients(port: int) -> Iterator[HostileClients]:
    program = ROOT / "tools/soaking/hostile_clients.py"
    with subprocess.Popen(
        [sys.executable, str(program), str(port), str(CLIENTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # what has been said is in the pipe or read, and not in between
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"connected\n"
            clients = HostileClients(process.stdout)
            yield clients
            process.stdin.close()
            clients.visits.update(json.loads(process.stdout.readline()))
        finally:
            process.kill()


class KeepAliveScraper:
    """Scrapes as Prometheus does: on a kept connection, and once more on a new one when that was closed."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self._port = port
        self._tls = tls
        self._client: Client | None = None

    def scrape(self) -> bytes:
        if self._client is not None:
            try:
                return self._get(self._client)
            except ConnectionError:
                self.close()
        self._client = Client(self._port, tls=self._tls)
        return self._get(self._client)

    def close(self) -> None:
        if self._client is not None:
            self._client.socket.close()
            self._client = None

    @staticmethod
    def _get(client: Client) -> bytes:
        answer = client.get()
        assert answer.status == 200
        return answer.body


def scrape_with_a_new_connection(port: int, tls: ssl.SSLContext | None) -> bytes:
    with Client(port, tls=tls) as client:
        answer = client.get(connection="close")
        assert answer.status == 200
        return answer.body


@pytest.mark.parametrize("protocol", ["http", "https"])
def test_a_thousand_hostile_clients_do_not_delay_a_scrape(tmp_path: Path, protocol: str) -> None:
    arguments, tls = ["simulate", "--gpus", "16", "--interval", "1s"], None
    if protocol == "https":
        arguments, tls = [*arguments, "--web-config", str(_web_config(tmp_path))], _client_context(tmp_path)
    with Exporter(tmp_path / "log", *arguments) as exporter:
        port = int(exporter.address.rpartition(":")[2])
        exporter.wait_until(
            lambda: b"gputally_gpu_power_watts" in scrape_with_a_new_connection(port, tls), "the first sample"
        )
        kept = KeepAliveScraper(port, tls)
        scrapes = 0

        def scrape_both_ways() -> None:
            nonlocal scrapes
            for scrape in (kept.scrape, lambda: scrape_with_a_new_connection(port, tls)):
                assert b"gputally_gpu_power_watts" in scrape()
                scrapes += 1

        with hostile_clients(port) as clients:
            while not clients.have_come_back():
                scrape_both_ways()
            while scrapes < 2 * SCRAPES:
                scrape_both_ways()
            memory_kib = _memory_kib(exporter.process.pid)
        kept.close()
        assert len(clients.visits) == KINDS
        assert memory_kib < 100 * 1024
        exporter.stop()
        assert "Traceback" not in exporter.log.read_text()


def _web_config(directory: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.crt")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(directory / "server.key")
    certificate.cert_chain_pems[0].write_to_path(directory / "server.crt")
    path = directory / "web.yml"
    path.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}")
    return path


def _client_context(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(directory / "ca.crt"))


def _memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
