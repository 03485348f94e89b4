"""One message after another to many connections that stay open (server-sent events)."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

HEARTBEAT_SECONDS = 15.0
"""Proxies close a connection without traffic after 30 s or more."""
HEARTBEAT = b":\n\n"
OFFERS_PER_TURN = 8
"""A scrape that comes while many connections are served waits for no more than these."""


class Listener(Protocol):
    """A connection with a stream."""

    def offer(self, message: bytes) -> None:
        """The newest message; it replaces one that has not been begun."""
        ...

    def beat(self, heartbeat: bytes) -> None:
        """Send it if nothing else is being sent."""
        ...


class Broadcast:
    """Listeners on one event loop. `publish` and `wanted` are for any thread, the rest is for the loop's."""

    def __init__(self, most: int, before_beat: Callable[[], None] = lambda: None) -> None:
        """At most `most` listeners; `before_beat` is called before each heartbeat."""
        self._most = most
        self._before_beat = before_beat
        self._listeners: dict[Listener, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._message = b""
        self._due: deque[Listener] = deque()
        self._beating: asyncio.TimerHandle | None = None

    @property
    def wanted(self) -> bool:
        """There is a listener: a message is worth making."""
        return bool(self._listeners)

    @property
    def full(self) -> bool:
        return len(self._listeners) >= self._most

    def __len__(self) -> int:
        return len(self._listeners)

    def join(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners[listener] = None
        if self._beating is None:
            self._beating = loop.call_later(HEARTBEAT_SECONDS, self._beat)

    def leave(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)
        if not self._listeners:
            self._message = b""
            self._due.clear()
            if self._beating is not None:
                self._beating.cancel()
                self._beating = None

    def publish(self, message: bytes) -> None:
        loop = self._loop
        if loop is not None and self._listeners:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(self._begin, message)

    def _begin(self, message: bytes) -> None:
        if not self._listeners:
            return
        self._message = message
        serving = bool(self._due)
        self._due = deque(self._listeners)
        self._set_beat()
        if not serving:
            self._serve_some()

    def _serve_some(self) -> None:
        for _ in range(min(OFFERS_PER_TURN, len(self._due))):
            listener = self._due.popleft()
            if listener in self._listeners:
                listener.offer(self._message)
        if self._due and self._loop is not None:
            self._loop.call_soon(self._serve_some)

    def _beat(self) -> None:
        self._before_beat()
        for listener in tuple(self._listeners):
            listener.beat(HEARTBEAT)
        self._set_beat()

    def _set_beat(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if self._loop is not None and self._listeners:
            self._beating = self._loop.call_later(HEARTBEAT_SECONDS, self._beat)
