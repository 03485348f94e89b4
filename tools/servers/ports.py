"""Free ports of the loopback address."""

import random
import socket
from contextlib import suppress

from tools import Failed

HOST = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections, one of which could take a free port before its
# server does, and below the NodePorts of Kubernetes.
_PORTS = range(20000, 30000)
_random = random.SystemRandom()


def free_port() -> int:
    while True:
        port = _random.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port


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
