"""Connections: each serves one request at a time, in order, within the limits; the pool bounds them all.

A connection holds at most one read of unparsed input, a few parsed requests and `CHUNK` bytes of
output on top of the kernel's buffers: bodies are shared between clients and sent in pieces.
"""

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from gputally.server.http1 import RequestParser, Response, encode_head
from gputally.server.limits import Limits
from gputally.server.routes import Routes

if TYPE_CHECKING:
    from gputally.server.broadcast import Broadcast

CHUNK = 64 * 1024
READ = 16 * 1024
"""Parsed at once; asyncio's 256 KiB would occupy the loop for milliseconds, in each turn, for each client."""
SWEEP_SECONDS = 0.25
"""Deadlines are kept to within this, so that a thousand of them cost one wake-up and not a thousand."""


class Member(Protocol):
    """What the pool needs of a connection."""

    deadline: float
    known: bool
    """It has sent at least one complete request."""

    def abort(self) -> None:
        """Close the connection now."""
        ...

    def retire(self) -> None:
        """Close as soon as the current response has been sent."""
        ...


class ConnectionPool:
    """A bounded set of connections with deadlines.

    When it is full, a new connection evicts the one that has been waiting longest without sending a
    request; a connection with a response in progress is never evicted for it. Connections that have never
    sent a complete request (strangers) are evicted before idle ones of scrapers (known), as long as there
    are more strangers: so neither a flood of silent clients nor one of clients that send one request and
    then stay idle can evict the other kind. When no connection waits, the one that has stalled longest
    while reading its response is evicted, and when none has, the oldest stream.

    No timer ticks: one is set for the earliest deadline, and moving a deadline later does not touch it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        # Dicts keep the order: the longest wait comes first.
        self._strangers: dict[Member, None] = {}
        self._known: dict[Member, None] = {}
        self._stalled: dict[Member, None] = {}
        self._streams: dict[Member, None] = {}
        self._busy: dict[Member, None] = {}
        self._groups = (self._strangers, self._known, self._stalled, self._streams, self._busy)
        self._timer: asyncio.TimerHandle | None = None
        self.empty = asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return sum(map(len, self._groups))

    def wait(self, member: Member, seconds: float) -> None:
        """`member` must send a request within `seconds`. Also adds a new connection."""
        self._take_out(member)
        if len(self) >= self._limit:
            self._evict()
        (self._known if member.known else self._strangers)[member] = None
        self.empty.clear()
        self.allow(member, seconds)

    def respond(self, member: Member, seconds: float) -> None:
        """A response to `member` is in progress, for at most `seconds`: it is not evicted."""
        self._take_out(member)
        self._busy[member] = None
        self.allow(member, seconds)

    def stall(self, member: Member, seconds: float) -> None:
        """`member` must read a part of its response within `seconds`."""
        self._take_out(member)
        self._stalled[member] = None
        self.allow(member, seconds)

    def stream(self, member: Member, seconds: float) -> None:
        """`member` has read all of its stream so far, which ends in `seconds`."""
        if member not in self._streams:  # a stream keeps its age
            self._take_out(member)
            self._streams[member] = None
        self.allow(member, seconds)

    def remove(self, member: Member) -> None:
        """`member` is closed."""
        self._take_out(member)
        if not len(self):
            self.empty.set()

    def allow(self, member: Member, seconds: float) -> None:
        """Set the deadline of `member`, `seconds` from now."""
        member.deadline = self._loop.time() + seconds
        if self._timer is None or member.deadline < self._timer.when() - SWEEP_SECONDS:
            self._wake_at(member.deadline)

    def shed(self) -> None:
        """Close half of the waiting connections: the host is short of descriptors or memory."""
        for _ in range((len(self._strangers) + len(self._known) + 1) // 2):
            self._evict()

    def retire(self) -> None:
        """Take no more requests; responses in progress may finish."""
        for member in self._members():
            member.retire()

    def abort(self) -> None:
        """Close all connections now."""
        if self._timer is not None:
            self._timer.cancel()
        for member in self._members():
            member.abort()

    def _members(self) -> list[Member]:
        return [member for group in self._groups for member in group]

    def _take_out(self, member: Member) -> None:
        for group in self._groups:
            group.pop(member, None)

    def _evict(self) -> None:
        waiting = self._strangers if len(self._strangers) >= len(self._known) else self._known
        group = waiting or self._stalled or self._streams
        if group:
            longest = next(iter(group))
            del group[longest]
            longest.abort()

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when + SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        members = self._members()
        for member in members:
            if member.deadline <= now:
                member.abort()
        later = [member.deadline for member in members if member.deadline > now]
        if later:
            self._wake_at(min(later))


class Connection(asyncio.Protocol):
    """HTTP/1.0 and 1.1 with one client."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: ConnectionPool, routes: Routes, limits: Limits
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._routes = routes
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._parser = RequestParser(limits)
        self._discarded = 0
        self._ended = False  # the client has closed its sending side

        self._responding = False  # a response is in progress
        self._keep_alive = True  # after this response
        self._head_only = False  # of this response
        self._unsent: deque[memoryview] = deque()
        self._full = False  # the kernel's buffer is full
        self._stream: Broadcast | None = None
        self._ends_at = 0.0  # the stream
        self._offered = b""  # its next message

        self.known = False
        self.deadline = 0.0

    @property
    def address(self) -> str:
        """The client's IP address."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if peer else ""

    @property
    def gone(self) -> bool:
        """The connection is closed, by either side."""
        return self._transport is None

    # --- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type for mypy
        transport.max_size = READ  # type: ignore[attr-defined]  # of asyncio's socket transports
        self._start(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a lost client is no error
        """The connection is closed, by either side."""
        self._pool.remove(self)
        self._parser.close()
        self._transport = None
        self._unsent.clear()
        if self._stream is not None:
            self._stream.leave(self)
            self._offered = b""

    def data_received(self, data: bytes) -> None:
        """The client has sent data."""
        parser = self._parser
        if parser.complete:
            self._discarded += len(data)
            if self._discarded > self._limits.discarded_bytes:
                self.abort()
            return
        parser.feed(data)
        if self._responding:
            return
        if parser.queue:
            self._next()
        elif parser.began_now and self.known:
            self._pool.allow(self, self._limits.request_seconds)

    def eof_received(self) -> bool:
        """The client sends no more. Returns whether the connection stays open for its responses."""
        self._ended = self._parser.complete = True
        if self._stream is not None:
            return False  # the browser has left the page
        if self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no half-closed connections
        return self._responding or bool(self._parser.queue)

    def pause_writing(self) -> None:
        """The kernel's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """The transport has sent everything."""
        self._full = False
        if self._responding:
            # Later: asyncio's transport, which calls this, is not prepared to be closed by it.
            self._loop.call_soon(self._send_rest)

    # --- the pool's calls ------------------------------------------------------------------------

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Close as soon as the current response has been sent."""
        self._parser.close()
        if self._transport is not None and (not self._responding or self._stream is not None):
            self._transport.close()

    # --- the stream's calls ----------------------------------------------------------------------

    def offer(self, message: bytes) -> None:
        """The newest message of the stream; it replaces one that has not been begun."""
        self._offered = message
        if not self._unsent and not self._full:
            self._send_rest()

    def beat(self, heartbeat: bytes) -> None:
        """Send it, unless a message is being sent."""
        if not self._unsent and not self._full:
            self.offer(heartbeat)

    # --- from request to response ----------------------------------------------------------------

    def _start(self, transport: asyncio.Transport) -> None:
        # Writing pauses while a chunk is unsent: the next one follows the last. Not high=0, with which a
        # TLS transport pauses for an empty buffer and never resumes.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._pool.wait(self, self._limits.request_seconds)

    def _next(self) -> None:
        if self._responding or self._transport is None or not self._parser.queue:
            return
        self._responding = True
        self._pool.respond(self, self._limits.response_seconds)
        request = self._parser.queue.popleft()
        if isinstance(request, Response):
            self._head_only = False
            self._send(request)
        else:
            self.known = True
            self._head_only = request.method == "HEAD"
            self._routes.answer(request, self, self._send)

    def _send(self, response: Response) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._keep_alive = bool(self._parser.queue) or not self._parser.complete
        if response.stream is not None:
            self._keep_alive = False
            if not self._head_only:
                self._begin_stream(response.stream)
        head = encode_head(response, time.time(), self._keep_alive)
        self._unsent.clear()
        if not self._head_only:
            self._unsent.extend(map(memoryview, (response.body, *response.more)))
        self._transport.write(head + self._next_chunk())
        self._send_rest()

    def _begin_stream(self, stream: "Broadcast") -> None:
        self._parser.close()
        self._stream = stream
        self._ends_at = self._loop.time() + self._limits.stream_seconds
        stream.join(self, self._loop)

    def _next_chunk(self) -> bytes | memoryview:
        if not self._unsent:
            return b""
        piece = self._unsent.popleft()
        if len(piece) > CHUNK:
            self._unsent.appendleft(piece[CHUNK:])
        return piece[:CHUNK]

    def _send_rest(self) -> None:
        transport = self._transport
        if transport is None:
            return
        # A client can reset the connection between two writes; asyncio logs further ones as warnings.
        while (self._unsent or self._offered) and not self._full and not transport.is_closing():
            if not self._unsent:
                self._unsent.append(memoryview(self._offered))
                self._offered = b""
            transport.write(self._next_chunk())
        if transport.is_closing():
            return
        if self._full:
            self._pool.stall(self, self._limits.stall_seconds)
        elif self._stream is not None:
            self._carry_on_streaming(transport)
        else:
            self._responding = False
            self._carry_on(transport)

    def _carry_on_streaming(self, transport: asyncio.Transport) -> None:
        left = self._ends_at - self._loop.time()
        if left > 0:
            # Heartbeats end it in time; the deadline is for a connection that gets none.
            self._pool.stream(self, left + self._limits.idle_seconds)
        else:
            transport.close()

    def _carry_on(self, transport: asyncio.Transport) -> None:
        """The response is sent: wait for the next request, take it from the queue, or close."""
        parser = self._parser
        if not parser.queue and (parser.complete or not self._keep_alive):
            self._finish(transport)
            return
        begun = parser.inside or parser.queue
        self._pool.wait(self, self._limits.request_seconds if begun else self._limits.idle_seconds)
        if parser.queue:
            # Other clients first: one that pipelines many requests must not occupy the loop.
            self._loop.call_soon(self._next)

    def _finish(self, transport: asyncio.Transport) -> None:
        self._parser.close()
        self._pool.wait(self, self._limits.linger_seconds)
        if self._ended or not transport.can_write_eof():
            transport.close()
        else:
            # Keep receiving: closing while the client still sends would reset the connection and could
            # discard the response before the client has read it.
            transport.write_eof()
