"""Endpoints with another exporter's series: alone, or appended to ours. Imported only for --relay."""

import re
from io import BytesIO

from gputally.model import Snapshot
from gputally.pages.endpoints import METRICS_HEADERS, MetricsEndpoint
from gputally.relay.upstream import Relayed, Upstream
from gputally.server import Endpoint, Response, text_response

_EOF = b"# EOF\n"
_NAME = re.compile(rb"^(?:# (?:HELP|TYPE|UNIT) )?([a-zA-Z_:][a-zA-Z0-9_:]*)", re.MULTILINE)


class RelayedEndpoint(Endpoint):
    """The relayed text; a 503 with the reason while there is none, so that the target is down."""

    def __init__(self) -> None:
        self._response = _unavailable("the first sample is not finished")

    def publish(self, relayed: Relayed | None, reason: str) -> None:
        """`reason` is why there is no text."""
        self._response = _response(relayed, relayed.text) if relayed else _unavailable(reason)

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        """In the format in which it was received: the formats cannot always be converted."""
        return self._response


class JoinedEndpoint(Endpoint):
    """Our metrics and then the relayed text, all in the format in which that was received."""

    def __init__(self, ours: MetricsEndpoint) -> None:
        self._ours = ours
        self._response: Response | None = None

    def publish(self, relayed: Relayed | None) -> None:
        """Call it after `ours` has its snapshot."""
        if relayed is None:
            self._response = None
            return
        ours = self._ours.exposition.body(openmetrics=relayed.openmetrics, gzipped=False)
        self._response = _response(relayed, joined(ours, relayed.text))

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        return self._response or self._ours.respond(openmetrics, gzip)


class RelayEndpoints:
    """The endpoints that one upstream fills; `joined` only where there are metrics of ours."""

    def __init__(self, upstream: Upstream, ours: MetricsEndpoint | None) -> None:
        self._upstream = upstream
        self.relayed = RelayedEndpoint()
        self.joined = JoinedEndpoint(ours) if ours is not None else None

    def publish(self, snapshot: Snapshot) -> None:
        relayed = self._upstream.relabelled(snapshot)
        self.relayed.publish(relayed, self._upstream.state().reason)
        if self.joined is not None:
            self.joined.publish(relayed)


def _response(relayed: Relayed, body: bytes) -> Response:
    return Response(200, relayed.content_type, body, METRICS_HEADERS)


def _unavailable(reason: str) -> Response:
    return text_response(503, f"no relayed series: {reason}", *METRICS_HEADERS)


def joined(ours: bytes, theirs: bytes) -> bytes:
    """Both texts as one. A family of ours is removed from theirs: a name must not occur twice."""
    known = set(_NAME.findall(ours))
    kept = (line for line in BytesIO(theirs) if (name := _NAME.match(line)) is None or name[1] not in known)
    return ours.removesuffix(_EOF) + b"".join(kept)
