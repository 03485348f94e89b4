"""HTTP/1.x: bytes to requests, and responses to bytes. llhttp (through httptools) parses the requests."""

import logging
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from gputally.printable import printable
from gputally.server.limits import Limits

if TYPE_CHECKING:
    from gputally.server.broadcast import Broadcast

log = logging.getLogger(__name__)

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
PLAIN = "text/plain; charset=utf-8"
NEEDED_HEADERS = frozenset(
    (b"accept", b"accept-encoding", b"authorization", b"content-length", b"host", b"transfer-encoding")
)
SUPPORTED_VERSIONS = ("1.0", "1.1")
LONGEST_LENGTH = 20
"""Digits of a Content-Length, including leading zeros: as many as a number of 64 bits has."""
HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
"""The characters of `uri-host [":" port]` (RFC 3986, section 3.2.2)."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that the server uses."""

    method: str
    path: str
    query: str = ""
    accept: str = ""
    accept_encoding: str = ""
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """`body` and `more`, which follows it, are shared between clients and never copied as a whole."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    more: tuple[bytes | memoryview, ...] = ()
    stream: "Broadcast | None" = None
    """Its messages follow, until one side closes the connection."""


def text_response(status: int, line: str, *headers: tuple[str, str]) -> Response:
    """One line of plain text."""
    return Response(status, PLAIN, f"{printable(line)}\n".encode(), headers)


def encode_head(response: Response, now: float, keep_alive: bool) -> bytes:
    """Status line and headers."""
    # HTTP/1.0 clients close the connection unless the response says keep-alive.
    head = (
        f"HTTP/1.1 {response.status} {REASONS[response.status]}\r\n"
        f"Date: {_http_date(int(now))}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n"
    )
    if response.stream is None:
        head += f"Content-Length: {len(response.body) + sum(map(len, response.more))}\r\n"
    if all(name != "Cache-Control" for name, _ in response.headers):
        head += "Cache-Control: no-store\r\n"
    for name, value in response.headers:
        head += f"{name}: {value}\r\n"
    return (head + "\r\n").encode("latin-1")


_last_date = (0, "")


def _http_date(second: int) -> str:
    """`Sun, 06 Nov 1994 08:49:37 GMT`, whatever the locale."""
    global _last_date  # noqa: PLW0603 - one formatted second, shared by the one event loop
    if _last_date[0] != second:
        at = time.gmtime(second)
        _last_date = (
            second,
            f"{DAYS[at.tm_wday]}, {at.tm_mday:02} {MONTHS[at.tm_mon - 1]} {at.tm_year}"
            f" {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT",
        )
    return _last_date[1]


class _Stop(Exception):
    """Raised inside a callback of the parser to stop it: no more requests from this client are read."""


class _Refused(_Stop):
    """The request is answered with this status and line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(status, line)
        self.response = text_response(status, line)


NOT_HTTP = 400, "not an HTTP request"
HOST_INVALID = 400, "one valid Host header is required"
BODY_REFUSED = 413, "requests with a body are not accepted"
TOO_LARGE = 431, "request header too large"


