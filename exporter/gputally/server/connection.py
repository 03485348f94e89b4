"""One client: its requests are answered one at a time, in their order, within the limits.

A connection holds at most one read of undigested input, a few parsed requests and `CHUNK` bytes of
output on top of what the kernel buffers: bodies are shared between clients and sent piece by piece.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from gputally.server.crowd import Crowd
from gputally.server.limits import Limits
from gputally.server.messages import Request, Response, encode_head
from gputally.server.reader import RequestReader

CHUNK = 64 * 1024


class Answering(Protocol):
    """How requests become responses."""

    def answer(self, request: Request, reply: Callable[[Response], None]) -> None:
        """Find the response and call `reply` with it, once, now or later, on the event loop."""
        ...


class Connection(asyncio.Protocol):
    """HTTP/1.0 and 1.1 with one client."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, crowd: Crowd, answering: Answering, limits: Limits
    ) -> None:
        self._loop = loop
        self._crowd = crowd
        self._answering = answering
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(limits)
        self._discarded = 0
        self._ended = False  # the client has said that it sends no more

        self._answers = False  # one request is being answered
        self._keep_alive = True  # after that one
        self._head_only = False  # of that one
        self._unsent = memoryview(b"")
        self._full = False  # the kernel takes no more output for now

        self.known = False
        self.deadline = 0.0

    # --- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type for mypy
        self._talk_on(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - clients come and go
        """The client is gone, or we have cut it off."""
        self._crowd.leaves(self)
        self._reader.close()
        self._transport = None
        self._unsent = memoryview(b"")

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        reader = self._reader
        if reader.complete:
            self._discarded += len(data)
            if self._discarded > self._limits.discarded_bytes:
                self.abort()
            return
        reader.feed(data)
        if self._answers:
            return
        if reader.queue:
            self._next()
        elif reader.began_now and self.known:
            self._crowd.allow(self, self._limits.request_seconds)

    def eof_received(self) -> bool:
        """The client sends no more; whether the connection stays open until it has its answers."""
        self._ended = self._reader.complete = True
        if self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no half-closed connections
        return self._answers or bool(self._reader.queue)

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._full = True

    def resume_writing(self) -> None:
        """All that we gave to the transport has left."""
        self._full = False
        if self._answers:
            self._send_rest()

    # --- the crowd's calls -----------------------------------------------------------------------

    def abort(self) -> None:
        """Cut the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Close as soon as what is being answered has been sent."""
        self._reader.close()
        if not self._answers and self._transport is not None:
            self._transport.close()

    # --- from request to response ----------------------------------------------------------------

    def _talk_on(self, transport: asyncio.Transport) -> None:
        # What is unsent pauses us: the next chunk follows when the last one has left. Not high=0, with
        # which a TLS transport pauses for an empty buffer and never resumes.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._crowd.waits(self, self._limits.request_seconds)

    def _next(self) -> None:
        if self._answers or self._transport is None or not self._reader.queue:
            return
        self._answers = True
        self._crowd.works(self, self._limits.answer_seconds)
        asked = self._reader.queue.popleft()
        if isinstance(asked, Response):
            self._head_only = False
            self._send(asked)
        else:
            self.known = True
            self._head_only = asked.method == "HEAD"
            self._answering.answer(asked, self._send)

    def _send(self, response: Response) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._keep_alive = bool(self._reader.queue) or not self._reader.complete
        head = encode_head(response, time.time(), self._keep_alive)
        body = b"" if self._head_only else response.body
        self._unsent = memoryview(body)[CHUNK:]
        self._transport.write(head + body[:CHUNK])
        self._send_rest()

    def _send_rest(self) -> None:
        if self._transport is None:
            return
        while len(self._unsent) and not self._full:
            chunk, self._unsent = self._unsent[:CHUNK], self._unsent[CHUNK:]
            self._transport.write(chunk)
        if self._full:
            self._crowd.stalls(self, self._limits.stall_seconds)
        else:
            self._answers = False
            self._carry_on(self._transport)

    def _carry_on(self, transport: asyncio.Transport) -> None:
        """The answer is out: wait for the next request, take it from the queue, or hang up."""
        reader = self._reader
        if not reader.queue and (reader.complete or not self._keep_alive):
            self._hang_up(transport)
            return
        begun = reader.inside or reader.queue
        self._crowd.waits(self, self._limits.request_seconds if begun else self._limits.idle_seconds)
        if reader.queue:
            # Others first: a client that sends many requests at once must not keep the loop to itself.
            self._loop.call_soon(self._next)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        self._reader.close()
        self._crowd.waits(self, self._limits.linger_seconds)
        if self._ended or not transport.can_write_eof():
            transport.close()
        else:
            # Leave our ear open: to close it while the client still sends would reset the connection
            # and take the answer out of the client's hands.
            transport.write_eof()
