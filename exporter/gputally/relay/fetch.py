"""A GET that cannot hurt: bounded in time and size, whatever answers.

No proxy, no redirect, no cookie, no second try: this asks one exporter on this node or near it.
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
_LOOK_THERE = "see that the exporter runs and listens there"


class TargetError(ValueError):
    """What was given to be relayed cannot be read by anybody."""


@dataclass(frozen=True, slots=True)
class Url:
    """Where to ask."""

    text: str
    host: str
    port: int
    target: str
    secure: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `cut` when there was more than may be."""

    body: bytes
    content_type: str
    cut: bool


def parse_url(text: str) -> Url:
    """Raises TargetError. Without a path, /metrics is meant."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise TargetError(f"the URL {text!r} has a character that must be written as %..")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise TargetError(f"the URL {text!r} is wrong: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TargetError(f"the URL {text!r} must be http://host:port/path or https://host:port/path")
    if parts.username is not None:
        raise TargetError("the URL must not have a user name in it: everybody on this host could read it")
    secure = parts.scheme == "https"
    target = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
    return Url(text, parts.hostname, port or (443 if secure else 80), target, secure)


def fetch(url: Url, *, timeout_seconds: float, max_bytes: int) -> Answer:
    """Raises Unavailable."""
    deadline = time.monotonic() + timeout_seconds
    try:
        with _connected(url, timeout_seconds) as connection:
            connection.sendall(_request(url))
            return _receive(url, connection, deadline, max_bytes)
    except TimeoutError:
        raise Unavailable(f"{url.text} has not answered within {timeout_seconds:g} s", _LOOK_THERE) from None
    except OSError as error:
        raise Unavailable(f"{url.text} cannot be asked: {error.strerror or error}", _LOOK_THERE) from error


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
    """What the parser tells, kept until it is asked for."""

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
    """Grows up to `max_bytes`, after unpacking."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        if encoding.lower() not in ("", "identity", "gzip"):
            raise Unavailable(f"the answer is packed as {encoding!r}, which was not asked for")
        self._unzip = zlib.decompressobj(_GZIP) if encoding.lower() == "gzip" else None
        self._max_bytes = max_bytes
        self._content = bytearray()

    def add(self, data: bytes) -> None:
        room = self._max_bytes + 1 - len(self._content)
        if self._unzip is not None:
            try:
                data = self._unzip.decompress(data, room)
            except zlib.error as error:
                raise Unavailable(f"the answer cannot be unpacked: {error}") from error
        self._content += data[:room]

    @property
    def too_large(self) -> bool:
        return len(self._content) > self._max_bytes

    @property
    def whole(self) -> bool:
        return self._unzip is None or (self._unzip.eof and not self._unzip.unused_data)

    def content(self) -> bytes:
        return bytes(self._content[: self._max_bytes])


def _receive(url: Url, connection: socket.socket, deadline: float, max_bytes: int) -> Answer:
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
                raise Unavailable(f"what answers at {url.text} does not speak HTTP", _LOOK_THERE) from None
        if head.read and body is None:
            _check_status(url, parser.get_status_code(), head.headers)
            body = _Body(head.headers.get(b"content-encoding", ""), max_bytes)
        elif not head.read and received > _MAX_HEADER_BYTES:
            raise Unavailable(f"the answer of {url.text} begins with more than 64 KiB of header")
        if body is not None:
            body.add(b"".join(head.pieces))
            head.pieces.clear()
            if body.too_large:
                return Answer(body.content(), head.headers.get(b"content-type", ""), True)
    if body is None or not body.whole or not (head.complete or head.ends_with_connection):
        raise Unavailable(f"{url.text} has ended in the middle of its answer", _LOOK_THERE)
    return Answer(body.content(), head.headers.get(b"content-type", ""), False)


def _next(connection: socket.socket, deadline: float) -> bytes:
    """What has come in. The time is for the whole answer: a byte now and then does not make it longer."""
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
            f"{url.text} answers {status}: it is elsewhere", f"relay {headers[b'location'][:200]!r} instead"
        )
    fix = (
        "let the relay in: it has no password to give" if status in (401, 403) else f"try it: curl {url.text}"
    )
    raise Unavailable(f"{url.text} answers {status}", fix)
