"""Everybody who is connected: who waits for whom, who has run out of time, who must make room.

No timer ticks: one is set for the earliest deadline, and a deadline that moves later does not touch it.
"""

import asyncio
from typing import Protocol

SWEEP_SECONDS = 0.25
"""Deadlines are kept to within this, so that a thousand of them cost one wake-up and not a thousand."""


class Member(Protocol):
    """A connection, as far as the crowd is concerned."""

    deadline: float
    known: bool
    """It has sent at least one whole request."""

    def abort(self) -> None:
        """Cut the connection now."""
        ...

    def retire(self) -> None:
        """Close as soon as what is being answered has been sent."""
        ...


class Crowd:
    """A bounded set of connections.

    When it is full, whoever has waited longest to send a request makes room for the newcomer; nobody
    who is being answered does. Strangers, who have never sent a whole request, go before scrapers
    that keep their connection open, as long as there are more strangers: so neither a flood of silent
    clients nor one of clients that ask once and then sit can push the other kind out. When nobody
    waits, whoever has longest refused to read its answer goes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        # Dicts for their order: whoever has waited longest comes first.
        self._strangers: dict[Member, None] = {}
        self._known: dict[Member, None] = {}
        self._stalled: dict[Member, None] = {}
        self._busy: dict[Member, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.empty = asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known) + len(self._stalled) + len(self._busy)

    def waits(self, member: Member, seconds: float) -> None:
        """`member` owes us a request, within `seconds`. Also how a newcomer joins."""
        self._forget(member)
        if len(self) >= self._limit:
            self._make_room()
        (self._known if member.known else self._strangers)[member] = None
        self.empty.clear()
        self.allow(member, seconds)

    def works(self, member: Member, seconds: float) -> None:
        """We owe `member` an answer: it is safe, but for its own `seconds`."""
        self._forget(member)
        self._busy[member] = None
        self.allow(member, seconds)

    def stalls(self, member: Member, seconds: float) -> None:
        """`member` must read some of its answer, within `seconds`, before we can send the rest."""
        self._forget(member)
        self._stalled[member] = None
        self.allow(member, seconds)

    def leaves(self, member: Member) -> None:
        """`member` is gone."""
        self._forget(member)
        if not len(self):
            self.empty.set()

    def allow(self, member: Member, seconds: float) -> None:
        """Give `member` that long from now."""
        member.deadline = self._loop.time() + seconds
        if self._timer is None or member.deadline < self._timer.when() - SWEEP_SECONDS:
            self._wake_at(member.deadline)

    def shed(self) -> None:
        """Drop half of those who wait: the machine is short of descriptors or memory."""
        for _ in range((len(self._strangers) + len(self._known) + 1) // 2):
            self._make_room()

    def retire(self) -> None:
        """No more requests: whoever is being answered may still finish."""
        for member in self._everybody():
            member.retire()

    def abort(self) -> None:
        """Cut everybody off."""
        if self._timer is not None:
            self._timer.cancel()
        for member in self._everybody():
            member.abort()

    def _everybody(self) -> list[Member]:
        return [*self._strangers, *self._known, *self._stalled, *self._busy]

    def _forget(self, member: Member) -> None:
        for group in (self._strangers, self._known, self._stalled, self._busy):
            group.pop(member, None)

    def _make_room(self) -> None:
        waiting = self._strangers if len(self._strangers) >= len(self._known) else self._known
        group = waiting or self._stalled
        if group:
            longest = next(iter(group))
            del group[longest]
            longest.abort()

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when + SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        everybody = self._everybody()
        for member in everybody:
            if member.deadline <= now:
                member.abort()
        coming = [member.deadline for member in everybody if member.deadline > now]
        if coming:
            self._wake_at(min(coming))
