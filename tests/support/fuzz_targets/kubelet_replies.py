"""HTTP/2 and gRPC of the kubelet's sockets: a reply, OSError or ValueError."""

import socket
import threading
import time
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection

from gputally.attribution.kubelet_grpc import exchange

_LIMIT = 1 << 16


def _reply(message: bytes, *trailers: tuple[str, str]) -> bytes:
    """A server's side of a call, without having seen it."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    asked = {":method": "POST", ":scheme": "http", ":path": "/x", ":authority": "localhost"}
    client.send_headers(1, list(asked.items()), end_stream=True)
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
    server.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message)
    server.send_headers(1, [("grpc-status", "0"), *trailers], end_stream=True)
    return server.data_to_send()


CORPUS = [
    _reply(b"\x0a\x03abc"),
    _reply(b"", ("grpc-message", "a%0Ab%")),
    _reply(b"x" * 5000),
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
]


def one_input(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sending = threading.Thread(target=_serve, args=(theirs, data))
        sending.start()
        try:
            with suppress(OSError, ValueError):
                exchange(ours, "/v1.PodResourcesLister/List", time.monotonic() + 60, _LIMIT)
        finally:
            ours.close()
            sending.join()


def _serve(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
