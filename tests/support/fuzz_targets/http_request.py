"""Any bytes to the HTTP server give valid HTTP responses, then a close; and no traceback in the log.

The connection, its parser, the routes and basic auth are those of the exporter, on a real socket.
"""

import asyncio
import logging
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import bcrypt

from gputally.server.connection import Connection, ConnectionPool
from gputally.server.http1 import REASONS
from gputally.server.limits import Limits
from gputally.server.routes import Health, Routes
from gputally.server.web_security import WebSecurity

LOGIN = b"Authorization: Basic YWxpY2U6d29uZGVybGFuZA==\r\n"
CORPUS = [
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: [::1]:9400\r\n" + LOGIN + b"\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + LOGIN + b"\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics?x=1 HTTP/1.0\r\nConnection: keep-alive\r\nAuthorization: Basic Og==\r\n\r\n",
    b"GET http://x/metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,"
    b"*/*;q=0.1\r\nAccept-Encoding: gzip;q=1, identity;q=0\r\n" + LOGIN + b"\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"0" * 5000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03\x01",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000,
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
]
PIECES = 64
HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) ([A-Za-z ]+)\r\n((?:[A-Za-z-]+: [ -~]*\r\n)+)\r\n")
LENGTH = re.compile(rb"^Content-Length: (\d+)\r$", re.MULTILINE)


def one_input(data: bytes) -> None:
    """Raises AssertionError where these bytes, at once or in pieces, break what the module promises."""
    with _no_warnings():
        _check(_output([data]))
        step = max(1, len(data) // PIECES)
        _check(_output([data[at : at + step] for at in range(0, len(data), step)]))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _routes() -> Routes:
    hashed = bcrypt.hashpw(b"wonderland", bcrypt.gensalt(4)).decode()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "web.yml"
        path.write_text(f"basic_auth_users: {{alice: {hashed}}}")
        # Its clock stands still: the file is not read again.
        security = WebSecurity(path, clock=lambda: 0.0)
    return Routes({"/": Health(), "/metrics": Health()}, Health(), security)


def _output(pieces: list[bytes]) -> bytes:
    return _loop().run_until_complete(_served(pieces))


async def _served(pieces: list[bytes]) -> bytes:
    """What a client receives that sends these pieces, closes its sending side and reads to the end."""
    loop, limits = asyncio.get_running_loop(), Limits()
    pool = ConnectionPool(loop, limits.connections)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        await loop.connect_accepted_socket(lambda: Connection(loop, pool, _routes(), limits), ours)
        try:
            for piece in pieces:
                await loop.sock_sendall(theirs, piece)
                await asyncio.sleep(0)  # so that the server reads this piece alone
            theirs.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        received = b""
        try:
            while more := await loop.sock_recv(theirs, 65536):
                received += more
        except ConnectionResetError:
            pass
    await pool.empty.wait()
    pool.abort()
    return received


def _check(received: bytes) -> None:
    while received:
        head = HEAD.match(received)
        assert head, f"no HTTP response: {received[:200]!r}"
        assert REASONS[int(head[1])] == head[2].decode()
        length = LENGTH.search(head[3])
        assert length, f"no length: {head[0]!r}"
        received = received[head.end() :]
        if received and not received.startswith(b"HTTP/1.1 "):  # as after a HEAD request
            assert len(received) >= int(length[1]), f"a part of a body: {received!r}"
            received = received[int(length[1]) :]


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


@contextmanager
def _no_warnings() -> Iterator[None]:
    recorder = _Recorder()
    logging.getLogger().addHandler(recorder)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(recorder)
    assert not recorder.records, recorder.records
