"""The server itself: opens its address, answers until it is told to stop, and stops quickly."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputally.server.connection import Connection
from gputally.server.crowd import Crowd
from gputally.server.limits import Limits
from gputally.server.listen import BACKLOG, format_address, open_sockets, parse_address
from gputally.server.pages import Pages
from gputally.server.site import Site

if TYPE_CHECKING:
    from gputally.server.protection import Protection

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 16
"""Few newcomers per turn of the loop, so that one of them can be read before a flood evicts it."""
FAREWELL_SECONDS = 0.6
COMPLAINT_SECONDS = 60.0
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """Serves `pages` over HTTP, or HTTPS when `web_config` says so.

    `open` then `run`; `stop` from any thread or signal handler. Raises ListenError, PathError
    and WebConfigError, all of them ServerErrors, before anything is served.
    """

    def __init__(
        self,
        pages: Pages,
        *,
        listen: str = ":9400",
        metrics_paths: tuple[str, ...] = ("/metrics",),
        web_config: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._host, self._port = parse_address(listen)
        self._protection = _protection(web_config) if web_config is not None else None
        self._site = Site(pages, metrics_paths, self._protection)
        self._limits = _within_descriptors(limits or Limits())
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stop_asked = False
        self._crowd: Crowd | None = None
        self._complained_at = -COMPLAINT_SECONDS

    def open(self) -> None:
        """Listen. From here on clients can connect; they are answered when `run` runs."""
        if not self._sockets:
            self._sockets = open_sockets(self._host, self._port)

    @property
    def port(self) -> int:
        """The port that is listened on, also when 0 was asked for."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else self._port

    @property
    def address(self) -> str:
        """`host:port` as it is listened on; the host stays empty when it is every address."""
        return format_address(self._host, self.port)

    @property
    def url(self) -> str:
        """Where a person on this machine finds the landing page."""
        scheme = "http" if self._protection is None or self._protection.tls is None else "https"
        everywhere = self._host in ("", "*", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
        return f"{scheme}://{format_address('localhost' if everywhere else self._host, self.port)}/"

    def run(self) -> None:
        """Answer requests on this thread until `stop`; then let responses in flight finish, briefly."""
        self.open()
        try:
            asyncio.run(self._serve())
        finally:
            for opened in self._sockets:
                opened.close()
            self._sockets = []

    def stop(self) -> None:
        """Make `run` return, within a second. Safe in signal handlers and in other threads."""
        self._stop_asked = True
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: we have stopped
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._handle_exception)
        self._crowd = crowd = Crowd(loop, self._limits.connections)
        self._stop = asyncio.Event()
        self._loop = loop
        if self._stop_asked:
            return
        listeners = []
        for opened in self._sockets:
            listeners.append(
                await loop.create_server(
                    lambda: self._connection(loop, crowd), sock=opened, backlog=ACCEPTS_PER_TURN
                )
            )
            # The event loop has just made the kernel's queue as short as its turns.
            opened.listen(BACKLOG)
        await self._stop.wait()
        for listener in listeners:
            listener.close()
        crowd.retire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await crowd.empty.wait()
        crowd.abort()
        await asyncio.sleep(0)

    def _connection(self, loop: asyncio.AbstractEventLoop, crowd: Crowd) -> Connection:
        tls = self._protection.tls if self._protection is not None else None
        if tls is None:
            return Connection(loop, crowd, self._site, self._limits)
        from gputally.server.secure import SecureConnection  # noqa: PLC0415 - only where TLS is in use

        return SecureConnection(loop, crowd, self._site, self._limits, tls)

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
            # The event loop pauses for a second before it accepts again; make room meanwhile.
            if self._crowd is not None:
                self._crowd.shed()
            if time.monotonic() - self._complained_at >= COMPLAINT_SECONDS:
                self._complained_at = time.monotonic()
                log.warning("cannot accept connections: %s", error.strerror)
        elif isinstance(error, OSError):
            log.debug("a client's connection failed: %s", error)  # of which ssl.SSLError is one
        else:
            loop.default_exception_handler(dict(context))


def _protection(path: Path) -> "Protection":
    # YAML, TLS and bcrypt cost memory: only who asks for them pays.
    from gputally.server.protection import Protection  # noqa: PLC0415

    return Protection(path)


def _within_descriptors(limits: Limits) -> Limits:
    """No more connections than half of the descriptors that this process may open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, allowed // 2)))
