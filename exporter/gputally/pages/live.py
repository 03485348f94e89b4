"""The data of the live page: JSON, a stream, the last hour. Nothing is serialised until a client asks."""

import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gputally.ledger.clock import since_boot_us
from gputally.model import Snapshot
from gputally.pages.about import About
from gputally.pages.history import History
from gputally.server import Broadcast, Endpoint, Response, text_response

SNAPSHOT, HISTORY, STREAM = "/api/v1/snapshot", "/api/v1/history", "/api/v1/stream"
MOST_STREAMS = 64
"""Of 256 connections, so that scrapers always find one."""
RETRY = b"retry: 5000\n\n"
FULL_RETRY_SECONDS = 60
GZIP_LEVEL, GZIP_FORMAT = 1, 31
JSON = "application/json"
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
OTHER_SITES = ("Cross-Origin-Resource-Policy", "same-origin")
VARY, GZIP = ("Vary", "Accept-Encoding"), ("Content-Encoding", "gzip")
UNBUFFERED = ("X-Accel-Buffering", "no")
"""For nginx, which would hold the messages back."""


class Live:
    """The newest snapshot for people. The sampling thread calls `publish`, the server's thread the rest."""

    def __init__(self, about: About, first: Snapshot, replace_stale: Callable[[], None]) -> None:
        self._about = about
        self._replace_stale = replace_stale
        self._now = _Moment(first, None, about)
        self._history = History(about.interval_seconds)
        self._streams = Broadcast(MOST_STREAMS, before_beat=replace_stale)
        self.by_path: Mapping[str, Endpoint] = {
            SNAPSHOT: JsonEndpoint(self._document),
            HISTORY: JsonEndpoint(self._hour),
            STREAM: StreamEndpoint(self._streams, self._message),
        }

    def _document(self, gzip: bool) -> bytes:
        self._replace_stale()
        return self._now.document(gzip)

    def _hour(self, gzip: bool) -> bytes:
        return self._now.history(self._history, gzip)

    def _message(self) -> bytes:
        self._replace_stale()
        return self._now.message()

    def publish(self, snapshot: Snapshot) -> None:
        before = self._now.snapshot
        previous = (
            # Only its energies are needed: the rest of its memory is released.
            replace(before, readings=(), uses=(), pods=(), sources=()) if before.sources else None
        )
        self._now = now = _Moment(snapshot, previous, self._about)
        self._history.add(snapshot.readings, snapshot.taken_at_seconds, since_boot_us() / 1e6)
        if self._streams.wanted:
            self._streams.publish(now.message())


class _Moment:
    """One snapshot, and what has been made of it: once for all clients."""

    def __init__(self, snapshot: Snapshot, previous: Snapshot | None, about: About) -> None:
        self.snapshot = snapshot
        self._previous = previous
        self._about = about
        self._made: dict[str, bytes] = {}
        self._making = threading.Lock()

    def document(self, gzip: bool) -> bytes:
        return self._gzipped("document", self._document) if gzip else self._once("document", self._document)

    def history(self, history: History, gzip: bool) -> bytes:
        return self._gzipped("history", history.json) if gzip else self._once("history", history.json)

    def message(self) -> bytes:
        """JSON has no line breaks, so that it is one line of the event."""
        return b"event: snapshot\ndata: " + self.document(gzip=False) + b"\n\n"

    def _document(self) -> bytes:
        from gputally.pages.document import build_document  # noqa: PLC0415  # only for an open page

        return _json(build_document(self.snapshot, self._previous, self._about))

    def _gzipped(self, name: str, make: Callable[[], bytes]) -> bytes:
        plain = self._once(name, make)
        return self._once(f"{name}.gz", lambda: zlib.compress(plain, GZIP_LEVEL, wbits=GZIP_FORMAT))

    def _once(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._made:
            with self._making:
                if name not in self._made:
                    self._made[name] = make()
        return self._made[name]


class JsonEndpoint(Endpoint):
    """A document."""

    def __init__(self, body: Callable[[bool], bytes]) -> None:
        self._body = body

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        headers = (VARY, NO_SNIFFING, OTHER_SITES)
        return Response(200, JSON, self._body(gzip), (*headers, GZIP) if gzip else headers)


class StreamEndpoint(Endpoint):
    """Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html"""

    def __init__(self, streams: Broadcast, message: Callable[[], bytes]) -> None:
        self._streams = streams
        self._message = message

    def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
        if self._streams.full:
            reason = f"{MOST_STREAMS} live pages are open: read {SNAPSHOT} instead"
            return text_response(503, reason, ("Retry-After", str(FULL_RETRY_SECONDS)))
        headers = (NO_SNIFFING, OTHER_SITES, UNBUFFERED)
        return Response(
            200, "text/event-stream", RETRY, headers, more=(self._message(),), stream=self._streams
        )


def _json(document: Mapping[str, Any]) -> bytes:
    import json  # noqa: PLC0415  # only for an open page

    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
