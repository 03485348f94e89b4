"""One gRPC call without arguments on one of the kubelet's unix sockets, and its protobuf reply.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, on h2, and
https://protobuf.dev/programming-guides/encoding/. The packages grpcio and protobuf would do the same for more
than ten times the memory. h2 is imported only once a kubelet has accepted a connection.

A connection lasts for one call: a kubelet that restarts replaces its socket, and the next call finds it.
"""

# ruff: noqa: PLC0415

import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gputally.model import Unavailable

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from h2.events import Event

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
# 16 MiB as in the kubelet's own tests (defaultPodResourcesMaxSize in test/e2e_node/util.go of Kubernetes).
# All limits leave room for a node with 500 pods.
_REPLY_LIMIT_BYTES = 16 << 20
_REPLY_LIMIT_FIELDS = 500_000
_MESSAGE_LIMIT_FIELDS = 10_000
_TOO_MANY_FIELDS = f"{_REPLY_LIMIT_FIELDS} fields, or {_MESSAGE_LIMIT_FIELDS} in one message"
_ERROR_LIMIT_CHARACTERS = 300
_PREFIX_BYTES = 5  # whether the message is compressed, and its length
_WINDOW_BYTES = 1 << 20
_READ_BYTES = 1 << 16


class KubeletError(Exception):
    """The kubelet replied with an error status."""

    def __init__(self, status: int, error: str) -> None:
        name = _STATUS_NAMES.get(status, f"status {status}")
        super().__init__(f"{name}: {error}" if error else name)
        self.status = status


def call_kubelet(path: Path, method: str, timeout_seconds: float) -> memoryview:
    """The reply to `method` (/package.Service/Method). Raises Unavailable, and KubeletError."""
    deadline = time.monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            reply = exchange(connection, method, deadline, _REPLY_LIMIT_BYTES)
        except TimeoutError:
            raise _timed_out(path, timeout_seconds) from None
        except OSError as error:
            raise _unreachable(path, error) from error
        except ValueError as error:
            raise Unavailable(f"the reply on {path} is not valid: {error}") from error
    if reply.status == _DEADLINE_EXCEEDED:
        raise _timed_out(path, timeout_seconds)
    if reply.status != 0:
        raise KubeletError(reply.status, reply.error)
    return reply.message


def _timed_out(path: Path, timeout_seconds: float) -> Unavailable:
    return Unavailable(
        f"the kubelet did not answer on {path} within {timeout_seconds:g} s",
        "check the kubelet's log for hangs and overload: journalctl -u kubelet",
    )


def too_large(limit: str) -> Unavailable:
    """For an answer that no healthy kubelet gives."""
    return Unavailable(f"the kubelet's answer is too large: more than {limit}")


