"""Streams over real sockets: every client gets the newest message, and none of them holds up a scrape."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gputally.server import Broadcast, Endpoint, Limits, Response, Server, text_response
from gputally.server.broadcast import HEARTBEAT, HEARTBEAT_SECONDS
from tests.support.http_client import PATIENT, Client, pass_time, request
from tools.servers.waiting import wait_until

FIRST = b"first\n"
LARGE = 8 * 1024 * 1024


class Page(Endpoint):
    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        return text_response(200, "metrics")


class Streaming(Endpoint):
    def __init__(self, most: int = 64) -> None:
        self.beats = 0
        self.clients: list[Client] = []
        self.broadcast = Broadcast(most, before_beat=self._count)

    def _count(self) -> None:
        self.beats += 1

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        if self.broadcast.full:
            return text_response(503, "full")
        return Response(200, "text/event-stream", FIRST, stream=self.broadcast)


@contextmanager
def streaming(
    stream: Streaming, limits: Limits = PATIENT, web_config: Path | None = None
) -> Iterator[Server]:
    server = Server(
        {"/stream": stream, "/metrics": Page()},
        Page(),
        listen="127.0.0.1:0",
        limits=limits,
        web_config=web_config,
    )
    server.open()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
        for client in stream.clients:
            client.socket.close()
        assert not thread.is_alive()


def read_until(client: Client, expected: bytes) -> bytes:
    """What arrives up to and with these bytes; empty reads would mean that the server has closed."""
    found = b""
    while not found.endswith(expected):
        piece = client.socket.recv(65536)
        assert piece, f"closed after {found[-200:]!r}"
        found += piece
    return found


def listen_to(server: Server, stream: Streaming, path: str = "/stream") -> Client:
    """A client that has its first message."""
    before = len(stream.broadcast)
    client = Client(server.port)
    stream.clients.append(client)
    client.say(request(path))
    head = read_until(client, FIRST)
    assert b"HTTP/1.1 200" in head
    wait_until(lambda: len(stream.broadcast) > before, "the client is a listener")
    return client


def test_a_stream_has_no_length_and_ends_with_the_connection() -> None:
    stream = Streaming()
    with streaming(stream) as server, Client(server.port) as client:
        client.say(request("/stream"))
        head = read_until(client, FIRST).partition(b"\r\n\r\n")[0]
    assert b"Connection: close" in head
    assert b"Content-Length" not in head
    assert b"Cache-Control: no-store" in head


def test_every_listener_gets_a_message() -> None:
    stream = Streaming()
    with streaming(stream) as server:
        clients = [listen_to(server, stream) for _ in range(20)]
        stream.broadcast.publish(b"second\n")
        assert [read_until(client, b"second\n") for client in clients] == [b"second\n"] * 20


def test_without_listeners_nothing_is_wanted() -> None:
    stream = Streaming()
    with streaming(stream) as server:
        assert not stream.broadcast.wanted
        stream.broadcast.publish(b"lost\n")
        client = listen_to(server, stream)
        assert stream.broadcast.wanted
        client.socket.close()
        wait_until(lambda: not stream.broadcast.wanted, "the client that has left is no listener")


def test_a_client_that_has_closed_its_side_is_no_listener() -> None:
    stream = Streaming()
    with streaming(stream) as server:
        client = listen_to(server, stream)
        client.socket.shutdown(socket.SHUT_WR)
        wait_until(lambda: not stream.broadcast.wanted, "the client that has closed its side is no listener")


def test_a_slow_client_gets_the_newest_message_and_none_in_between() -> None:
    stream = Streaming()
    with streaming(stream) as server:
        slow, fast = listen_to(server, stream), listen_to(server, stream)
        stream.broadcast.publish(b"a" * LARGE + b"\n")
        read_until(fast, b"a\n")
        for message in (b"second\n", b"third\n", b"newest\n"):
            stream.broadcast.publish(message)
            read_until(fast, message)
        seen = read_until(slow, b"newest\n")
    assert seen == b"a" * LARGE + b"\nnewest\n"


def test_a_client_that_reads_nothing_is_dropped() -> None:
    stream = Streaming()
    limits = Limits(stall_seconds=10)
    with streaming(stream, limits) as server:
        listen_to(server, stream)
        stream.broadcast.publish(b"a" * LARGE)
        wait_until(lambda: server._pool and server._pool._stalled, "its buffers are full")
        pass_time(server, 11)
        wait_until(lambda: not stream.broadcast.wanted, "it is dropped")


def test_more_clients_than_allowed_are_refused_and_find_room_later() -> None:
    stream = Streaming(most=2)
    with streaming(stream) as server:
        clients = [listen_to(server, stream) for _ in range(2)]
        with Client(server.port) as refused:
            assert refused.get("/stream").status == 503
            assert refused.get("/metrics").status == 200
        clients[0].socket.close()
        wait_until(lambda: not stream.broadcast.full, "there is room")
        listen_to(server, stream)


def test_heartbeats_keep_a_quiet_stream_alive_beyond_the_idle_time_out() -> None:
    stream = Streaming()
    with streaming(stream, Limits()) as server:
        client = listen_to(server, stream)
        for _ in range(20):
            pass_time(server, HEARTBEAT_SECONDS + 1)
            read_until(client, HEARTBEAT)
        assert stream.beats >= 20
        stream.broadcast.publish(b"message\n")
        read_until(client, b"message\n")


def test_a_stream_ends_after_its_time_so_that_the_client_has_to_log_in_again() -> None:
    stream = Streaming()
    with streaming(stream, Limits(stream_seconds=600)) as server:
        client = listen_to(server, stream)
        stream.broadcast.publish(b"message\n")
        read_until(client, b"message\n")
        pass_time(server, 601)
        read_until(client, HEARTBEAT)
        assert client.is_hung_up()


def test_when_all_connections_are_streams_a_scrape_still_finds_one() -> None:
    stream = Streaming()
    with streaming(stream, Limits(connections=4)) as server:
        clients = [listen_to(server, stream) for _ in range(4)]
        with Client(server.port) as scraper:
            assert scraper.get("/metrics").status == 200
        assert clients[0].is_hung_up()
        assert len(stream.broadcast) == 3


def test_a_head_request_opens_no_stream() -> None:
    stream = Streaming()
    with streaming(stream) as server, Client(server.port) as client:
        client.say(request("/stream", method="HEAD"))
        head = read_until(client, b"\r\n\r\n")
        assert b"200 OK" in head
        assert client.is_hung_up()
        assert not stream.broadcast.wanted


def test_a_server_that_stops_closes_its_streams() -> None:
    stream = Streaming()
    with streaming(stream) as server:
        client = listen_to(server, stream)
        server.stop()
        assert client.is_hung_up()


def test_requests_that_follow_on_a_stream_are_not_answered() -> None:
    stream = Streaming()
    with streaming(stream) as server:
        client = listen_to(server, stream)
        client.say(request("/metrics") * 3)
        stream.broadcast.publish(b"message\n")
        assert read_until(client, b"message\n") == b"message\n"
