"""Ports of this machine's own address, for servers that nobody else shall reach."""

import socket

from tools import Failed

HOST = "127.0.0.1"


def free_port(who: str, asked: int | None, usual: int) -> int:
    """The port asked for; or the usual one, or, if that is taken, a free one. 0 asks for a free one."""
    port = usual if asked is None else asked
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if asked:
                raise Failed(f"port {port} for {who}: {error.strerror}") from None
        else:
            return int(probe.getsockname()[1])
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        free = int(probe.getsockname()[1])
    print(f"port {port} is taken: {who} gets {free}", flush=True)
    return free
