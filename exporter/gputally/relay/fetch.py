"""One GET with a deadline and in constant memory, whatever the server sends.

No proxy, redirect, cookie or retry. Not by http.client, which imports ssl and email (6 MiB of memory) and
whose time-out starts again with every byte.
"""

import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gputally.model import Unavailable

_ACCEPT = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"
_MAX_HEADER_BYTES = 65_536
_RECEIVE_BYTES = 65_536
_GZIP = 16 + zlib.MAX_WBITS
_FIX = "check that the exporter is running and listens there"


class TargetError(ValueError):
    """The target of --relay is malformed."""


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL."""

    text: str
    host: str
    port: int
    target: str
    secure: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """The body, in pieces of at most 64 KiB."""

    pieces: Iterator[bytes]
    content_type: str = ""


def parse_url(text: str) -> Url:
    """Raises TargetError. The default path is /metrics."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise TargetError(f"the URL {text!r} has a character that must be percent-encoded")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise TargetError(f"the URL {text!r} is invalid: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TargetError(f"the URL {text!r} must be http://host:port/path or https://host:port/path")
    if parts.username is not None:
        raise TargetError("the URL must not contain credentials: every user of this host can read them")
    secure = parts.scheme == "https"
    target = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
    return Url(text, parts.hostname, port or (443 if secure else 80), target, secure)


@contextmanager
def fetch(url: Url, *, timeout_seconds: float, max_bytes: int) -> Iterator[Fetched]:
    """Raises Unavailable, also while the pieces are read. The body ends for who stops reading it."""
    deadline = time.monotonic() + timeout_seconds
    try:
        with _connected(url, timeout_seconds) as connection:
            connection.sendall(_request(url))
            response = _Response(url, connection, deadline, max_bytes)
            response.receive_head()
            yield Fetched(response.pieces(), response.header(b"content-type"))
    except TimeoutError:
        raise Unavailable(f"{url.text} did not respond within {timeout_seconds:g} s", _FIX) from None
    except OSError as error:
        raise Unavailable(f"{url.text}: request failed: {error.strerror or error}", _FIX) from error


def _connected(url: Url, timeout_seconds: float) -> socket.socket:
    connection = socket.create_connection((url.host, url.port), timeout_seconds)
    if not url.secure:
        return connection
    import ssl  # noqa: PLC0415  # 4 MiB that plain HTTP does not need

    try:
        return ssl.create_default_context().wrap_socket(connection, server_hostname=url.host)
    except BaseException:
        connection.close()
        raise


def _request(url: Url) -> bytes:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return (
        f"GET {url.target} HTTP/1.1\r\nHost: {host}:{url.port}\r\nAccept: {_ACCEPT}\r\n"
        "Accept-Encoding: gzip\r\nUser-Agent: gputally\r\nConnection: close\r\n\r\n"
    ).encode()


class _Response:
    """Receives the bytes of the connection, and the callbacks of the parser."""

    def __init__(self, url: Url, connection: socket.socket, deadline: float, max_bytes: int) -> None:
        self._url = url
        self._connection = connection
        self._deadline = deadline
        self._most_received = _MAX_HEADER_BYTES + 2 * max_bytes
        self._received = 0
        self._parser = HttpResponseParser(self)
        self._headers: dict[bytes, str] = {}
        self._head_complete = False
        self._complete = False
        self._body: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_complete:  # trailers have no end
            self._headers[name.lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self._head_complete = True

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._complete = True

    def header(self, name: bytes) -> str:
        return self._headers.get(name, "")

    def receive_head(self) -> None:
        while not self._head_complete:
            if not self._receive():
                raise Unavailable(f"the response of {self._url.text} is incomplete", _FIX)
            if not self._head_complete and self._received > _MAX_HEADER_BYTES:
                raise Unavailable(f"the response of {self._url.text} has more than 64 KiB of headers")
        _check_status(self._url, self._parser.get_status_code(), self._headers)

    def pieces(self) -> Iterator[bytes]:
        """The decompressed body."""
        unzip = _decompressor(self.header(b"content-encoding").lower())
        while True:
            data = b"".join(self._body)
            self._body.clear()
            if unzip is None:
                yield data
            else:
                yield from _decompressed(unzip, data)
            if self._complete or not self._receive():
                break
        ends_with_connection = not self._headers.keys() & {b"content-length", b"transfer-encoding"}
        if (unzip is not None and not unzip.eof) or not (self._complete or ends_with_connection):
            raise Unavailable(f"the response of {self._url.text} is incomplete", _FIX)

    def _receive(self) -> bool:
        data = _next(self._connection, self._deadline)
        self._received += len(data)
        if self._received > self._most_received:
            raise Unavailable(
                f"{self._url.text} sends more than {self._most_received / 2**20:.1f} MiB",
                "check that it is the intended exporter",
            )
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            if not self._complete:
                raise Unavailable(f"{self._url.text} does not respond with HTTP", _FIX) from None
        return bool(data)


def _decompressor(encoding: str) -> "zlib._Decompress | None":
    if encoding not in ("", "identity", "gzip"):
        raise Unavailable(f"the response has the content encoding {encoding!r}, which was not requested")
    return zlib.decompressobj(_GZIP) if encoding == "gzip" else None


def _decompressed(unzip: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """In pieces, so that a small body that grows without end is read only as far as it is used."""
    try:
        while piece := unzip.decompress(data, _RECEIVE_BYTES):
            yield piece
            data = unzip.unconsumed_tail
    except zlib.error as error:
        raise Unavailable(f"the response cannot be decompressed: {error}") from error
    if unzip.unused_data:
        raise Unavailable("the response cannot be decompressed: there is more after its end")


def _next(connection: socket.socket, deadline: float) -> bytes:
    """The next bytes. The deadline is that of the whole response: single bytes do not extend it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)
    return connection.recv(_RECEIVE_BYTES)


def _check_status(url: Url, status: int, headers: dict[bytes, str]) -> None:
    if status == 200:
        return
    if 300 <= status < 400 and b"location" in headers:
        raise Unavailable(
            f"{url.text} responds with status {status}, a redirect",
            f"relay {headers[b'location'][:200]!r} instead",
        )
    fix = "allow requests without a password" if status in (401, 403) else f"test it: curl {url.text}"
    raise Unavailable(f"{url.text} responds with status {status}", fix)
