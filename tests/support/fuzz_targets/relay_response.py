"""The HTTP response of another exporter: a body in pieces, or Unavailable."""

import gzip
import socket
import threading
import time
from contextlib import suppress

from gputally.model import Unavailable
from gputally.relay.fetch import _Response, parse_url

_URL = parse_url("http://127.0.0.1/metrics")
_MAX_BYTES = 65_536
CORPUS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nup 1\n\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"up 1\n"),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nup 1\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
]


def one_input(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, suppress(Unavailable):
        sending = threading.Thread(target=_send, args=(theirs, data))
        sending.start()
        try:
            response = _Response(_URL, ours, time.monotonic() + 60, _MAX_BYTES)
            response.receive_head()
            assert all(len(piece) <= _MAX_BYTES for piece in response.pieces())
        finally:
            ours.close()
            sending.join()


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
