"""The exporter's endpoints by path: metrics, landing page and readiness, updated with every snapshot."""

import re
import time
from io import BytesIO
from typing import TYPE_CHECKING

from gputally import __version__
from gputally.metrics.exposition import OPENMETRICS, TEXT, Exposition
from gputally.metrics.families import FamiliesOf
from gputally.model import Snapshot
from gputally.server import Endpoint, Response, text_response

if TYPE_CHECKING:
    from gputally.relay import Relayed, Upstream

LANDING = "/"
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
# The landing page needs its own style sheet and nothing else; no script may run in it.
ONLY_STYLE = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
METRICS_HEADERS = (("Vary", "Accept, Accept-Encoding"), NO_SNIFFING)
GZIP = ("Content-Encoding", "gzip")
_EOF = b"# EOF\n"
_NAME = re.compile(rb"^(?:# (?:HELP|TYPE|UNIT) )?([a-zA-Z_:][a-zA-Z0-9_:]*)", re.MULTILINE)


class MetricsEndpoint(Endpoint):
    """The newest snapshot as metrics."""

    def __init__(self, families_of: FamiliesOf) -> None:
        nothing_yet = Snapshot(taken_at_seconds=time.time(), age_seconds=0, readings=(), sources=())
        self.exposition = Exposition(families_of, nothing_yet)

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        body = self.exposition.body(openmetrics=openmetrics, gzipped=gzip)
        headers = (*METRICS_HEADERS, GZIP) if gzip else METRICS_HEADERS
        return Response(200, OPENMETRICS if openmetrics else TEXT, body, headers)


class LandingEndpoint(Endpoint):
    """The page for people."""

    def __init__(self, exposition: Exposition, hostname: str, metrics_path: str) -> None:
        self._exposition = exposition
        self._hostname = hostname
        self._metrics_path = metrics_path

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        from gputally.pages.landing import render_landing  # noqa: PLC0415  # scrapers never request it

        body = render_landing(
            self._exposition.snapshot,
            version=__version__,
            hostname=self._hostname,
            metrics_path=self._metrics_path,
        )
        return Response(200, "text/html; charset=utf-8", body, (ONLY_STYLE, NO_SNIFFING))


class ReadyEndpoint(Endpoint):
    """200 when the metrics are current, else 503; one line with the reason."""

    def __init__(self, exposition: Exposition, max_age_seconds: float) -> None:
        self._exposition = exposition
        self._max_age_seconds = max_age_seconds

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        ready, reason = readiness(self._exposition.snapshot, time.time(), self._max_age_seconds)
        return text_response(200 if ready else 503, reason)


class RelayedEndpoint(Endpoint):
    """The relayed text; a 503 with the reason while there is none, so that the target is down."""

    def __init__(self) -> None:
        self._response = _unavailable("the first sample is not finished")

    def publish(self, relayed: "Relayed | None", reason: str) -> None:
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

    def publish(self, relayed: "Relayed | None") -> None:
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

    def __init__(self, upstream: "Upstream", ours: MetricsEndpoint | None) -> None:
        self._upstream = upstream
        self.relayed = RelayedEndpoint()
        self.joined = JoinedEndpoint(ours) if ours is not None else None

    def publish(self, snapshot: Snapshot) -> None:
        relayed = self._upstream.relabelled(snapshot)
        self.relayed.publish(relayed, self._upstream.state().reason)
        if self.joined is not None:
            self.joined.publish(relayed)


class Endpoints:
    """`by_path` is served; `publish` updates it. `metrics` is the exposition at the metrics path."""

    def __init__(
        self, families_of: FamiliesOf, *, metrics_path: str, hostname: str, max_age_seconds: float
    ) -> None:
        self._main = MetricsEndpoint(families_of)
        self.metrics = self._main.exposition
        self.ready = ReadyEndpoint(self.metrics, max_age_seconds)
        self._metrics_path = metrics_path
        # With the metrics path / there is no landing page.
        self.by_path: dict[str, Endpoint] = {
            LANDING: LandingEndpoint(self.metrics, hostname, metrics_path),
            metrics_path: self._main,
        }
        self._others: Exposition | None = None
        self._relay: RelayEndpoints | None = None

    def add_metrics(self, path: str, families_of: FamiliesOf) -> None:
        """Serve other metrics of the snapshot at a path of their own."""
        endpoint = MetricsEndpoint(families_of)
        self._others = endpoint.exposition
        self.by_path[path] = endpoint

    def add_relay(self, path: str, upstream: "Upstream", *, append: bool) -> None:
        """Serve the relayed series at `path`; with `append`, at the metrics path as well."""
        self._relay = RelayEndpoints(upstream, self._main if append else None)
        self.by_path[path] = self._relay.relayed
        if self._relay.joined is not None:
            self.by_path[self._metrics_path] = self._relay.joined

    def publish(self, snapshot: Snapshot) -> None:
        self.metrics.publish(snapshot)
        if self._others is not None:
            self._others.publish(snapshot)
        if self._relay is not None:
            self._relay.publish(snapshot)


def readiness(snapshot: Snapshot, now_seconds: float, max_age_seconds: float) -> tuple[bool, str]:
    """Ready once every source was sampled, even if it failed, and while the readings are not too old."""
    if not snapshot.sources:
        return False, "not ready: the first sample is not finished"
    down = "; ".join(f"{source.name}: {source.reason}" for source in snapshot.sources if not source.up)
    age = snapshot.age_seconds + max(0.0, now_seconds - snapshot.taken_at_seconds)
    if age > max_age_seconds:
        return False, f"not ready: the readings are {age:.0f} s old" + (f" ({down})" if down else "")
    gpus = sum(reading.up for reading in snapshot.readings)
    return True, f"ready: {gpus} GPUs" + (f" ({down})" if down else "")


def _response(relayed: "Relayed", body: bytes) -> Response:
    return Response(200, relayed.content_type, body, METRICS_HEADERS)


def _unavailable(reason: str) -> Response:
    return text_response(503, f"no relayed series: {reason}", *METRICS_HEADERS)


def joined(ours: bytes, theirs: bytes) -> bytes:
    """Both texts as one. A family of ours is removed from theirs: a name must not occur twice."""
    known = set(_NAME.findall(ours))
    kept = (line for line in BytesIO(theirs) if (name := _NAME.match(line)) is None or name[1] not in known)
    return ours.removesuffix(_EOF) + b"".join(kept)
