"""Attacks on the HTTP server of a running exporter, by clients without a login."""

import os
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme

from tests.support.authority import MALFORMED_NAMES, Authority
from tests.support.exporter import Exporter
from tests.support.http_client import Client, request
from tests.support.http_verdicts import VERDICTS
from tests.unit.server.passwords import basic, hashed

USERS = ("prometheus", "thanos", "alice", "bob")
ATTACKERS = 40
COST = 8


@contextmanager
def exporter(directory: Path, web_config: str = "") -> Iterator[tuple[Exporter, int]]:
    """A simulated GPU behind this configuration. Afterwards its log has no traceback."""
    path = directory / "web.yml"
    path.write_text(web_config)
    with Exporter(directory / "log", "simulate", "--gpus", "1", "--web-config", str(path)) as running:
        yield running, int(running.address.rpartition(":")[2])
        running.stop()
        assert "Traceback" not in running.log.read_text()


def logins() -> str:
    lines = [f"  {user}: {hashed(f'password of {user}', COST)}" for user in USERS]
    return "\n".join(["basic_auth_users:", *lines])


@dataclass
class Guessing:
    """Clients that guess passwords, each from its address, until they are stopped."""

    port: int
    addresses: list[str]
    statuses: Counter[int] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _all_at_work: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self._all_at_work = threading.Barrier(len(self.addresses) + 1)

    def __enter__(self) -> "Guessing":
        self._threads = [threading.Thread(target=self._guess, args=(one,)) for one in self.addresses]
        for thread in self._threads:
            thread.start()
        self._all_at_work.wait(100)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guess(self, address: str) -> None:
        with Client(self.port, source=address) as client:
            client.say(request(authorization=basic(USERS[0], os.urandom(8).hex())))
            self._all_at_work.wait(100)
            self.statuses[client.hear().status] += 1
            while not self._stop.is_set():
                guess = basic(USERS[0], os.urandom(8).hex())
                self.statuses[client.get(authorization=guess).status] += 1


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"] * ATTACKERS, [f"127.0.1.{number + 1}" for number in range(ATTACKERS)]],
    ids=["one address", "many addresses"],
)
def test_clients_that_guess_passwords_do_not_lock_users_out(tmp_path: Path, addresses: list[str]) -> None:
    with exporter(tmp_path, logins()) as (_, port):
        with Guessing(port, addresses) as guessing:
            for user, source in zip(USERS, ["127.0.0.1", "127.0.0.2"] * 2, strict=True):
                with Client(port, source=source) as client:
                    assert client.get(authorization=basic(user, f"password of {user}")).status == 200
        assert set(guessing.statuses) == {401}


def test_malformed_requests_get_their_refusal_and_log_no_problem(tmp_path: Path) -> None:
    with exporter(tmp_path, logins()) as (running, port):
        at_start = running.log.read_text()
        for name, (data, refusal) in VERDICTS.items():
            with Client(port) as client:
                # A valid one has no login.
                assert client.say(data).hear().status == (refusal or 401), name
        since = running.log.read_text().removeprefix(at_start)
        assert not [line for line in since.splitlines() if " INFO " not in line]


@contextmanager
def mutual_tls(directory: Path, settings: str) -> Iterator[tuple[Exporter, int, Authority]]:
    authority = Authority(trustme.CA(), directory)
    authority.ca.cert_pem.write_to_path(directory / "ca.crt")
    authority.issue()
    files = "cert_file: server.crt, key_file: server.key, client_ca_file: ca.crt"
    with exporter(directory, f"tls_server_config: {{{files}, {settings}}}") as (running, port):
        yield running, port, authority


def is_served(port: int, authority: Authority, certificate: str | None) -> bool:
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    if certificate is not None:
        context.load_cert_chain(
            authority.folder / f"{certificate}.crt", authority.folder / f"{certificate}.key"
        )
    try:
        with Client(port, tls=context) as client:
            return client.get("/healthz").status == 200
    except (ssl.SSLError, ConnectionError):
        return False


def open_connections(port: int) -> list[str]:
    """Those that the exporter has not closed: established, or closed by the client only."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        peer for _, own, peer, state, *_ in lines if own.endswith(f":{port:04X}") and state in ("01", "08")
    ]


def test_certificates_with_malformed_names_leak_no_connection(tmp_path: Path) -> None:
    settings = "client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [prometheus.example]"
    with mutual_tls(tmp_path, settings) as (running, port, authority):
        authority.issue("prometheus.example", to="prometheus")
        assert is_served(port, authority, "prometheus")

        for names in MALFORMED_NAMES.values():
            authority.issue_malformed(names, to="malformed")
            for _ in range(5):
                assert not is_served(port, authority, "malformed")
        running.wait_until(lambda: not open_connections(port), "all connections are closed")
        assert is_served(port, authority, "prometheus")


@pytest.mark.parametrize("names", ["[]", "[prometheus.example]"])
def test_clients_without_an_allowed_name_are_not_served(tmp_path: Path, names: str) -> None:
    settings = f"client_auth_type: VerifyClientCertIfGiven, client_allowed_sans: {names}"
    with mutual_tls(tmp_path, settings) as (_, port, authority):
        authority.issue("stranger.example", to="stranger")
        authority.issue("prometheus.example", to="prometheus")
        assert not is_served(port, authority, None)
        assert not is_served(port, authority, "stranger")
        assert is_served(port, authority, "prometheus") is (names != "[]")
