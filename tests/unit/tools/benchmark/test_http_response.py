"""The scrapers of tools/bench, against servers that answer in every allowed way."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.benchmark import scrape
from tools.benchmark.http_response import BadResponse, ResponseReader, join_chunks, parse_head, skip_chunks
from tools.benchmark.scrape import Scraper, scrape_rate, scrape_series

OK = b"HTTP/1.1 200 OK\r\n"


def chunked(pieces: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def test_a_head_with_a_length_keeps_the_connection() -> None:
    head = parse_head(OK + b"Content-Type: text/plain\r\ncontent-LENGTH: 12\r\nContent-Encoding: gzip")
    assert (head.status, head.length, head.chunked, head.closes, head.gzipped) == (
        200,
        12,
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("raw", "closes"),
    [
        (OK + b"Content-Length: 1\r\nConnection: close", True),
        (OK + b"Content-Length: 1\r\nConnection: keep-alive", False),
        (OK + b"Transfer-Encoding: chunked", False),
        (OK + b"Server: x", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive", False),
    ],
)
def test_the_closing_side_is_known(raw: bytes, closes: bool) -> None:
    assert parse_head(raw).closes is closes


def test_chunks_take_precedence_over_a_length() -> None:
    head = parse_head(OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked")
    assert head.chunked
    assert head.length is None


@pytest.mark.parametrize("raw", [b"SSH-2.0-OpenSSH", b"HTTP/2 200", b"HTTP/1.1 abc", b""])
def test_malformed_http_is_refused(raw: bytes) -> None:
    with pytest.raises(BadResponse):
        parse_head(raw)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.binary(max_size=10))
def test_chunks_are_joined_to_the_content(pieces: list[bytes], after: bytes) -> None:
    raw = chunked(pieces)
    buffer = bytearray(raw + after)
    assert skip_chunks(buffer, 0, len(buffer)) == (len(raw), True)
    assert join_chunks(raw) == b"".join(pieces)


def test_extensions_and_trailers_of_chunks_are_skipped() -> None:
    raw = b"3;a=b\r\nabc\r\n0\r\nX-Checksum: 1\r\n\r\n"
    assert skip_chunks(bytearray(raw), 0, len(raw)) == (len(raw), True)
    assert join_chunks(raw) == b"abc"


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=5),
    st.sampled_from(["length", "chunked", "close"]),
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
)
def test_a_response_is_complete_with_its_last_byte(pieces: list[bytes], way: str, cuts: list[int]) -> None:
    body = b"".join(pieces)
    raw = {
        "length": OK + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        "chunked": OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(pieces),
        "close": OK + b"\r\n" + body,
    }[way]
    reader = ResponseReader()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        position = 0
        for cut in cuts * len(raw):
            piece = raw[position : position + cut]
            if not piece:
                break
            theirs.sendall(piece)
            position += len(piece)
            assert reader.receive(ours) is (position >= len(raw) and way != "close")
        if way == "close":
            theirs.shutdown(socket.SHUT_WR)
            assert reader.receive(ours)
    assert reader.body() == body


def test_a_response_larger_than_the_buffer_is_read_completely() -> None:
    body = b"x" * 3_000_000
    with serving(lambda _: OK + b"Content-Length: %d\r\n\r\n" % len(body) + body) as port:
        scraper = Scraper(port)
        assert scraper.scrape().status == 200
        assert scraper.body() == body
        scraper.close()


def test_an_interrupted_response_is_an_error() -> None:
    with serving(lambda _: OK + b"Content-Length: 100\r\n\r\nhalf", keep=False) as port:
        scraper = Scraper(port)
        with pytest.raises(BadResponse, match="closed after"):
            scraper.scrape()
        scraper.close()


@contextmanager
def serving(answer: Callable[[bytes], bytes], *, keep: bool = True) -> Iterator[int]:
    """A server that gives this answer to every request, and closes after it unless it is to keep."""

    def attend(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # clients stop in the middle of an answer
            while request := connection.recv(65536):
                connection.sendall(answer(request))
                if not keep:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            thread = threading.Thread(target=attend, args=(connection,), daemon=True)
            thread.start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_a_kept_connection_is_reused() -> None:
    asked: list[bytes] = []

    def answer(request: bytes) -> bytes:
        asked.append(request)
        return OK + b"Content-Length: 3\r\n\r\na 1"

    with serving(answer) as port:
        scraper = Scraper(port)
        series = scrape_series(scraper, least=50, least_seconds=0)
        scraper.close()
    assert len(asked) == len(series.seconds) == 50
    assert list(series.seconds) == sorted(series.seconds)
    assert not series.closes
    assert asked[0].startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"gzip" not in asked[0]


@pytest.mark.parametrize("says_so", [True, False])
def test_a_server_that_closes_gets_a_new_connection(says_so: bool) -> None:
    close = b"Connection: close\r\n" if says_so else b""
    with serving(lambda _: OK + close + b"Content-Length: 3\r\n\r\na 1", keep=False) as port:
        scraper = Scraper(port)
        series = scrape_series(scraper, least=20, least_seconds=0)
        scraper.close()
    assert len(series.seconds) == 20
    assert series.closes is says_so


def test_prometheus_requests_gzip_and_gets_the_content() -> None:
    packed = gzip.compress(b"a 1\n")
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)

    def answer(request: bytes) -> bytes:
        assert b"Accept-Encoding: gzip" in request
        return head + packed

    with serving(answer) as port:
        scraper = Scraper(port, like_prometheus=True)
        assert scraper.scrape().gzipped
        assert scraper.body() == b"a 1\n"
        scraper.close()


def test_an_error_status_is_no_scrape() -> None:
    with serving(lambda _: b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n") as port:
        scraper = Scraper(port)
        with pytest.raises(BadResponse, match="status 503"):
            scrape_series(scraper, least=1, least_seconds=0)
        scraper.close()


@pytest.mark.parametrize("keep", [True, False])
def test_many_clients_are_counted_together(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[int] = []
    clock = SimpleNamespace(perf_counter=lambda: len(answered) / 100)  # a hundredth of a second each
    monkeypatch.setattr(scrape, "time", clock)

    def answer(_: bytes) -> bytes:
        answered.append(1)
        close = b"" if keep else b"Connection: close\r\n"
        return OK + close + b"Content-Length: 3\r\n\r\na 1"

    with serving(answer, keep=keep) as port:
        rate = scrape_rate(port, clients=4, seconds=0.3)
    counted = round(rate * 0.3)
    assert 30 - 2 * 4 <= counted <= len(answered), "some of the last have not been read yet"
