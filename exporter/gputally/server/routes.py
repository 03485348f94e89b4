"""Path -> endpoint -> response, with content negotiation (RFC 9110, section 12.5) and access control."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gputally.server.errors import PathError
from gputally.server.http1 import Request, Response, text_response

if TYPE_CHECKING:
    from gputally.server.basic_auth import Client
    from gputally.server.web_security import WebSecurity

HEALTH, READY = "/healthz", "/readyz"
PROBES = (HEALTH, READY)
METHODS = ("GET", "HEAD")
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_VERSIONS = ("", "1.0.0", "0.0.1")
TEXT_VERSIONS = ("", "0.0.4")
CACHED_HEADERS = 64
LONGEST_HEADER = 1024
"""A longer one is ignored: it would take milliseconds of the event loop for each request."""


class Endpoint(ABC):
    """The content of one path."""

    @abstractmethod
    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        """The current response; openmetrics and gzip are what the client prefers.

        It is called on the event loop and must return from memory, in microseconds.
        """

    def narrowed(self, query: str) -> "Endpoint":  # noqa: ARG002
        """The endpoint that answers a request with this query; most ignore it."""
        return self


class Health(Endpoint):
    """The liveness probe: the server responds."""

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        return text_response(200, "ok")


class Routes:
    """Finds the response to a request."""

    def __init__(
        self, endpoints: Mapping[str, Endpoint], ready: Endpoint, security: "WebSecurity | None"
    ) -> None:
        for path in endpoints:
            if not path.startswith("/") or "?" in path:
                raise PathError(f"{path!r}: a path starts with / and has no ?")
            if path in PROBES:
                raise PathError(f"{path}: this path is reserved for the probes")
        self._endpoints: Mapping[str, Endpoint] = {**endpoints, HEALTH: Health(), READY: ready}
        self._security = security

    def answer(self, request: Request, client: "Client", reply: Callable[[Response], None]) -> None:
        """Call `reply` with the response, now or when a password has been verified."""
        security = self._security
        if security is None:
            reply(self.respond(request))
        elif request.path in PROBES:
            reply(_with(self.respond(request), security.headers))
        else:
            security.admit(
                request,
                client,
                lambda refusal: reply(_with(refusal or self.respond(request), security.headers)),
            )

    def respond(self, request: Request) -> Response:
        """The response to an authorised request."""
        endpoint = self._endpoints.get(request.path)
        if endpoint is None:
            return text_response(404, f"not found; paths: {', '.join(self._endpoints)}")
        if request.method not in METHODS:
            return text_response(405, "only GET and HEAD", ("Allow", ", ".join(METHODS)))
        if request.query:
            endpoint = endpoint.narrowed(request.query)
        return endpoint.respond(wants_openmetrics(request.accept), wants_gzip(request.accept_encoding))


def _with(response: Response, headers: tuple[tuple[str, str], ...]) -> Response:
    """The response with the configured headers, which replace ours."""
    if not headers:
        return response
    names = {name for name, _ in headers}
    kept = tuple(header for header in response.headers if header[0] not in names)
    return replace(response, headers=kept + headers)


def wants_openmetrics(accept: str) -> bool:
    """Whether the client accepts OpenMetrics by name, and prefers no kind of plain text to it."""
    return len(accept) <= LONGEST_HEADER and _openmetrics(accept)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether the client accepts gzip and does not prefer an uncompressed body."""
    return len(accept_encoding) <= LONGEST_HEADER and _gzip(accept_encoding)


@lru_cache(CACHED_HEADERS)
def _openmetrics(accept: str) -> bool:
    openmetrics = 0.0
    plain = {"text/plain": -1.0, "text/*": -1.0, "*/*": -1.0}
    for kind, parameters, quality in _elements(accept):
        if parameters.get("charset", "utf-8").lower() != "utf-8":
            continue
        version = parameters.get("version", "")
        if kind == OPENMETRICS and version in OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, quality)
        elif kind in plain and version in TEXT_VERSIONS:
            plain[kind] = max(plain[kind], quality)
    # The most specific media range decides for plain text.
    text = next((quality for quality in plain.values() if quality >= 0), 0.0)
    return openmetrics > 0 and openmetrics >= text


@lru_cache(CACHED_HEADERS)
def _gzip(accept_encoding: str) -> bool:
    qualities: dict[str, float] = {}
    for coding, _, quality in _elements(accept_encoding):
        name = "gzip" if coding == "x-gzip" else coding
        qualities[name] = max(qualities.get(name, 0.0), quality)
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def _elements(header: str) -> list[tuple[str, dict[str, str], float]]:
    """`a;version=1;q=0.5, b` -> [("a", {"version": "1"}, 0.5), ("b", {}, 1.0)]; never fails."""
    elements = []
    for element in header.split(","):
        name, *rest = element.split(";")
        parameters = {}
        for parameter in rest:
            key, _, value = parameter.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        if name.strip():
            elements.append((name.strip().lower(), parameters, _quality(parameters.get("q", "1"))))
    return elements


def _quality(text: str) -> float:
    """A weight between 0 and 1; 0 ("not acceptable") where it is malformed."""
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
