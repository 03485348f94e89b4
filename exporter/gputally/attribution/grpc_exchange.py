"""One gRPC request without arguments and its reply, on a connected socket.

The protocol: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, on h2. grpcio would do the
same for more than ten times the memory.
"""

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes

_PREFIX_BYTES = 5  # whether the message is compressed, and its length
_WINDOW_BYTES = 1 << 20
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Reply:
    """`status` is 0 when `message` is good; otherwise `error` says what the server said."""

    status: int
    error: str
    message: bytes


def exchange(connection: socket.socket, method: str, deadline: float, limit_bytes: int) -> Reply:
    """Calls `method` (/package.Service/Method); `deadline` is of time.monotonic().

    Raises OSError (TimeoutError at the deadline), and ValueError for what is no gRPC or over the limit.
    """
    protocol = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
    _send_request(protocol, method, deadline)
    answer = _Answer(limit_bytes)
    while not answer.complete:
        _set_time_left(connection, deadline)
        connection.sendall(protocol.data_to_send())
        received = connection.recv(_READ_BYTES)
        if not received:
            raise ConnectionResetError("it was closed before the reply was complete")
        try:
            answer.take(protocol, protocol.receive_data(received))
        except H2Error as error:
            raise ValueError(f"no HTTP/2: {error}") from error
    return answer.reply()


def _set_time_left(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _send_request(protocol: H2Connection, method: str, deadline: float) -> None:
    protocol.initiate_connection()
    # With the small windows of the default the server waits for us at every 64 KiB of a long reply.
    protocol.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES})
    protocol.increment_flow_control_window(_WINDOW_BYTES)
    milliseconds = max(1, int((deadline - time.monotonic()) * 1000))
    stream = protocol.get_next_available_stream_id()
    protocol.send_headers(
        stream,
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "gputally"),
            ("grpc-timeout", f"{milliseconds}m"),
        ],
    )
    protocol.send_data(stream, bytes(_PREFIX_BYTES), end_stream=True)  # an empty message


class _Answer:
    """Collects what comes: headers, the pieces of one message, and the status after it."""

    def __init__(self, limit_bytes: int) -> None:
        self.complete = False
        self._limit_bytes = limit_bytes
        self._body = bytearray()
        self._headers: dict[str, str] = {}

    def take(self, protocol: H2Connection, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, ResponseReceived | TrailersReceived):
                self._headers.update((str(name), str(value)) for name, value in event.headers or ())
            elif isinstance(event, DataReceived):
                self._body += event.data or b""
                if len(self._body) > self._limit_bytes:
                    raise ValueError(f"the reply is longer than {self._limit_bytes} bytes")
                protocol.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            elif isinstance(event, StreamEnded):
                self.complete = True
            elif isinstance(event, StreamReset | ConnectionTerminated) and not self.complete:
                raise ConnectionResetError(f"the server broke the call off (HTTP/2 error {event.error_code})")

    def reply(self) -> Reply:
        status = self._headers.get("grpc-status")
        if status is None or not (status.isascii() and status.isdecimal()):
            raise ValueError(f"no gRPC status, HTTP status {self._headers.get(':status', 'missing')}")
        if int(status) != 0:
            return Reply(int(status), unquote(self._headers.get("grpc-message", "")), b"")
        length = int.from_bytes(self._body[1:_PREFIX_BYTES], "big")
        if len(self._body) != _PREFIX_BYTES + length or self._body[0] != 0:
            raise ValueError("the reply is not one whole uncompressed message")
        return Reply(0, "", bytes(memoryview(self._body)[_PREFIX_BYTES:]))
