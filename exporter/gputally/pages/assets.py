"""The files of the live page, named by their content so that browsers keep them."""

import zlib
from functools import cached_property
from pathlib import Path

from gputally.server import Endpoint, Response

DIRECTORY = Path(__file__).with_name("assets")
TYPES = {
    "live.js": "text/javascript; charset=utf-8",
    "live.css": "text/css; charset=utf-8",
    "live.svg": "image/svg+xml",
}
KEEP = ("Cache-Control", "public, max-age=31536000, immutable")
ASK_AGAIN = ("Cache-Control", "no-cache")
HEADERS = (
    ("Vary", "Accept-Encoding"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Asset(Endpoint):
    """One file. It is read when it is first requested."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _body(self) -> bytes:
        return (DIRECTORY / self._name).read_bytes()

    @cached_property
    def _gzipped(self) -> bytes:
        return zlib.compress(self._body, wbits=31)

    @property
    def url(self) -> str:
        """Relative to the landing page, for proxies that serve it below a path of theirs."""
        return f"{self._name}?{zlib.crc32(self._body):08x}"

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        return self._response(gzip, ASK_AGAIN)

    def narrowed(self, query: str) -> Endpoint:
        return _Named(self) if f"{self._name}?{query}" == self.url else self

    def _response(self, gzip: bool, caching: tuple[str, str]) -> Response:
        headers = (*HEADERS, caching)
        if gzip:
            return Response(200, TYPES[self._name], self._gzipped, (*headers, ("Content-Encoding", "gzip")))
        return Response(200, TYPES[self._name], self._body, headers)


class _Named(Endpoint):
    """The asset by a name that changes with its content."""

    def __init__(self, asset: Asset) -> None:
        self._asset = asset

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        return self._asset._response(gzip, KEEP)
