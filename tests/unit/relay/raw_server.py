"""A server on loopback that answers every request with exactly the bytes that a test gives it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket], None]


class RawServer:
    """Its address, and the requests it got."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"http://{address}/metrics"
        self.requests: list[bytes] = []


@contextmanager
def raw_server(script: Script) -> Iterator[RawServer]:
    """Runs `script` on each connection, one after the other, once the request is there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        server = RawServer(f"{host}:{port}")

        def work() -> None:
            with suppress(OSError):  # the test is over
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):  # the client has had enough
                        request = b""
                        while not request.endswith(b"\r\n\r\n"):
                            request += connection.recv(65536)
                        server.requests.append(request)
                        script(connection)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        assert not thread.is_alive()


def answers(body: bytes | str, *headers: str, status: str = "200 OK", length: bool = True) -> Script:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", *headers, *([f"Content-Length: {len(content)}"] if length else [])]
    head = "\r\n".join([*lines, "", ""]).encode()
    return lambda connection: connection.sendall(head + content)
