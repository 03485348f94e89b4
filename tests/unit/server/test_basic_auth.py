"""Logins, over HTTP and in the parser."""

import base64
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server import Server, basic_auth
from gputally.server.basic_auth import parse_basic
from tests.support.http_client import PATIENT, Client, request, serving, wait_for_connections
from tests.unit.server.passwords import basic, hashed
from tools.servers.waiting import wait_until


@pytest.fixture
def web_config(tmp_path: Path) -> Path:
    path = tmp_path / "web.yml"
    path.write_text(
        f"""
        basic_auth_users:
          alice: {hashed("wonderland")}
          bob: {hashed("ünïcode pass:word").replace("$2b$", "$2y$")}
          long: {hashed("x" * 72)}
        http_server_config: {{headers: {{X-Frame-Options: deny, X-Content-Type-Options: nosniff}}}}
        """
    )
    return path


def test_only_the_right_password_is_accepted(web_config: Path) -> None:
    with serving(web_config=web_config) as server, Client(server.port) as client:
        for _ in range(2):  # the second time from memory
            assert client.get(authorization=basic("alice", "wonderland")).body == b"text\n"
            assert client.get(authorization=basic("bob", "ünïcode pass:word")).status == 200
            assert client.get(authorization=basic("long", "x" * 90)).status == 200
            assert client.get(authorization=basic("alice", "looking-glass")).status == 401
            assert client.get(authorization=basic("bob", "wonderland")).status == 401
            assert client.get(authorization=basic("mallory", "wonderland")).status == 401
            assert client.get(authorization=basic("alice", "wonder\0land")).status == 401
            assert client.get(authorization="Bearer wonderland").status == 401
        refused = client.get("/")
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert refused.headers["X-Frame-Options"] == "deny"


def test_probes_need_no_password(web_config: Path) -> None:
    with serving(web_config=web_config) as server, Client(server.port) as client:
        health = client.get("/healthz")
        assert health.status == 200
        assert health.headers["X-Frame-Options"] == "deny"
        assert client.get("/readyz").status == 200
        assert client.get("/anything").status == 401


def test_a_configured_header_replaces_the_default(web_config: Path) -> None:
    with serving(web_config=web_config) as server, Client(server.port) as client:
        client.say(
            b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: "
            + basic("alice", "wonderland").encode()
            + b"\r\n\r\n"
        )
        raw = client.socket.recv(65536)
    assert raw.startswith(b"HTTP/1.1 200")
    assert raw.count(b"X-Content-Type-Options") == 1


