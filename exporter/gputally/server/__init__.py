"""HTTP for scrapers, probes and browsers. It imports nothing about GPUs: it serves `Endpoint`s by path.

httptools (llhttp) parses the protocol on asyncio; the rest is here because no library had these limits,
which keep slow and hostile clients from delaying a scrape, at this cost.
"""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputally.server.broadcast import Broadcast
from gputally.server.connection import Connection, ConnectionPool
from gputally.server.errors import ListenError, PathError, ServerError, WebConfigError
from gputally.server.http1 import Response, text_response
from gputally.server.limits import Limits
from gputally.server.routes import Endpoint, Routes

if TYPE_CHECKING:
    from gputally.server.web_security import WebSecurity

__all__ = [
    "Broadcast",
    "Endpoint",
    "Limits",
    "ListenError",
    "PathError",
    "Response",
    "Server",
    "ServerError",
    "WebConfigError",
    "format_address",
    "parse_address",
    "text_response",
]

log = logging.getLogger(__name__)

DEFAULT_PORT = 9400
ALL_ADDRESSES = ("", "*")
BACKLOG = 1024
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
ACCEPTS_PER_TURN = 16
"""Few new connections per turn of the loop, so that each can be read before a flood evicts it."""
WARNING_INTERVAL_SECONDS = 60.0
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """Serves endpoints by path over HTTP, or HTTPS where `web_config` has TLS.

    `open` then `run`; `stop` from any thread or signal handler. Raises ListenError, PathError
    and WebConfigError, all of them ServerErrors, before anything is served.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        ready: Endpoint,
        *,
        listen: str = ":9400",
        web_config: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._host, self._port = parse_address(listen)
        self._limits = _within_descriptors(limits or Limits())
        self._security = _web_security(web_config, self._limits) if web_config is not None else None
        self._routes = Routes(endpoints, ready, self._security)
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stop_requested = False
        self._pool: ConnectionPool | None = None
        self._warned_at = -WARNING_INTERVAL_SECONDS

    def open(self) -> None:
        """Listen. Clients can connect from here on; `run` responds to them."""
        if not self._sockets:
            self._sockets = open_sockets(self._host, self._port)

    @property
    def port(self) -> int:
        """The port of the listening socket; known also where 0 was configured."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else self._port

    @property
    def url(self) -> str:
        """The landing page, for a browser on this machine."""
        scheme = "http" if self._security is None or self._security.tls is None else "https"
        everywhere = self._host in ("", "*", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
        return f"{scheme}://{format_address('localhost' if everywhere else self._host, self.port)}/"

    def run(self) -> None:
        """Respond on this thread until `stop`; responses in flight may finish briefly after it."""
        self.open()
        try:
            asyncio.run(self._serve())
        finally:
            for opened in self._sockets:
                opened.close()
            self._sockets = []

    def stop(self) -> None:
        """Make `run` return, within a second. Safe in signal handlers and in other threads."""
        self._stop_requested = True
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._handle_exception)
        self._pool = pool = ConnectionPool(loop, self._limits.connections)
        self._stop = asyncio.Event()
        self._loop = loop
        if self._stop_requested:
            return
        listeners = []
        for opened in self._sockets:
            listeners.append(
                await loop.create_server(
                    lambda: self._connection(loop, pool), sock=opened, backlog=ACCEPTS_PER_TURN
                )
            )
            # create_server has shortened the kernel's queue to ACCEPTS_PER_TURN.
            opened.listen(BACKLOG)
        await self._stop.wait()
        for listener in listeners:
            listener.close()
        pool.retire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.shutdown_seconds):
                await pool.empty.wait()
        pool.abort()
        await asyncio.sleep(0)

    def _connection(self, loop: asyncio.AbstractEventLoop, pool: ConnectionPool) -> Connection:
        tls = self._security.tls if self._security is not None else None
        if tls is None:
            return Connection(loop, pool, self._routes, self._limits)
        from gputally.server.tls import TlsConnection  # noqa: PLC0415  # ssl costs memory

        return TlsConnection(loop, pool, self._routes, self._limits, tls)

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
            # The event loop accepts again after a second; make room until then.
            if self._pool is not None:
                self._pool.shed()
            if time.monotonic() - self._warned_at >= WARNING_INTERVAL_SECONDS:
                self._warned_at = time.monotonic()
                log.warning("cannot accept connections: %s", error.strerror)
        elif isinstance(error, OSError | UnicodeDecodeError):
            # ssl.SSLError is an OSError; a name in a client's certificate may not be text.
            log.debug("a client's connection failed: %s", error)
        else:
            loop.default_exception_handler(dict(context))


def _web_security(path: Path, limits: Limits) -> "WebSecurity":
    from gputally.server.web_security import WebSecurity  # noqa: PLC0415  # YAML, TLS and bcrypt cost memory

    return WebSecurity(path, limits.waiting_logins)


def _within_descriptors(limits: Limits) -> Limits:
    """At most half of the file descriptors of this process are connections."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, allowed // 2)))


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9400`, `:9400`, `[::1]:9400` or a bare host -> (host, port).

    An empty host means every address of this machine, IPv4 and IPv6.
    """
    address = text.strip()
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ListenError(f"cannot listen on {text!r}: expected [address]:port")
        port = rest[1:]
    elif address.count(":") > 1:
        host, port = address, ""
    else:
        host, _, port = address.partition(":")
    if not port:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ListenError(f"cannot listen on {text!r}: the port must be a number from 0 to 65535")
    return host, int(port)


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`; port 0 picks one port for all of them."""
    try:
        if host in ALL_ADDRESSES:
            return [_open_all(port)]
        # As bytes, because text loads the tables of international names: 0.2 MiB.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    except OSError as error:
        raise ListenError(_explain(f"port {port}", error)) from error
    sockets: list[socket.socket] = []
    for family, *_, address in dict.fromkeys(found):
        # One port for all addresses of a name, also when the kernel picks it.
        chosen = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_open(family, (address[0], chosen, *address[2:])))
        except OSError as error:
            if error.errno in NO_IPV6 and len(found) > 1:
                continue  # `localhost` also resolves to ::1 where IPv6 is off
            for opened in sockets:
                opened.close()
            raise ListenError(_explain(format_address(host, port), error)) from error
    if not sockets:
        raise ListenError(f"cannot listen on {format_address(host, port)}: it is no address of this machine")
    return sockets


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _open_all(port: int) -> socket.socket:
    try:
        return _open(socket.AF_INET6, ("::", port), both_families=True)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
        return _open(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - every address is configured


def _open(family: int, address: tuple[str | int, ...], both_families: bool = False) -> socket.socket:
    # asyncio turns Nagle's algorithm off only where the protocol is named. With it, a response in several
    # pieces waits 40 ms for the client's delayed acknowledgement.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both_families))
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _explain(where: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: another program uses it"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: no permission (ports below 1024 need CAP_NET_BIND_SERVICE)"
    return f"cannot listen on {where}: {os.strerror(error.errno or 0)}"
