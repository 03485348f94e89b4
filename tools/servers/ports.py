"""Free ports of the loopback address."""

import socket

from tools import Failed

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def choose_port(server: str, requested: int | None, usual: int) -> int:
    """The requested port; without one the usual port or, if that is taken, a free one. 0 requests a free one.

    Raises Failed when the requested port cannot be used.
    """
    port = usual if requested is None else requested
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if requested:
                raise Failed(f"port {port} for {server}: {error.strerror}") from None
        else:
            return int(probe.getsockname()[1])
    free = free_port()
    print(f"port {port} is in use: {server} uses {free}", flush=True)
    return free
