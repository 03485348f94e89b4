"""One GET, and all that can come back."""

import gzip
import os
import socket
import ssl
import subprocess
import sys
import threading

import pytest
import trustme

from gputally.model import Unavailable
from gputally.relay.fetch import TargetError, Url, fetch, parse_url
from tests.unit.relay.dcgm_texts import NEW
from tests.unit.relay.raw_server import Script, answers, raw_server

MIB = 2**20


def body_of(url: Url, *, timeout_seconds: float = 60.0) -> bytes:
    with fetch(url, timeout_seconds=timeout_seconds, max_bytes=MIB) as answer:
        return b"".join(answer.pieces)


def fetched(script: Script, *, timeout_seconds: float = 60.0) -> bytes:
    with raw_server(script) as server:
        return body_of(parse_url(server.url), timeout_seconds=timeout_seconds)


def refusal(script: Script, *, timeout_seconds: float = 60.0) -> Unavailable:
    with pytest.raises(Unavailable) as refused:
        fetched(script, timeout_seconds=timeout_seconds)
    return refused.value


def test_a_fetch_sends_one_request_for_text_and_closes() -> None:
    with (
        raw_server(answers(NEW, "Content-Type: text/plain; version=0.0.4")) as server,
        fetch(parse_url(server.url), timeout_seconds=60, max_bytes=MIB) as answer,
    ):
        assert answer.content_type == "text/plain; version=0.0.4"
        assert b"".join(answer.pieces) == NEW.encode()
    (request,) = server.requests
    lines = request.decode().split("\r\n")
    assert lines[:2] == ["GET /metrics HTTP/1.1", f"Host: {server.address}"]
    assert {"Accept-Encoding: gzip", "Connection: close"} < set(lines)


def test_a_chunked_body() -> None:
    body = "".join(f"{len(line):x}\r\n{line}\r\n" for line in NEW.splitlines(keepends=True)) + "0\r\n\r\n"
    assert fetched(answers(body, "Transfer-Encoding: chunked", length=False)) == NEW.encode()


def test_a_body_that_ends_with_the_connection() -> None:
    assert fetched(answers(NEW, length=False)) == NEW.encode()


def test_a_compressed_body() -> None:
    assert fetched(answers(gzip.compress(NEW.encode()), "Content-Encoding: gzip")) == NEW.encode()


def test_an_empty_body() -> None:
    assert fetched(answers("")) == b""


def test_a_slow_body_that_ends_is_read() -> None:
    head, body = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", b"up 1\ndown 0\n"

    def drip(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head + body:
            connection.sendall(bytes([byte]))

    assert fetched(drip) == body


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_endless_slow_body_ends_at_the_deadline(head: bytes) -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        while not over.wait(0.02):
            connection.sendall(b"x")

    with raw_server(drip) as server:
        with pytest.raises(Unavailable, match=r"within 0\.3 s"):
            body_of(parse_url(server.url), timeout_seconds=0.3)
        over.set()


def test_a_body_larger_than_any_text_that_is_used_is_refused() -> None:
    refused = refusal(answers(b"x" * (50 * MIB), length=False))
    assert "sends more than 2.1 MiB" in refused.reason


def test_who_stops_reading_a_decompression_bomb_gets_only_what_was_read() -> None:
    bomb = gzip.compress(bytes(200 * MIB))
    with (
        raw_server(answers(bomb, "Content-Encoding: gzip")) as server,
        fetch(parse_url(server.url), timeout_seconds=60, max_bytes=MIB) as answer,
    ):
        assert all(len(next(answer.pieces)) <= 65536 for _ in range(20))


def test_compressed_data_without_content_has_an_end() -> None:
    """Empty deflate blocks decompress to nothing."""
    empty_blocks = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * (10 * MIB)
    assert "sends more than" in refusal(answers(empty_blocks, "Content-Encoding: gzip")).reason


def test_endless_trailers() -> None:
    flood = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"".join(
        b"x-%d: y\r\n" % number for number in range(500_000)
    )
    assert "sends more than" in refusal(lambda connection: connection.sendall(flood)).reason


def test_an_endless_header() -> None:
    flood = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(100_000))
    assert "64 KiB" in refusal(lambda connection: connection.sendall(flood)).reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (answers("", status="500 Internal Server Error"), "500"),
        (answers("", status="401 Unauthorized"), "401"),
        (answers("", status="204 No Content"), "204"),
        (answers("", "Location: http://elsewhere/", status="301 Moved Permanently"), "redirect"),
        (answers(b"junk", "Content-Encoding: gzip"), "decompressed"),
        (answers(gzip.compress(b"up 1\n") * 2, "Content-Encoding: gzip"), "more after its end"),
        (answers(gzip.compress(NEW.encode())[:-9], "Content-Encoding: gzip"), "incomplete"),
        (answers(b"?", "Content-Encoding: br"), "'br'"),
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "HTTP"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nup 1\n"),
            "incomplete",
        ),
        (
            lambda connection: connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nup"
            ),
            "incomplete",
        ),
        (lambda _: None, "incomplete"),
    ],
)
def test_malformed_responses(script: Script, reason: str) -> None:
    assert reason in refusal(script).reason


def test_a_redirect_is_reported_with_its_target() -> None:
    script = answers("", "Location: http://elsewhere/metrics", status="302 Found")
    assert "http://elsewhere/metrics" in refusal(script).fix


def test_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = parse_url(f"http://127.0.0.1:{listening.getsockname()[1]}")
    with pytest.raises(Unavailable, match="Connection refused"):
        body_of(url)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert fetched(answers("up 1\n")) == b"up 1\n"


def test_https_with_an_untrusted_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n")
            except OSError:
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        url = parse_url(f"https://127.0.0.1:{listening.getsockname()[1]}/metrics")
        with pytest.raises(Unavailable, match="certificate"):
            body_of(url)
        with authority.cert_pem.tempfile() as known:
            monkeypatch.setenv("SSL_CERT_FILE", known)
            assert body_of(url) == b"up 1\n"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("http://localhost:9400/metrics", "localhost", 9400, "/metrics"),
        ("http://localhost:9400", "localhost", 9400, "/metrics"),
        ("http://localhost/", "localhost", 80, "/"),
        ("https://[::1]/gpu/metrics?a=b", "::1", 443, "/gpu/metrics?a=b"),
    ],
)
def test_urls(text: str, host: str, port: int, target: str) -> None:
    url = parse_url(text)
    assert (url.host, url.port, url.target, url.secure) == (host, port, target, text.startswith("https"))


@pytest.mark.parametrize(
    "text",
    [
        "ftp://localhost/metrics",
        "http://",
        "http:///metrics",
        "http://localhost:port/",
        "http://localhost:99999/",
        "http://[::1/metrics",
        "http://user:secret@localhost/",
        "http://localhost/a b",
        "http://localhost/a\r\nX: y",
        "http://größe/",
    ],
)
def test_invalid_urls(text: str) -> None:
    with pytest.raises(TargetError) as refused:
        parse_url(text)
    assert "secret" not in str(refused.value)


def test_plain_http_does_not_load_ssl() -> None:
    program = "import sys, gputally.relay; sys.exit('ssl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=os.environ, check=False).returncode == 0
