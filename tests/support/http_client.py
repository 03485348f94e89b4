"""A server on a free port, and a client that says exactly the bytes it is told to."""

import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gputally.server import Endpoint, Limits, Response, Server, text_response
from tools.servers.waiting import wait_until

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
NOSNIFF = (("X-Content-Type-Options", "nosniff"),)
HOUR = 3600.0
PATIENT = Limits(
    idle_seconds=24 * HOUR,
    request_seconds=HOUR,
    response_seconds=HOUR,
    stall_seconds=HOUR,
    linger_seconds=HOUR,
    handshake_seconds=HOUR,
)
"""On a busy machine no client is too slow for it: what shall time out is made to by `pass_time`."""


@dataclass
class StaticPages:
    """Responses that show which variant was requested."""

    size: int = 0
    is_ready: tuple[bool, str] = (True, "ready")
    asked: list[tuple[str, bool, bool]] = field(default_factory=list)

    def metrics(self, path: str, openmetrics: bool, gzip: bool) -> Response:
        self.asked.append((path, openmetrics, gzip))
        body = (b"openmetrics\n" if openmetrics else b"text\n") + b"#" * self.size
        kind = OPENMETRICS if openmetrics else TEXT
        if not gzip:
            return Response(200, kind, body, NOSNIFF)
        return Response(200, kind, zlib.compress(body, wbits=31), (*NOSNIFF, ("Content-Encoding", "gzip")))

    def landing(self) -> Response:
        return Response(200, "text/html; charset=utf-8", b"<h1>landing</h1>", NOSNIFF)

    def ready(self) -> Response:
        ready, reason = self.is_ready
        return text_response(200 if ready else 503, reason)

    def server(self, *metrics_paths: str, **arguments: Any) -> Server:
        """A server of these pages that is not open yet."""
        endpoints: dict[str, Endpoint] = {"/": _Calling(lambda *_: self.landing())}
        for path in metrics_paths or ("/metrics",):
            endpoints[path] = _Calling(partial(self.metrics, path))
        return Server(endpoints, _Calling(lambda *_: self.ready()), **arguments)


class _Calling(Endpoint):
    def __init__(self, make: Callable[[bool, bool], Response]) -> None:
        self._make = make

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        return self._make(openmetrics, gzip)


@contextmanager
def serving(
    pages: StaticPages | None = None,
    *,
    listen: str = "127.0.0.1:0",
    metrics_paths: tuple[str, ...] = ("/metrics",),
    web_config: Path | None = None,
    limits: Limits = PATIENT,
) -> Iterator[Server]:
    """A running server; fails when it does not stop in time."""
    server = (pages or StaticPages()).server(
        *metrics_paths, listen=listen, web_config=web_config, limits=limits
    )
    server.open()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
        assert not thread.is_alive(), "the server does not stop"


def pass_time(server: Server, seconds: float) -> None:
    """Move the clock of the server's event loop forward. Returns when it has acted on what is due then."""
    loop = wait_until(lambda: server._loop, "the server runs")
    acted = threading.Event()
    before = loop.time

    def move() -> None:
        loop.time = lambda: before() + seconds  # type: ignore[method-assign]
        loop.call_at(loop.time(), acted.set)

    loop.call_soon_threadsafe(move)
    assert acted.wait(60), "the server's event loop stands still"


def wait_for_connections(server: Server, number: int) -> None:
    """Wait until the server has accepted the clients: from then on their time runs."""
    wait_until(lambda: server._pool is not None and len(server._pool) == number, f"{number} connections")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection."""

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        source: str | None = None,
    ) -> None:
        """`source` is the client's own address: each of 127.0.0.0/8 is one of this machine."""
        self.socket = socket.create_connection(
            (host, port), timeout=60, source_address=(source, 0) if source else None
        )
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._received = bytearray()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, data: bytes) -> "Client":
        self.socket.sendall(data)
        return self

    def get(self, path: str = "/metrics", method: str = "GET", **headers: str) -> Answer:
        self.say(request(path, method, **headers))
        return self.hear(head_only=method == "HEAD")

    def hear(self, head_only: bool = False) -> Answer:
        """The next whole response. Raises ConnectionError when there is none."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = 0 if head_only else int(headers["Content-Length"])
        while len(self._received) < length:
            self._more()
        body = bytes(self._received[:length])
        del self._received[:length]
        return Answer(int(first.split()[1]), headers, body)

    def reset_on_close(self) -> None:
        """Leave as a client that crashes: without the end of the stream."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def is_hung_up(self) -> bool:
        """Waits until the server closes (True) or says something (False)."""
        try:
            return not self._received and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._received += data


def request(path: str = "/metrics", method: str = "GET", **headers: str) -> bytes:
    """The bytes of a request; `accept_encoding="gzip"` gives `Accept-Encoding: gzip`."""
    fields = {"Host": "localhost"} | {
        name.replace("_", "-").title(): value for name, value in headers.items()
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