def test_responses_that_wait_for_bcrypt_keep_their_order(web_config: Path) -> None:
    login = f"Authorization: {basic('alice', 'wonderland')}\r\n".encode()
    with serving(web_config=web_config) as server, Client(server.port) as client:
        client.say(
            b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + login + b"\r\n"
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert [client.hear().body[:4] for _ in range(3)] == [b"text", b"ok\n", b"a us"]


@pytest.mark.usefixtures("changes_are_seen_at_once")
def test_an_added_user_is_accepted_and_a_removed_one_refused_without_a_restart(web_config: Path) -> None:
    def status(user: str) -> int:
        return client.get(authorization=basic(user, "wonderland")).status

    with serving(web_config=web_config) as server, Client(server.port) as client:
        assert (status("alice"), status("carol")) == (200, 401)
        web_config.write_text(f"basic_auth_users: {{carol: {hashed('wonderland')}}}")
        assert (status("alice"), status("carol")) == (401, 200)


@pytest.mark.usefixtures("changes_are_seen_at_once")
def test_passwords_stay_in_effect_while_the_file_is_rewritten(
    web_config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(web_config=web_config) as server, Client(server.port) as client:
        web_config.write_text("")
        assert client.get().status == 401
    assert "stays in force" in caplog.text


def test_a_hash_that_bcrypt_refuses_locks_only_its_user_out(
    web_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputally.server.web_config.BCRYPT", re.compile(r"\$2b\$(\d\d)\$.{53}"))
    web_config.write_text(f"basic_auth_users: {{alice: {hashed('wonderland')}, bob: $2b$04${'z' * 53}}}")
    with serving(web_config=web_config) as server, Client(server.port) as client:
        assert client.get(authorization=basic("bob", "wonderland")).status == 401
        assert client.get(authorization=basic("alice", "wonderland")).status == 200


@dataclass
class Bcrypt:
    """The real one; it waits where `released` is not set, and records what it was asked."""

    released: threading.Event
    passwords: list[bytes] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    def work(self) -> int:
        """Of the checks so far: each cost is twice the work of the one before."""
        return sum(1 << cost for cost in self.costs)


@pytest.fixture
def watched_bcrypt(monkeypatch: pytest.MonkeyPatch) -> Bcrypt:
    watched, real = Bcrypt(threading.Event()), bcrypt.checkpw
    watched.released.set()

    def checkpw(password: bytes, hashed_password: bytes) -> bool:
        watched.at_once += 1
        watched.most_at_once = max(watched.most_at_once, watched.at_once)
        watched.passwords.append(password)
        watched.costs.append(int(hashed_password[4:6]))
        watched.released.wait(100)
        watched.at_once -= 1
        return real(password, hashed_password)

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    return watched


@contextmanager
def guessing(server: Server, addresses: Iterable[str]) -> Iterator[list[Future[int]]]:
    """One client of each address, each with a wrong password of its own; their statuses."""

    def guess(number: int, address: str) -> int:
        with Client(server.port, source=address) as client:
            return client.get(authorization=basic("alice", f"guess {number}")).status

    sources = list(addresses)
    with ThreadPoolExecutor(len(sources)) as attackers:
        yield [attackers.submit(guess, number, address) for number, address in enumerate(sources)]


def waiting_logins(server: Server) -> int:
    """Logins that are in the queue, besides the one that is verified."""
    assert server._security is not None
    return len(server._security._logins._queue)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9"], ids=["their address", "another address"])
def test_clients_with_wrong_passwords_from_one_address_do_not_lock_a_user_out(
    web_config: Path, watched_bcrypt: Bcrypt, address: str
) -> None:
    watched_bcrypt.released.clear()
    with serving(web_config=web_config) as server, guessing(server, ["127.0.0.1"] * 40) as guesses:
        wait_until(lambda: waiting_logins(server) == 39, "40 guesses wait")
        with Client(server.port, source=address) as client:
            client.say(request(authorization=basic("alice", "wonderland")))
            wait_until(lambda: waiting_logins(server) == 40, "the user waits")
            watched_bcrypt.released.set()
            assert client.hear().status == 200
        assert [guess.result() for guess in guesses] == [401] * 40
    ahead = watched_bcrypt.passwords.index(b"wonderland")
    # The one that is verified, and one of that address: or, from its own address, all that came before.
    assert ahead <= (2 if address == "127.0.0.9" else 40)
    assert watched_bcrypt.most_at_once == 1


def test_clients_with_wrong_passwords_from_many_addresses_delay_a_user_by_one_guess(
    web_config: Path, watched_bcrypt: Bcrypt
) -> None:
    addresses = [f"127.0.1.{number}" for number in range(1, 41)]
    with serving(web_config=web_config) as server:
        with guessing(server, addresses) as first:
            assert [guess.result() for guess in first] == [401] * 40
        assert server._security is not None
        server._security._logins._refused.clear()  # as if each guess were another one
        watched_bcrypt.passwords.clear()
        watched_bcrypt.released.clear()
        with guessing(server, addresses) as again:
            wait_until(lambda: waiting_logins(server) == 39, "40 guesses wait")
            with Client(server.port, source="127.0.0.9") as client:
                client.say(request(authorization=basic("alice", "wonderland")))
                wait_until(lambda: waiting_logins(server) == 40, "the user waits")
                watched_bcrypt.released.set()
                assert client.hear().status == 200
            assert [guess.result() for guess in again] == [401] * 40
    assert watched_bcrypt.passwords.index(b"wonderland") == 1


def test_more_logins_than_may_wait_displace_those_of_the_flood(
    web_config: Path, watched_bcrypt: Bcrypt
) -> None:
    limits = replace(PATIENT, connections=16)
    watched_bcrypt.released.clear()
    with (
        serving(web_config=web_config, limits=limits) as server,
        guessing(server, ["127.0.0.1"] * 12) as guesses,
        Client(server.port, source="127.0.0.9") as client,
    ):
        wait_until(lambda: waiting_logins(server) == limits.waiting_logins, "the queue is full")
        client.say(request(authorization=basic("alice", "wonderland")))
        # 12 guesses: one is verified, 8 wait, 3 are refused; the user displaces one more.
        wait_until(lambda: sum(guess.done() for guess in guesses) == 4)
        watched_bcrypt.released.set()
        assert client.hear().status == 200
        assert Counter(guess.result() for guess in guesses) == {401: 8, 503: 4}


def test_a_user_that_is_logged_in_does_not_wait_and_no_flood_changes_that(
    web_config: Path, watched_bcrypt: Bcrypt
) -> None:
    with serving(web_config=web_config) as server, Client(server.port) as known:
        assert known.get(authorization=basic("alice", "wonderland")).status == 200
        with Client(server.port) as other:
            for number in range(2 * basic_auth.CACHED):
                # Right ones, each spelled differently behind the 72nd byte, and wrong ones.
                assert other.get(authorization=basic("long", "x" * 72 + str(number))).status == 200
                assert other.get(authorization=basic("mallory", str(number))).status == 401
        assert watched_bcrypt.passwords.count(b"x" * 72) == 1
        watched_bcrypt.released.clear()
        with guessing(server, ["127.0.0.1"] * 5):
            wait_until(lambda: waiting_logins(server) == 4)
            assert known.get(authorization=basic("alice", "wonderland")).status == 200
            watched_bcrypt.released.set()


def test_the_logins_of_clients_that_hang_up_are_not_verified(
    web_config: Path, watched_bcrypt: Bcrypt
) -> None:
    watched_bcrypt.released.clear()
    with serving(web_config=web_config) as server, Client(server.port) as first:
        first.say(request(authorization=basic("alice", "first")))
        wait_until(lambda: watched_bcrypt.at_once, "the first is verified")
        for number in range(20):
            with Client(server.port) as client:
                client.say(request(authorization=basic("alice", f"gone {number}")))
                wait_until(lambda number=number: waiting_logins(server) == number + 1)  # type: ignore[misc]
                client.reset_on_close()
        wait_for_connections(server, 1)
        watched_bcrypt.released.set()
        assert first.hear().status == 401
        with Client(server.port) as client:
            assert client.get(authorization=basic("alice", "wonderland")).status == 200
    assert [password for password in watched_bcrypt.passwords if b"gone" in password] == []


@pytest.mark.parametrize("user", ["cheap", "costly", "mallory"])
def test_a_wrong_login_takes_the_work_of_the_costliest_hash_for_any_user(
    tmp_path: Path, watched_bcrypt: Bcrypt, user: str
) -> None:
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {{cheap: {hashed('a', 4)}, costly: {hashed('b', 9)}}}")
    with serving(web_config=path) as server, Client(server.port) as client:
        assert client.get(authorization=basic(user, "wrong")).status == 401
        assert watched_bcrypt.work() == 1 << 9


@pytest.mark.parametrize(
    ("header", "login"),
    [
        (basic("alice", "a:b"), ("alice", b"a:b")),
        ("basic " + base64.b64encode(b":").decode(), ("", b"")),
        ("Basic", None),
        ("", None),
        ("Basic !!!", None),
        ("Basic " + base64.b64encode(b"no colon").decode(), None),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), None),
        ("Digest username=x", None),
        ("Basic ü", None),
    ],
)
def test_logins_are_parsed(header: str, login: tuple[str, bytes] | None) -> None:
    assert parse_basic(header) == login


@given(st.text(max_size=100))
def test_any_header_is_parsed_without_an_exception(text: str) -> None:
    parse_basic(text)
    parse_basic(f"Basic {text}")
