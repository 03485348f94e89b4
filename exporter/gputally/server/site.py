"""Which path gives which page, for which method, and who may see it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gputally.server.errors import PathError
from gputally.server.messages import Request, Response, text_response
from gputally.server.negotiation import wants_gzip, wants_openmetrics
from gputally.server.pages import Page, Pages

if TYPE_CHECKING:
    from gputally.server.protection import Protection

HEALTH, READY, LANDING = "/healthz", "/readyz", "/"
OPEN_PATHS = (HEALTH, READY)
METHODS = ("GET", "HEAD")
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
# The landing page needs its own style sheet and nothing else; no script may run in it.
ONLY_STYLE = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
VARY = ("Vary", "Accept, Accept-Encoding")
GZIP = ("Content-Encoding", "gzip")


class Site:
    """Answers requests from `pages`."""

    def __init__(self, pages: Pages, metrics_paths: tuple[str, ...], protection: "Protection | None") -> None:
        for path in metrics_paths:
            if not path.startswith("/") or "?" in path:
                raise PathError(f"the metrics path {path!r} must start with / and have no ? in it")
            if path in OPEN_PATHS:
                raise PathError(f"the metrics path cannot be {path}: that is where the probes are answered")
        self._pages = pages
        self._protection = protection
        # Metrics last: whoever wants them at / gets them there instead of the landing page.
        self._routes: dict[str, Callable[[Request], Response]] = {
            HEALTH: self._health,
            READY: self._ready,
            LANDING: self._landing,
            **dict.fromkeys(metrics_paths, self._metrics),
        }
        self._paths = ", ".join((*metrics_paths, HEALTH, READY, LANDING))

    def answer(self, request: Request, reply: Callable[[Response], None]) -> None:
        """Find the response and call `reply` with it."""
        protection = self._protection
        if protection is None:
            reply(self.respond(request))
        elif request.path in OPEN_PATHS:
            reply(_with(self.respond(request), protection.headers))
        else:
            protection.admit(
                request, lambda refusal: reply(_with(refusal or self.respond(request), protection.headers))
            )

    def respond(self, request: Request) -> Response:
        """The response for somebody who may have it."""
        page = self._routes.get(request.path)
        if page is None:
            return text_response(404, f"nothing here; try {self._paths}")
        if request.method not in METHODS:
            return text_response(405, "only GET and HEAD", ("Allow", ", ".join(METHODS)))
        return page(request)

    def _metrics(self, request: Request) -> Response:
        page = self._pages.metrics(
            request.path, wants_openmetrics(request.accept), wants_gzip(request.accept_encoding)
        )
        return _response(page, VARY, NO_SNIFFING)

    def _landing(self, _: Request) -> Response:
        return _response(self._pages.landing(), ONLY_STYLE, NO_SNIFFING)

    def _health(self, _: Request) -> Response:
        return text_response(200, "ok")

    def _ready(self, _: Request) -> Response:
        ready, reason = self._pages.ready()
        return text_response(200 if ready else 503, reason)


def _response(page: Page, *headers: tuple[str, str]) -> Response:
    return Response(page.status, page.content_type, page.body, (*headers, GZIP) if page.gzipped else headers)


def _with(response: Response, headers: tuple[tuple[str, str], ...]) -> Response:
    """The response with the operator's headers, which replace ours."""
    if not headers:
        return response
    theirs = {name for name, _ in headers}
    kept = tuple(header for header in response.headers if header[0] not in theirs)
    return Response(response.status, response.content_type, response.body, kept + headers)
