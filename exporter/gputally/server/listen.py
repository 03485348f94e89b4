"""Where to listen: from `127.0.0.1:9400`, `:9400`, `[::1]:9400` or a bare host to open sockets."""

import errno
import os
import socket

from gputally.server.errors import ListenError

DEFAULT_PORT = 9400
EVERYWHERE = ("", "*")
BACKLOG = 1024
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """`host:port` -> (host, port). An empty host means every address of this machine, IPv4 and IPv6."""
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
        return host, default_port
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ListenError(f"cannot listen on {text!r}: the port must be a number from 0 to 65535")
    return host, int(port)


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address that `host` means; port 0 picks one port for all of them."""
    try:
        if host in EVERYWHERE:
            return [_open_everywhere(port)]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    except OSError as error:
        raise ListenError(_explain(f"port {port}", error)) from error
    sockets: list[socket.socket] = []
    for family, *_, address in dict.fromkeys(found):
        # One port for all addresses of a name, also when the system picks it.
        chosen = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_open(family, (address[0], chosen, *address[2:])))
        except OSError as error:
            if error.errno in NO_IPV6 and len(found) > 1:
                continue  # `localhost` also names ::1 where IPv6 is turned off
            for opened in sockets:
                opened.close()
            raise ListenError(_explain(format_address(host, port), error)) from error
    if not sockets:
        raise ListenError(
            f"cannot listen on {format_address(host, port)}: no address of it is on this machine"
        )
    return sockets


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _open_everywhere(port: int) -> socket.socket:
    try:
        return _open(socket.AF_INET6, ("::", port), both_families=True)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
        return _open(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - everywhere is what was asked for


def _open(family: int, address: tuple[str | int, ...], both_families: bool = False) -> socket.socket:
    # With the protocol named, asyncio knows the connections for TCP and turns Nagle's delay off: without,
    # an answer in several pieces waits 40 ms for the client's delayed acknowledgement.
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
        return f"cannot listen on {where}: another program is already using it"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: no permission (ports below 1024 need CAP_NET_BIND_SERVICE)"
    return f"cannot listen on {where}: {os.strerror(error.errno or 0)}"
