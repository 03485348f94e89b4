"""The order in which waiting logins are verified, when there are more of them than can be verified at once.

Addresses take turns, so that a client waits for one login of each other address and not for all logins of
a flood. Addresses whose last login was wrong come after the others: then even an attacker with many
addresses delays a client by one wrong login per address. User names play no part in the order, because it
would reveal which of them exist.
"""

import socket
from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar

REMEMBERED_FAILURES = 4096
MAPPED_IPV4 = bytes(10) + b"\xff\xff"
IPV6_NETWORK = 8
"""Bytes of an IPv6 address that count: a host has a whole /64 of addresses."""


class Waiting(Protocol):
    """What the queue needs of its members."""

    @property
    def source(self) -> bytes:
        """The address of the client, from `source_of`."""
        ...

    @property
    def gone(self) -> bool:
        """The client has closed its connection."""
        ...


Member = TypeVar("Member", bound=Waiting)
Lines = OrderedDict[bytes, deque[Member]]


class FairQueue(Generic[Member]):
    """A bounded queue with one line per address; the order of the lines is that of their turns."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failures: OrderedDict[bytes, None] = OrderedDict()
        self._lines: Lines[Member] = OrderedDict()
        self._failed_lines: Lines[Member] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(line) for lines in (self._lines, self._failed_lines) for line in lines.values())

    def add(self, member: Member) -> Member | None:
        """Append to the line of its address. Returns the member that has to give way, if there is one.

        That is the last one of the longest line: a flood displaces itself.
        """
        lines = self._failed_lines if member.source in self._failures else self._lines
        lines.setdefault(member.source, deque()).append(member)
        if len(self) <= self._limit:
            return None
        self._forget_those_gone()
        return self._displaced() if len(self) > self._limit else None

    def take(self) -> Member | None:
        """The next one; those whose clients have gone are dropped."""
        for lines in (self._lines, self._failed_lines):
            while lines:
                source, line = lines.popitem(last=False)
                member = line.popleft()
                if line:
                    lines[source] = line
                if not member.gone:
                    return member
        return None

    def succeeded(self, source: bytes) -> None:
        """The last login of this address was right."""
        self._failures.pop(source, None)
        _move(source, self._failed_lines, self._lines)

    def failed(self, source: bytes) -> None:
        """The last login of this address was wrong."""
        self._failures[source] = None
        self._failures.move_to_end(source)
        if len(self._failures) > REMEMBERED_FAILURES:
            self._failures.popitem(last=False)
        _move(source, self._lines, self._failed_lines)

    def _forget_those_gone(self) -> None:
        for lines in (self._lines, self._failed_lines):
            for source, line in list(lines.items()):
                lines[source] = deque(member for member in line if not member.gone)
                if not lines[source]:
                    del lines[source]

    def _displaced(self) -> Member:
        # Of several longest lines, the one whose turn comes last.
        candidates = [
            (lines, source) for lines in (self._failed_lines, self._lines) for source in reversed(lines)
        ]
        lines, source = max(candidates, key=lambda candidate: len(candidate[0][candidate[1]]))
        member = lines[source].pop()
        if not lines[source]:
            del lines[source]
        return member


def _move(source: bytes, old: Lines[Member], new: Lines[Member]) -> None:
    if source in old:
        new[source] = old.pop(source)


def source_of(address: str) -> bytes:
    """What counts as one client: an IPv4 address, or the network of an IPv6 address."""
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address.encode()
    # An IPv4 client of a socket for both families
    return packed if packed.startswith(MAPPED_IPV4) else packed[:IPV6_NETWORK]
