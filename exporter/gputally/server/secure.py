"""A client that talks TLS: the handshake counts against the same limits as everything else.

The event loop's own TLS server would hide a connection until its handshake is done; here a client
that never finishes it can be timed out, counted and evicted like one that never sends a request.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol

from gputally.server.connection import Answering, Connection
from gputally.server.crowd import Crowd
from gputally.server.limits import Limits
from gputally.server.tls import Tls

# asyncio gives each TLS connection a read buffer of 256 KiB: 64 MiB for as many silent clients as we
# admit. A request is much smaller. Should the attribute go, only that memory is lost.
SSLProtocol.max_size = 16 * 1024


class SecureConnection(Connection):
    """HTTP inside TLS."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, crowd: Crowd, answering: Answering, limits: Limits, tls: Tls
    ) -> None:
        super().__init__(loop, crowd, answering, limits)
        self._tls = tls
        self._raw: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected and must shake hands."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type for mypy
        transport.pause_reading()
        self._raw = transport
        self._crowd.waits(self, self._limits.handshake_seconds)
        self._handshake = self._loop.create_task(self._shake_hands(transport))

    async def _shake_hands(self, raw: asyncio.Transport) -> None:
        try:
            secured = await self._loop.start_tls(
                raw,
                self,
                self._tls.context,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=self._limits.linger_seconds,
            )
        except OSError as error:  # of which ssl.SSLError is one
            # The traceback would tie all this to itself, and keep its buffers until the next full
            # garbage collection.
            error.__traceback__ = None
            raw.abort()
            return
        self._raw = None
        if secured is None or not self._admits(secured):
            raw.abort()
            return
        self._talk_on(secured)
        # The first request can be decrypted before this task gets to run again.
        early, self._early = b"".join(self._early), []
        if early:
            self.data_received(early)

    def _admits(self, transport: asyncio.Transport) -> bool:
        session = transport.get_extra_info("ssl_object")
        return isinstance(session, ssl.SSLObject) and self._tls.admits(session.getpeercert())

    def data_received(self, data: bytes) -> None:
        """The client has sent something, and it has been decrypted."""
        if self._transport is None:
            self._early.append(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._raw = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """Cut the connection now, in the middle of the handshake too."""
        if self._raw is not None:
            self._raw.abort()
        super().abort()

    def retire(self) -> None:
        """Close when what is being answered has been sent; a handshake is not an answer."""
        if self._raw is not None:
            self._raw.abort()
        super().retire()
