"""Logins, over HTTP and in the parser."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server import basic_auth
from gputally.server.basic_auth import parse_basic
from tests.support.http_client import Client, serving
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


def test_password_guessing_uses_one_core_at_most_and_does_not_delay_known_users(
    web_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, worst, release = 0, 0, threading.Event()
    real = bcrypt.checkpw

    def slow(password: bytes, hashed_password: bytes) -> bool:
        nonlocal at_once, worst
        at_once += 1
        worst = max(worst, at_once)
        release.wait(100)
        at_once -= 1
        return real(password, hashed_password)

    with serving(web_config=web_config) as server, Client(server.port) as known:
        assert known.get(authorization=basic("alice", "wonderland")).status == 200
        monkeypatch.setattr(bcrypt, "checkpw", slow)

        def guess(number: int) -> int:
            with Client(server.port) as client:
                return client.get(authorization=basic("alice", f"guess {number}")).status

        with ThreadPoolExecutor(40) as attackers:
            guesses = [attackers.submit(guess, number) for number in range(40)]
            wait_until(lambda: sum(guess.done() for guess in guesses) == 40 - basic_auth.QUEUE)
            # The queue is full and the one thread is busy: a known login still passes at once.
            assert known.get(authorization=basic("alice", "wonderland")).status == 200
            release.set()
            statuses = [guess.result() for guess in guesses]
    assert statuses.count(503) == 40 - basic_auth.QUEUE
    assert statuses.count(401) == basic_auth.QUEUE
    assert worst == 1


def test_an_unknown_user_takes_a_verification_as_well(
    web_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[bytes] = []
    real = bcrypt.checkpw

    def counting(password: bytes, hashed_password: bytes) -> bool:
        verified.append(hashed_password)
        return real(password, hashed_password)

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    with serving(web_config=web_config) as server, Client(server.port) as client:
        assert client.get(authorization=basic("mallory", "x" * 72)).status == 401
    assert len(verified) == 1


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