class RequestParser:
    """Fills `queue` with requests. The last entry is a response if the rest of the input is refused."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self.queue: deque[Request | Response] = deque()
        self.complete = False
        """No more requests will be read."""
        self.inside = False
        """A request has begun and has not ended."""
        self.began_now = False
        """The request began in the bytes of the last `feed`."""
        self._received = 0  # bytes of the request, not counting those of the feed in which it began
        self._header_bytes = self._header_fields = 0
        self._url = b""
        self._headers: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> None:
        """Parse received bytes."""
        if self.complete or self._parser is None:
            return
        self.began_now = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # the request is in the queue like any other
        except HttpParserCallbackError as error:
            self._stop(error.__context__)
        except HttpParserError:
            self._stop(_Refused(*NOT_HTTP))
        if self.inside and not self.began_now and not self.complete:
            # A header field that never ends causes no callback that could count its bytes.
            self._received += len(data)
            if self._received > self._limits.header_bytes + self._limits.body_bytes:
                self._stop(_Refused(*TOO_LARGE))

    def close(self) -> None:
        """Drop the queue and read no more requests."""
        self.complete = True
        self.queue.clear()
        self._parser = None  # breaks the reference cycle

    # --- the parser's calls ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self.inside = self.began_now = True
        self._url = b""
        self._headers = {}
        self._header_bytes = self._header_fields = self._received = 0

    def on_url(self, url: bytes) -> None:
        """The request target, or a part of it."""
        self._url += url
        self._count_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field."""
        self._header_fields += 1
        self._count_header_bytes(len(name) + len(value) + 4)
        name = name.lower()
        if name in NEEDED_HEADERS:
            before = self._headers.get(name)
            if name == b"host" and (before is not None or not HOST.fullmatch(value.strip(b" \t"))):
                raise _Refused(*HOST_INVALID)
            self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        """The header is complete; a small body is discarded, a larger one refused."""
        length = self._headers.get(b"content-length", b"0")
        if b"transfer-encoding" in self._headers:
            if self._version() != "1.1" or b"content-length" in self._headers:
                raise _Refused(400, "the length of the body is ambiguous")
            raise _Refused(*BODY_REFUSED)
        # llhttp guarantees that it is one number, of any number of digits.
        if len(length) > LONGEST_LENGTH:
            raise _Refused(*NOT_HTTP)
        if int(length) > self._limits.body_bytes:
            raise _Refused(*BODY_REFUSED)

    def on_message_complete(self) -> None:
        """The request is complete."""
        assert self._parser is not None  # noqa: S101 - narrows the type for mypy
        self.inside = False
        version = self._version()
        if version not in SUPPORTED_VERSIONS:
            raise _Refused(505, "only HTTP/1.0 and HTTP/1.1 are supported")
        if version == "1.1" and b"host" not in self._headers:
            raise _Refused(*HOST_INVALID)
        self.queue.append(
            Request(
                method=self._parser.get_method().decode("latin-1"),
                path=path_of(self._url.decode("latin-1")),
                query=self._url.partition(b"?")[2].decode("latin-1"),
                accept=self._header(b"accept"),
                accept_encoding=self._header(b"accept-encoding"),
                authorization=self._header(b"authorization"),
            )
        )
        # After a request to upgrade the input may not be HTTP. Of too many pipelined requests the first
        # are served: the client can send the others again.
        self.complete = (
            not self._parser.should_keep_alive()
            or self._parser.should_upgrade()
            or len(self.queue) >= self._limits.pipelined_requests
        )
        if self.complete:
            raise _Stop

    def _count_header_bytes(self, count: int) -> None:
        self._header_bytes += count
        limits = self._limits
        if self._header_bytes > limits.header_bytes or self._header_fields > limits.header_fields:
            raise _Refused(*TOO_LARGE)

    def _stop(self, reason: BaseException | None) -> None:
        """Read no more. The last response is that of the refusal, if there is one."""
        self.complete = True
        self.inside = False
        if not isinstance(reason, _Stop):
            # A fault of ours. Not above debug, because a client can repeat it without end.
            log.debug("a request cannot be read: %r", reason)
            reason = _Refused(*NOT_HTTP)
        if isinstance(reason, _Refused):
            self.queue.append(reason.response)

    def _version(self) -> str:
        assert self._parser is not None  # noqa: S101 - narrows the type for mypy
        return self._parser.get_http_version()

    def _header(self, name: bytes) -> str:
        return self._headers.get(name, b"").decode("latin-1")


def path_of(target: str) -> str:
    """The path of a request target in origin form (`/a?b`) or absolute form (`http://host/a?b`)."""
    if not target.startswith("/"):
        _, scheme, rest = target.partition("://")
        target = "/" + rest.partition("/")[2] if scheme else target
    return target.partition("?")[0]
