"""The exporter's endpoints by path: metrics, live page and readiness, updated with every snapshot."""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputally import __version__
from gputally.ledger.clock import since_boot_us
from gputally.metrics.exposition import OPENMETRICS, TEXT, Exposition
from gputally.metrics.families import FamiliesOf
from gputally.model import Snapshot, SourceState
from gputally.pages.about import About
from gputally.pages.assets import TYPES, Asset
from gputally.pages.narrowed import BadQueryError, Narrow
from gputally.server import Endpoint, Response, text_response

if TYPE_CHECKING:
    from gputally.pages.live import Live
    from gputally.relay import Upstream

log = logging.getLogger(__name__)

LANDING = "/"
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
# Own files only, and no text becomes HTML or a script, whatever a script does with it.
ONLY_OWN = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
)
PAGE_HEADERS = (ONLY_OWN, NO_SNIFFING, ("Referrer-Policy", "no-referrer"))
METRICS_HEADERS = (("Vary", "Accept, Accept-Encoding"), NO_SNIFFING)
GZIP = ("Content-Encoding", "gzip")
_TYPE = re.compile(rb"^# TYPE (\S+) ", re.MULTILINE)

RelayedFamilies = Sequence[tuple[bytes, bytes]]
"""Names, each with the text of the family."""


class MetricsEndpoint(Endpoint):
    """The newest snapshot as metrics. With `narrow`, a query can select groups of them."""

    def __init__(self, families_of: FamiliesOf, narrow: Narrow | None = None) -> None:
        nothing_yet = Snapshot(taken_at_seconds=time.time(), age_seconds=0, readings=(), sources=())
        self.exposition = Exposition(families_of, nothing_yet)
        self._narrow = narrow

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        return _metrics(openmetrics, gzip, self.exposition.body(openmetrics=openmetrics, gzipped=gzip))

    def narrowed(self, query: str) -> Endpoint:
        try:
            groups = None if self._narrow is None else self._narrow.groups(query)
        except BadQueryError as error:
            return RefusedEndpoint(str(error))
        return self if groups is None else SelectedEndpoint(self.exposition, groups)

    def publish(self, snapshot: Snapshot) -> None:
        self.exposition.publish(snapshot)


class SelectedEndpoint(Endpoint):
    """Some groups of the metrics."""

    def __init__(self, exposition: Exposition, groups: frozenset[str]) -> None:
        self._exposition = exposition
        self._groups = groups

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        pieces = self._exposition.selected(self._groups, openmetrics=openmetrics, gzipped=gzip)
        return _metrics(openmetrics, gzip, more=pieces)