def _unreachable(path: Path, error: OSError) -> Unavailable:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unavailable(
            f"there is no socket {path}",
            f"mount the host's directory {path.parent} at the same path (hostPath)",
        )
    if isinstance(error, PermissionError):
        return Unavailable(
            f"permission to connect to {path} is denied",
            "run as user 0, who owns the socket; under SELinux, as a type that may connect to it",
        )
    if isinstance(error, ConnectionRefusedError):
        return Unavailable(
            f"no process listens on {path}",
            f"start the kubelet; if it runs, mount the directory {path.parent} and not the socket alone, "
            "which a restarted kubelet replaces",
        )
    return Unavailable(f"the connection to {path} failed: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Reply:
    """If `status` is 0, `message` is valid; otherwise `error` is the server's text."""

    status: int
    error: str
    message: memoryview


def exchange(connection: socket.socket, method: str, deadline: float, limit_bytes: int) -> Reply:
    """Calls `method` on a connected socket; `deadline` is of time.monotonic().

    Raises OSError (TimeoutError at the deadline), ValueError if the reply is not gRPC, and Unavailable if it
    is too long.
    """
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.exceptions import H2Error

    protocol = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
    _send_request(protocol, method, deadline)
    response = _ReplyParts(limit_bytes)
    while not response.complete:
        _set_time_left(connection, deadline)
        connection.sendall(protocol.data_to_send())
        received = connection.recv(_READ_BYTES)
        if not received:
            raise ConnectionResetError("the connection was closed before the reply was complete")
        try:
            response.take(protocol, protocol.receive_data(received))
        except H2Error as error:
            raise ValueError(f"not HTTP/2: {error}") from error
    return response.reply()


def _set_time_left(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _send_request(protocol: "H2Connection", method: str, deadline: float) -> None:
    from h2.settings import SettingCodes

    protocol.initiate_connection()
    # With the small windows of the default the server would wait for us at every 64 KiB of a long reply.
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


class _ReplyParts:
    """Collects the response: headers, the chunks of one message, and the status after it."""

    def __init__(self, limit_bytes: int) -> None:
        self.complete = False
        self._limit_bytes = limit_bytes
        self._body = bytearray()
        self._headers: dict[str, str] = {}

    def take(self, protocol: "H2Connection", events: "Iterable[Event]") -> None:
        from h2 import events as h2

        for event in events:
            if isinstance(event, h2.ResponseReceived | h2.TrailersReceived):
                self._headers.update((str(name), str(value)) for name, value in event.headers or ())
            elif isinstance(event, h2.DataReceived):
                self._body += event.data or b""
                if len(self._body) > self._limit_bytes:
                    raise too_large(f"{self._limit_bytes} bytes")
                protocol.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            elif isinstance(event, h2.StreamEnded):
                self.complete = True
            elif isinstance(event, h2.StreamReset | h2.ConnectionTerminated) and not self.complete:
                raise ConnectionResetError(f"the server aborted the call (HTTP/2 error {event.error_code})")

    def reply(self) -> Reply:
        status = self._headers.get("grpc-status")
        if status is None or not (status.isascii() and status.isdecimal()):
            raise ValueError(f"no gRPC status, HTTP status {self._headers.get(':status', 'missing')}")
        if int(status) != 0:
            error = unquote(self._headers.get("grpc-message", ""))
            return Reply(int(status), error[:_ERROR_LIMIT_CHARACTERS], memoryview(b""))
        length = int.from_bytes(self._body[1:_PREFIX_BYTES], "big")
        if len(self._body) != _PREFIX_BYTES + length or self._body[0] != 0:
            raise ValueError("the reply is not one whole uncompressed message")
        return Reply(0, "", memoryview(self._body)[_PREFIX_BYTES:])


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


@dataclass(slots=True)
class _Allowance:
    """What one reply may still have."""

    fields: int = _REPLY_LIMIT_FIELDS


class Message:
    """One protobuf message, in one or several parts. Raises ValueError for bytes that are not one.

    Fields are read by number; a missing one is empty, as protobuf defines it. Unread fields are skipped, so
    messages of newer kubelets can be read. Raises Unavailable if the message, or the reply that it is part
    of, has too many fields: one of two bytes takes a hundred in memory.
    """

    def __init__(self, *parts: bytes | memoryview, allowance: _Allowance | None = None) -> None:
        self._allowance = allowance or _Allowance()
        self._chunks: dict[int, list[memoryview]] = {}
        self._numbers: dict[int, int] = {}
        fields, most = 0, min(_MESSAGE_LIMIT_FIELDS, self._allowance.fields)
        for part in parts:
            view = memoryview(part)
            size = len(view)
            position = 0
            while position < size:
                fields += 1
                if fields > most:
                    raise too_large(_TOO_MANY_FIELDS)
                tag, position = _varint(view, position)
                number, kind = tag >> 3, tag & 7
                if number == 0:
                    raise ValueError("a field has the number 0")
                if kind == _VARINT:
                    self._numbers[number], position = _varint(view, position)
                    continue
                if kind == _BYTES:
                    length, position = _varint(view, position)
                elif kind in (_FIXED32, _FIXED64):
                    length = 4 if kind == _FIXED32 else 8
                else:
                    raise ValueError(f"a field has the unknown wire type {kind}")
                end = position + length
                if end > size:
                    raise ValueError("a field ends after its message")
                if kind == _BYTES:
                    self._chunks.setdefault(number, []).append(view[position:end])
                position = end
        self._allowance.fields -= fields

    def text(self, number: int) -> str:
        chunks = self._chunks.get(number)
        return str(chunks[-1], "utf-8") if chunks else ""

    def texts(self, number: int) -> Iterator[str]:
        for chunk in self._chunks.get(number, ()):
            yield str(chunk, "utf-8")

    def number(self, number: int) -> int:
        """A number that is not negative (a negative one reads as 2^64 less its amount)."""
        return self._numbers.get(number, 0)

    def flag(self, number: int) -> bool:
        return self.number(number) != 0

    def message(self, number: int) -> "Message":
        # A message that was sent in parts is merged: the fields of all of them are its fields.
        return Message(*self._chunks.get(number, ()), allowance=self._allowance)

    def messages(self, number: int) -> Iterator["Message"]:
        for chunk in self._chunks.get(number, ()):
            yield Message(chunk, allowance=self._allowance)

    def text_map(self, number: int) -> dict[str, str]:
        """A map<string, string>."""
        return {entry.text(1): entry.text(2) for entry in self.messages(number)}


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    if position < len(view) and view[position] < 0x80:
        return view[position], position + 1
    value = 0
    for nth, byte in enumerate(view[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * nth)
        if byte < 0x80:
            return value, position + nth + 1
    raise ValueError("a number has no end")
