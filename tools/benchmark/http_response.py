"""Reads HTTP/1.x responses from a socket, at a negligible cost.

Supports the three ends of a response: Content-Length, chunked, and a closed connection
(https://www.rfc-editor.org/rfc/rfc9112#section-6.3).
"""

import socket
from dataclasses import dataclass


class BadResponse(Exception):
    """The data is not a complete HTTP response."""


@dataclass(frozen=True, slots=True)
class Head:
    """The used fields of a response's head."""

    status: int
    length: int | None
    chunked: bool
    closes: bool
    """Whether the server closes the connection after this response."""
    gzipped: bool


def parse_head(raw: bytes) -> Head:
    """The status line and the header fields, without the blank line that ends them."""
    lines = raw.decode("latin-1").lower().split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("http/1.") or not rest[:3].isdigit():
        raise BadResponse(f"no HTTP status line: {lines[0]!r}")
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("content-length")
    chunked = fields.get("transfer-encoding", "").endswith("chunked")
    connection = fields.get("connection", "")
    closes = "keep-alive" not in connection if version == "http/1.0" else "close" in connection
    return Head(
        status=int(rest[:3]),
        length=int(length) if length is not None and not chunked else None,
        chunked=chunked,
        closes=closes or (length is None and not chunked),
        gzipped=fields.get("content-encoding") == "gzip",
    )


def skip_chunks(buffer: bytearray, position: int, filled: int) -> tuple[int, bool]:
    """Skips complete chunks; returns the new position, and whether the body is complete."""
    while (line_end := buffer.find(b"\r\n", position, filled)) >= 0:
        size = int(buffer[position:line_end].partition(b";")[0], 16)
        if size == 0:
            end = buffer.find(b"\r\n\r\n", line_end, filled)  # after trailer fields, if there are any
            return (end + 4, True) if end >= 0 else (position, False)
        following = line_end + 2 + size + 2
        if following > filled:
            return position, False
        position = following
    return position, False


def join_chunks(body: bytes) -> bytes:
    """The content of a whole chunked body."""
    joined = bytearray()
    position = 0
    while True:
        line_end = body.index(b"\r\n", position)
        size = int(body[position:line_end].partition(b";")[0], 16)
        if size == 0:
            return bytes(joined)
        joined += body[line_end + 2 : line_end + 2 + size]
        position = line_end + 2 + size + 2


class ResponseReader:
    """Collects responses from a socket, one after the other, in one buffer."""

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self.begin()

    def begin(self) -> None:
        """Forgets the last response."""
        self._filled = 0
        self._body_start = 0
        self._body_end = -1
        self._chunk = 0
        self.head: Head | None = None

    @property
    def untouched(self) -> bool:
        return self._filled == 0

    @property
    def body_size(self) -> int:
        return self._body_end - self._body_start

    def body(self) -> bytes:
        raw = bytes(self._view[self._body_start : self._body_end])
        return join_chunks(raw) if self.head and self.head.chunked else raw

    def receive(self, connection: socket.socket) -> bool:
        """Reads what the socket has now; true once the response is complete. Raises BadResponse, OSError."""
        if self._filled == len(self._buffer):
            self._grow()
        count = connection.recv_into(self._view[self._filled :])
        self._filled += count
        if self.head is None:
            self._find_head()
        head = self.head
        if head is not None:
            if head.length is not None:
                self._body_end = self._body_start + head.length
                if self._filled >= self._body_end:
                    return True
            elif head.chunked:
                self._chunk, whole = skip_chunks(self._buffer, self._chunk, self._filled)
                if whole:
                    self._body_end = self._chunk
                    return True
            elif not count:
                self._body_end = self._filled
                return True
        if not count:
            raise BadResponse(f"the connection was closed after {self._filled} bytes of a response")
        return False

    def _find_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if end >= 0:
            self.head = parse_head(bytes(self._view[:end]))
            self._body_start = self._chunk = end + 4

    def _grow(self) -> None:
        larger = bytearray(2 * len(self._buffer))
        larger[: self._filled] = self._view[: self._filled]
        self._buffer, self._view = larger, memoryview(larger)
