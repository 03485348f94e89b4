"""One GET with a deadline and a size limit, whatever the server sends.

No proxy, redirect, cookie or retry. Not by http.client, which imports ssl and email (6 MiB of memory) and
whose time-out starts again with every byte.
"""

import socket
import time
import zlib
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
    """The body; `truncated` where it was larger than the limit."""

    body: bytes
    content_type: str
    truncated: bool


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


def fetch(url: Url, *, timeout_seconds: float, max_bytes: int) -> Fetched:
    """Raises Unavailable."""
    deadline = time.monotonic() + timeout_seconds
    try:
        with _connected(url, timeout_seconds) as connection:
            connection.sendall(_request(url))
            return _receive(url, connection, deadline, max_bytes)
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


class _Head:
    """Receives the callbacks of the parser."""

    def __init__(self) -> None:
        self.headers: dict[bytes, str] = {}
        self.read = False
        self.complete = False
        self.pieces: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self.read = True

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.complete = True

    @property
    def ends_with_connection(self) -> bool:
        return b"content-length" not in self.headers and b"transfer-encoding" not in self.headers


class _Body:
    """The decompressed body, up to `max_bytes`."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        if encoding.lower() not in ("", "identity", "gzip"):
            raise Unavailable(f"the response has the content encoding {encoding!r}, which was not requested")
        self._unzip = zlib.decompressobj(_GZIP) if encoding.lower() == "gzip" else None
        self._max_bytes = max_bytes
        self._content = bytearray()

    def add(self, data: bytes) -> None:
        room = self._max_bytes + 1 - len(self._content)
        if self._unzip is not None:
            try:
                data = self._unzip.decompress(data, room)
            except zlib.error as error:
                raise Unavailable(f"the response cannot be decompressed: {error}") from error
        self._content += data[:room]

    @property
    def too_large(self) -> bool:
        return len(self._content) > self._max_bytes

    @property
    def whole(self) -> bool:
        return self._unzip is None or (self._unzip.eof and not self._unzip.unused_data)

    def content(self) -> bytes:
        return bytes(self._content[: self._max_bytes])


def _receive(url: Url, connection: socket.socket, deadline: float, max_bytes: int) -> Fetched:
    head = _Head()
    parser = HttpResponseParser(head)
    body: _Body | None = None
    received = 0
    while not head.complete:
        data = _next(connection, deadline)
        if not data:
            break
        received += len(data)
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            if not head.complete:
                raise Unavailable(f"{url.text} does not respond with HTTP", _FIX) from None
        if head.read and body is None:
            _check_status(url, parser.get_status_code(), head.headers)
            body = _Body(head.headers.get(b"content-encoding", ""), max_bytes)
        elif not head.read and received > _MAX_HEADER_BYTES:
            raise Unavailable(f"the response of {url.text} has more than 64 KiB of headers")
        if body is not None:
            body.add(b"".join(head.pieces))
            head.pieces.clear()
            if body.too_large:
                return Fetched(body.content(), head.headers.get(b"content-type", ""), True)
    if body is None or not body.whole or not (head.complete or head.ends_with_connection):
        raise Unavailable(f"the response of {url.text} is incomplete", _FIX)
    return Fetched(body.content(), head.headers.get(b"content-type", ""), False)


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
