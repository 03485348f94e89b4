"""One call on one of the kubelet's unix sockets, and in plain words why it failed.

A connection lasts for one call: a kubelet that restarts puts a new socket in the place of the old one,
and the next call finds it.
"""

import socket
import time
from pathlib import Path

from gputally.model import Unavailable

UNIMPLEMENTED = 12
_STATUS_NAMES = {
    1: "CANCELLED",
    2: "UNKNOWN",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    UNIMPLEMENTED: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}
_DEADLINE_EXCEEDED = 4
_REPLY_LIMIT_BYTES = 64 << 20


class Refused(Exception):
    """The kubelet answered, but with an error."""

    def __init__(self, status: int, error: str) -> None:
        name = _STATUS_NAMES.get(status, f"status {status}")
        super().__init__(f"{name}: {error}" if error else name)
        self.status = status


def call_kubelet(path: Path, method: str, timeout_seconds: float) -> bytes:
    """The reply to `method` (/package.Service/Method). Raises Unavailable, and Refused for an error reply."""
    deadline = time.monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            # Only now: where there is no kubelet it would cost memory for nothing.
            from gputally.attribution.grpc_exchange import exchange  # noqa: PLC0415

            reply = exchange(connection, method, deadline, _REPLY_LIMIT_BYTES)
        except TimeoutError:
            raise _silent(path, timeout_seconds) from None
        except OSError as error:
            raise _unreachable(path, error) from error
        except ValueError as error:
            raise Unavailable(f"what answers on {path} makes no sense: {error}") from error
    if reply.status == _DEADLINE_EXCEEDED:
        raise _silent(path, timeout_seconds)
    if reply.status != 0:
        raise Refused(reply.status, reply.error)
    return reply.message


def _silent(path: Path, timeout_seconds: float) -> Unavailable:
    return Unavailable(
        f"the kubelet did not answer on {path} within {timeout_seconds:g} s",
        "see in the kubelet's log whether it hangs or has too much to do",
    )


def _unreachable(path: Path, error: OSError) -> Unavailable:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unavailable(
            f"there is no socket {path}",
            f"mount the host's folder {path.parent} at the same place (hostPath)",
        )
    if isinstance(error, PermissionError):
        return Unavailable(
            f"permission to connect to {path} is denied",
            "run as user 0, whose socket it is; under SELinux, as a type that may connect to it",
        )
    if isinstance(error, ConnectionRefusedError):
        return Unavailable(
            f"nobody listens on {path}",
            f"start the kubelet; if it runs, mount the folder {path.parent} and not the socket alone, "
            "which a restarted kubelet replaces",
        )
    return Unavailable(f"the connection to {path} failed: {error.strerror or error}")
