"""A query to the cluster's DNS server from outside the cluster."""

import socket
import struct

from tools.test_cluster import layout

_PORT = 53
_SECONDS = 1.0
_RECURSION_DESIRED = 0x0100
_ADDRESS, _INTERNET = 1, 1


def knows(name: str) -> bool:
    """Whether the server has an address for this name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.sendto(question(name), (layout.NODE_ADDRESS, _PORT))
            return has_address(connection.recv(512))
        except OSError:
            return False


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    header = struct.pack("!6H", 1, _RECURSION_DESIRED, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!2H", _ADDRESS, _INTERNET)


def has_address(answer: bytes) -> bool:
    if len(answer) < 12:
        return False
    fields: tuple[int, ...] = struct.unpack("!6H", answer[:12])
    _, flags, _, answers, _, _ = fields
    return flags & 0xF == 0 and answers > 0
