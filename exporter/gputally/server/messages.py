"""One request as read, one response as sent."""

import time
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Request:
    """What the server cares about in a request."""

    method: str
    path: str
    accept: str = ""
    accept_encoding: str = ""
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """`body` is shared between clients and is never copied as a whole."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def text_response(status: int, line: str, *headers: tuple[str, str]) -> Response:
    """A short answer in plain text."""
    return Response(status, PLAIN, f"{line}\n".encode(), headers)


def encode_head(response: Response, now: float, keep_alive: bool) -> bytes:
    """Status line and headers."""
    # HTTP/1.1 clients take keep-alive for granted, HTTP/1.0 clients need to be told.
    head = (
        f"HTTP/1.1 {response.status} {REASONS[response.status]}\r\n"
        f"Date: {_http_date(int(now))}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n"
        "Cache-Control: no-store\r\n"
    )
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
