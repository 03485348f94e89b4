"""Limits of one connection, over real sockets."""

import socket
from dataclasses import replace

import pytest

from gputally.server import Limits, Response
from gputally.server.connection import READ
from gputally.server.http1 import RequestParser
from tests.support.http_client import (
    HOUR,
    PATIENT,
    Client,
    StaticPages,
    pass_time,
    request,
    serving,
    wait_for_connections,
)
from tools.servers.waiting import wait_until


def let_the_server_read(port: int) -> None:
    """Returns when the server has read what was sent before: it takes clients in their order."""
    with Client(port) as another:
        assert another.get("/healthz").status == 200


def test_one_connection_serves_many_requests() -> None:
    with serving() as server, Client(server.port) as client:
        for _ in range(50):
            answer = client.get()
            assert (answer.status, answer.headers["Connection"]) == (200, "keep-alive")


def test_connection_close_is_honoured() -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(connection="close")
        assert (answer.body, answer.headers["Connection"]) == (b"text\n", "close")
        assert client.is_hung_up()


def test_http_1_0_is_closed_unless_keep_alive_is_requested() -> None:
    with serving() as server, Client(server.port) as client:
        kept = client.say(b"GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").hear()
        assert (kept.body, kept.headers["Connection"]) == (b"text\n", "keep-alive")
        closed = client.say(b"GET /metrics HTTP/1.0\r\n\r\n").hear()
        assert (closed.body, closed.headers["Connection"]) == (b"text\n", "close")
        assert client.is_hung_up()


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving(StaticPages(size=300_000)) as server, Client(server.port) as client:
        client.say(request("/metrics") + request("/healthz") + request("/nothing") + request("/metrics"))
        answers = [client.hear() for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 404, 200]
    assert [len(answer.body) for answer in answers[::3]] == [300_005, 300_005]


def test_endless_pipelining_gets_some_responses_and_a_close() -> None:
    with serving() as server, Client(server.port) as client:
        client.say(request() * 1000)
        answers = [client.hear() for _ in range(Limits().pipelined_requests)]
        assert [answer.headers["Connection"] for answer in answers[-2:]] == ["keep-alive", "close"]
        assert client.is_hung_up()


def test_a_client_that_half_closes_still_gets_all_responses(caplog: pytest.LogCaptureFixture) -> None:
    with serving(StaticPages(size=20_000_000)) as server, Client(server.port) as client:
        client.say(request() * 2)
        client.socket.shutdown(socket.SHUT_WR)
        let_the_server_read(server.port)  # more than the kernel can hold waits in the server
        assert [len(client.hear().body) for _ in range(2)] == [20_000_005, 20_000_005]
        assert client.is_hung_up()
    assert not caplog.records


def test_clients_that_reset_the_connection_during_a_response_leave_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(StaticPages(size=5_000_000)) as server:
        for _ in range(20):
            with Client(server.port) as client:
                client.say(request() * 10)
                client.reset_on_close()
        let_the_server_read(server.port)
        wait_for_connections(server, 0)
    assert not caplog.records


def test_a_large_response_reaches_a_slow_reader_completely() -> None:
    pages = StaticPages(size=8_000_000)
    with serving(pages) as server, Client(server.port) as client:
        client.say(request())
        let_the_server_read(server.port)
        assert client.hear().body == b"text\n" + b"#" * 8_000_000


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (b"\x16\x03\x01\0\xee\x01\0\0\xea\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100_000, 413),
    ],
)
def test_a_refused_client_gets_the_status_and_is_disconnected(bad: bytes, status: int) -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.say(bad).hear()
        assert (answer.status, answer.headers["Connection"]) == (status, "close")
        assert client.is_hung_up()