class RefusedEndpoint(Endpoint):
    """400 with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        return text_response(400, self._reason)


class LandingEndpoint(Endpoint):
    """The page for people."""

    def __init__(self, hostname: str, metrics_path: str, assets: Mapping[str, Asset]) -> None:
        self._hostname = hostname
        self._metrics_path = metrics_path
        self._assets = assets

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        from gputally.pages.landing import render_landing  # noqa: PLC0415  # scrapers never request it

        body = render_landing(
            version=__version__,
            hostname=self._hostname,
            metrics_path=self._metrics_path,
            assets={name: asset.url for name, asset in self._assets.items()},
        )
        return Response(200, "text/html; charset=utf-8", body, PAGE_HEADERS)


class ReadyEndpoint(Endpoint):
    """200 when the metrics are current, else 503; one line with the reason."""

    def __init__(self, exposition: Exposition, max_age_seconds: float) -> None:
        self._exposition = exposition
        self._max_age_seconds = max_age_seconds

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        ready, reason = readiness(self._exposition.snapshot, self._max_age_seconds)
        return text_response(200 if ready else 503, reason)


class CurrentEndpoint(Endpoint):
    """Another endpoint, after what is too old has been replaced."""

    def __init__(self, endpoint: Endpoint, replace_stale: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._replace_stale = replace_stale

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        self._replace_stale()
        return self._endpoint.respond(openmetrics, gzip)

    def narrowed(self, query: str) -> Endpoint:
        narrowed = self._endpoint.narrowed(query)
        return self if narrowed is self._endpoint else CurrentEndpoint(narrowed, self._replace_stale)


class RelayedEndpoint(Endpoint):
    """The relayed families; a 503 with the reason while there is none, so that the target is down."""

    def __init__(self) -> None:
        self._response = _unavailable("the first sample is not finished")

    def publish(self, relayed: RelayedFamilies | None, reason: str) -> None:
        """`reason` is why there are none."""
        if relayed is None:
            self._response = _unavailable(reason)
        else:
            self._response = _text(b"".join(text for _, text in relayed))

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        return self._response


class JoinedEndpoint(Endpoint):
    """Our metrics and then the relayed ones, in the text format."""

    def __init__(self, ours: MetricsEndpoint) -> None:
        self._ours = ours
        self._response: Response | None = None

    def publish(self, relayed: RelayedFamilies | None) -> None:
        """Call it after `ours` has its snapshot. A name that we serve must not occur twice."""
        if relayed is None:
            self._response = None
            return
        ours = self._ours.exposition.body(openmetrics=False, gzipped=False)
        known = set(_TYPE.findall(ours))
        self._response = _text(b"".join([ours, *(text for name, text in relayed if name not in known)]))

    def respond(self, openmetrics: bool, gzip: bool) -> Response:
        return self._response or self._ours.respond(openmetrics, gzip)

    def narrowed(self, query: str) -> Endpoint:
        """The relayed text has no groups: a selection is of our metrics only."""
        found = self._ours.narrowed(query)
        return self if found is self._ours else found


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
    """`by_path` and `ready` are served; `publish` updates them. `metrics` is that at the metrics path."""

    def __init__(
        self,
        families_of: FamiliesOf,
        *,
        narrow: Narrow | None = None,
        metrics_path: str,
        hostname: str,
        max_age_seconds: float,
        about: About | None = None,
    ) -> None:
        """With `about` there is a live page."""
        self._main = MetricsEndpoint(families_of, narrow)
        self.metrics = self._main.exposition
        self._metrics_path = metrics_path
        self._max_age_us = round(max_age_seconds * 1_000_000)
        self._publishing = threading.Lock()
        self._published_us = since_boot_us()
        self._stopped = False
        self.ready = self._current(ReadyEndpoint(self.metrics, max_age_seconds))
        self._live = self._build_live(about) if about is not None else None
        assets = {name: Asset(name) for name in TYPES} if self._live is not None else {}
        # With the metrics path / there is no landing page.
        self.by_path: dict[str, Endpoint] = {
            LANDING: LandingEndpoint(hostname, metrics_path, assets),
            **{f"/{name}": asset for name, asset in assets.items()},
            **(self._live.by_path if self._live is not None else {}),
            metrics_path: self._current(self._main),
        }
        self._others: MetricsEndpoint | None = None
        self._relay: RelayEndpoints | None = None

    def add_metrics(self, path: str, families_of: FamiliesOf) -> None:
        """Serve other metrics of the snapshot at a path of their own."""
        self._others = endpoint = MetricsEndpoint(families_of)
        self.by_path[path] = self._current(endpoint)

    def add_relay(self, path: str, upstream: "Upstream", *, append: bool) -> None:
        """Serve the relayed series at `path`; with `append`, at the metrics path as well."""
        self._relay = RelayEndpoints(upstream, self._main if append else None)
        self.by_path[path] = self._current(self._relay.relayed)
        if self._relay.joined is not None:
            self.by_path[self._metrics_path] = self._current(self._relay.joined)

    def publish(self, snapshot: Snapshot) -> None:
        with self._publishing:
            if self._stopped:
                log.warning("sampling continues")
            self._stopped, self._published_us = False, since_boot_us()
            self._serve(snapshot)

    def _build_live(self, about: About) -> "Live":
        from gputally.pages.live import Live  # noqa: PLC0415  # it can be disabled

        return Live(about, self.metrics.snapshot, self._replace_stale)

    def _current(self, endpoint: Endpoint) -> Endpoint:
        return CurrentEndpoint(endpoint, self._replace_stale)

    def _replace_stale(self) -> None:
        """Sampling isolates what can block; if it stops all the same, its last readings become too old."""
        if self._stopped or since_boot_us() - self._published_us <= self._max_age_us:
            return
        if not self._publishing.acquire(blocking=False):
            return  # there is a new snapshot
        try:
            age_seconds = (since_boot_us() - self._published_us) // 1_000_000
            log.error(
                "no sample for %d s: the GPUs are reported as down until sampling continues", age_seconds
            )
            self._stopped = True
            self._serve(stopped(self.metrics.snapshot, age_seconds))
        finally:
            self._publishing.release()

    def _serve(self, snapshot: Snapshot) -> None:
        self._main.publish(snapshot)
        if self._others is not None:
            self._others.publish(snapshot)
        if self._relay is not None:
            self._relay.publish(snapshot)
        if self._live is not None:
            self._live.publish(snapshot)


def stopped(snapshot: Snapshot, age_seconds: float) -> Snapshot:
    """What is left of a snapshot when sampling has stopped: the ledger, and the GPUs, all down."""
    sampling = SourceState(
        name="sampling", up=False, reason=f"no sample for {age_seconds:.0f} s", fix="restart the exporter"
    )
    return replace(
        snapshot,
        age_seconds=age_seconds,
        readings=tuple(reading.lost() for reading in snapshot.readings),
        sources=(*snapshot.sources, sampling),
        uses=(),
        processes=(),
    )


def readiness(snapshot: Snapshot, max_age_seconds: float) -> tuple[bool, str]:
    """Ready once every source was sampled, even if it failed, and while the readings are not too old."""
    if not snapshot.sources:
        return False, "not ready: the first sample is not finished"
    down = "; ".join(f"{source.name}: {source.reason}" for source in snapshot.sources if not source.up)
    if snapshot.age_seconds > max_age_seconds:
        age = f"the readings are {snapshot.age_seconds:.0f} s old"
        return False, f"not ready: {age}" + (f" ({down})" if down else "")
    gpus = sum(reading.up for reading in snapshot.readings)
    return True, f"ready: {gpus} GPUs" + (f" ({down})" if down else "")


def _metrics(
    openmetrics: bool, gzip: bool, body: bytes = b"", more: tuple[bytes | memoryview, ...] = ()
) -> Response:
    headers = (*METRICS_HEADERS, GZIP) if gzip else METRICS_HEADERS
    return Response(200, OPENMETRICS if openmetrics else TEXT, body, headers, more)


def _text(body: bytes) -> Response:
    return Response(200, TEXT, body, METRICS_HEADERS)


def _unavailable(reason: str) -> Response:
    return text_response(503, f"no relayed series: {reason}", *METRICS_HEADERS)
