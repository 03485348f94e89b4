"""From bytes to requests: llhttp (through httptools) parses, this counts and refuses."""

from collections import deque

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from gputally.server.limits import Limits
from gputally.server.messages import Request, Response, text_response

NEEDED_HEADERS = frozenset((b"accept", b"accept-encoding", b"authorization", b"content-length", b"host"))
SUPPORTED_VERSIONS = ("1.0", "1.1")


class _Enough(Exception):
    """Raised inside a parser callback to stop the parser: no more requests from this client."""


class RequestReader:
    """Fills `queue` with requests, and at the end perhaps with one response that refuses the rest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self.queue: deque[Request | Response] = deque()
        self.complete = False
        """No more requests will be read."""
        self.inside = False
        """A request has begun and has not ended."""
        self.began_now = False
        """... and that was in the bytes of the last `feed`."""
        self._received = 0  # bytes of the request, not counting those of the feed in which it began
        self._header_bytes = 0
        self._url = b""
        self._headers: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> None:
        """Parse what has come in."""
        if self.complete or self._parser is None:
            return
        self.began_now = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # the request is in the queue like any other
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Enough):
                raise
        except HttpParserError:
            self._refuse(400, "this is not HTTP")
        if self.inside and not self.began_now and not self.complete:
            # A field that never ends gives no callback that could count it.
            self._received += len(data)
            if self._received > self._limits.header_bytes + self._limits.body_bytes:
                self._refuse(431, "request header too large")

    def close(self) -> None:
        """Nothing more to read, nor to answer."""
        self.complete = True
        self.queue.clear()
        self._parser = None  # it refers back to us

    # --- the parser's calls ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self.inside = self.began_now = True
        self._url = b""
        self._headers = {}
        self._header_bytes = self._received = 0

    def on_url(self, url: bytes) -> None:
        """The request target, or a part of it."""
        self._url += url
        self._count_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header field."""
        self._count_header_bytes(len(name) + len(value) + 4)
        name = name.lower()
        if name == b"transfer-encoding":
            self._refuse(413, "requests with a body are not accepted")
            raise _Enough
        if name in NEEDED_HEADERS:
            before = self._headers.get(name)
            self._headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        """The header is whole; a body may follow, and is thrown away if it is small."""
        # llhttp has made sure that it is one number.
        if int(self._headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            self._refuse(413, "requests with a body are not accepted")
            raise _Enough

    def on_message_complete(self) -> None:
        """The request is whole."""
        assert self._parser is not None  # noqa: S101 - it is calling us
        self.inside = False
        version = self._parser.get_http_version()
        if version not in SUPPORTED_VERSIONS:
            self._refuse(505, "HTTP/1.0 and HTTP/1.1 are spoken here")
            raise _Enough
        if version == "1.1" and b"host" not in self._headers:
            self._refuse(400, "a Host header is required")
            raise _Enough
        self.queue.append(
            Request(
                method=self._parser.get_method().decode("latin-1"),
                path=path_of(self._url.decode("latin-1")),
                accept=self._header(b"accept"),
                accept_encoding=self._header(b"accept-encoding"),
                authorization=self._header(b"authorization"),
            )
        )
        # An upgrade to another protocol is declined by a plain answer, but what follows may not be
        # HTTP. And of too many requests at once the first are answered: the client may come back.
        self.complete = (
            not self._parser.should_keep_alive()
            or self._parser.should_upgrade()
            or len(self.queue) >= self._limits.pipelined_requests
        )
        if self.complete:
            raise _Enough

    def _count_header_bytes(self, count: int) -> None:
        self._header_bytes += count
        if self._header_bytes > self._limits.header_bytes:
            self._refuse(431, "request header too large")
            raise _Enough

    def _refuse(self, status: int, line: str) -> None:
        self.complete = True
        self.inside = False
        self.queue.append(text_response(status, line))

    def _header(self, name: bytes) -> str:
        return self._headers.get(name, b"").decode("latin-1")


def path_of(target: str) -> str:
    """The path of a request target in origin form (`/a?b`) or absolute form (`http://host/a?b`)."""
    if not target.startswith("/"):
        _, scheme, rest = target.partition("://")
        target = "/" + rest.partition("/")[2] if scheme else target
    return target.partition("?")[0]