def test_a_client_that_is_still_sending_gets_the_status_of_its_refusal() -> None:
    with serving() as server, Client(server.port) as client:
        client.say(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n")
        for _ in range(3):
            let_the_server_read(server.port)
            client.say(b"x" * 50_000)
        assert client.hear().status == 413


def test_a_flood_of_bytes_is_parsed_in_pieces_between_which_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    feed = RequestParser.feed

    def recording(parser: RequestParser, data: bytes) -> None:
        sizes.append(len(data))
        feed(parser, data)

    monkeypatch.setattr(RequestParser, "feed", recording)
    with serving() as server, Client(server.port) as client:
        client.say(b"\r\n" * 500_000 + request())
        assert client.hear().status == 200
    assert sum(sizes) > 1_000_000
    assert max(sizes) <= READ


def test_requests_before_malformed_bytes_are_answered() -> None:
    with serving() as server, Client(server.port) as client:
        client.say(request("/healthz") + b"\0garbage\r\n\r\n")
        assert [client.hear().status for _ in range(2)] == [200, 400]


def test_a_refused_client_that_never_stops_sending_is_disconnected() -> None:
    with serving() as server, Client(server.port) as client:
        client.say(b"\0garbage\r\n\r\n")
        with pytest.raises(ConnectionError):
            client.say(b"x" * 100_000_000)


def test_a_client_that_sends_nothing_is_disconnected() -> None:
    with serving() as server, Client(server.port) as client:
        wait_for_connections(server, 1)
        pass_time(server, PATIENT.request_seconds + 1)
        assert client.is_hung_up()


def test_a_header_sent_byte_by_byte_does_not_extend_the_timeout() -> None:
    with serving() as server, Client(server.port) as client:
        client.say(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(2):
            let_the_server_read(server.port)
            pass_time(server, 0.4 * HOUR)
            client.say(b"x")
        let_the_server_read(server.port)
        pass_time(server, 0.3 * HOUR)
        assert client.is_hung_up()


def test_the_next_request_of_a_connection_has_its_own_timeout() -> None:
    with serving() as server, Client(server.port) as client:
        assert client.get().status == 200
        pass_time(server, 3 * HOUR)
        assert client.get().status == 200  # idle longer than a request may take: no matter
        client.say(b"GET /metr")
        let_the_server_read(server.port)
        pass_time(server, HOUR + 1)
        assert client.is_hung_up()


def test_an_idle_connection_is_closed_after_the_timeout() -> None:
    with serving() as server, Client(server.port) as client:
        assert client.get().status == 200
        pass_time(server, 0.8 * PATIENT.idle_seconds)
        assert client.get().status == 200
        pass_time(server, 0.8 * PATIENT.idle_seconds)
        assert client.get().status == 200
        pass_time(server, PATIENT.idle_seconds + 1)
        assert client.is_hung_up()


def test_a_client_that_does_not_read_is_disconnected_and_others_are_served() -> None:
    limits = replace(PATIENT, idle_seconds=1e9)
    with (
        serving(StaticPages(size=50_000_000), limits=limits) as server,
        Client(server.port) as deaf,
        Client(server.port) as other,
    ):
        deaf.say(request())

        def is_cut_off() -> bool:
            assert other.get("/healthz").status == 200
            pass_time(server, HOUR + 1)  # again, as long as the kernel's buffers took some more
            assert server._pool is not None
            return len(server._pool) == 1

        wait_until(is_cut_off)
        assert other.get("/healthz").status == 200
        with pytest.raises(ConnectionError):
            deaf.hear()


def test_a_full_pool_evicts_the_longest_waiting_connection() -> None:
    limits = replace(PATIENT, connections=4)
    with serving(limits=limits) as server:
        silent = [Client(server.port) for _ in range(20)]
        try:
            with Client(server.port) as client:
                assert client.get().status == 200
            assert silent[0].is_hung_up()
        finally:
            for one in silent:
                one.socket.close()


class FaultyPages(StaticPages):
    def landing(self) -> Response:
        raise RuntimeError("a bug in a page")


def test_a_failing_page_closes_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    with serving(FaultyPages()) as server:
        with Client(server.port) as client:
            client.say(request("/"))
            assert client.is_hung_up()
        with Client(server.port) as client:
            assert client.get("/healthz").status == 200
    assert "a bug in a page" in caplog.text
