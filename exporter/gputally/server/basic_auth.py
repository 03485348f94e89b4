"""Basic authentication against bcrypt hashes, off the event loop and at a bounded cost.

bcrypt is slow on purpose. One thread verifies, with a short queue, and results are cached, so that a
scraper pays once and an attacker cannot occupy more than one core.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum, auto
from queue import SimpleQueue

import bcrypt

QUEUE = 16
CACHED = 256
LONGEST_PASSWORD = 72
"""bcrypt uses no more than this of a password; Go's and Apache's implementations truncate it too."""


class Verdict(Enum):
    """The result of a login."""

    ADMITTED = auto()
    REFUSED = auto()
    BUSY = auto()


Then = Callable[[Verdict], None]
Job = tuple[bytes, bytes, bytes, bool]


class Logins:
    """Checks `Authorization: Basic` headers. All methods are called on the event loop."""

    def __init__(self) -> None:
        # Keyed with a secret of this process: a lookup leaks nothing about a stored login.
        self._secret = os.urandom(32)
        # Two caches, so that a flood of wrong passwords cannot evict the right ones.
        self._admitted: OrderedDict[bytes, None] = OrderedDict()
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._pending: dict[bytes, list[Then]] = {}
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self, authorization: str, users: Mapping[str, bytes], then: Then) -> None:
        """Call `then` with the verdict: at once when it is cached, else when bcrypt has finished."""
        login = parse_basic(authorization)
        if login is None:
            then(Verdict.REFUSED)
            return
        user, password = login
        # An unknown user costs as much as the costliest known one, so that timing reveals nothing.
        hashed = users.get(user) or max(users.values(), key=lambda known: known[4:6])
        key = self._digest(user.encode(), password, hashed)
        if key in self._admitted:
            self._admitted.move_to_end(key)
            then(Verdict.ADMITTED)
        elif key in self._refused:
            self._refused.move_to_end(key)
            then(Verdict.REFUSED)
        elif key in self._pending:
            self._pending[key].append(then)
        elif len(self._pending) >= QUEUE:
            then(Verdict.BUSY)
        else:
            self._pending[key] = [then]
            self._start_thread()
            self._jobs.put((key, password, hashed, user in users))

    def _digest(self, *parts: bytes) -> bytes:
        # Each part is hashed on its own: no two different logins have the same key.
        joined = b"".join(hashlib.sha256(part).digest() for part in parts)
        return hmac.digest(self._secret, joined, "sha256")

    def _start_thread(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            # A daemon: a verification that takes seconds must not delay the exit.
            threading.Thread(target=self._verify_forever, name="bcrypt", daemon=True).start()

    def _verify_forever(self) -> None:
        while True:
            key, password, hashed, known = self._jobs.get()
            right = bcrypt.checkpw(password[:LONGEST_PASSWORD], hashed) and known
            try:
                assert self._loop is not None  # noqa: S101 - set before the thread was started
                self._loop.call_soon_threadsafe(self._conclude, key, right)
            except RuntimeError:
                return  # the event loop is closed: the program exits

    def _conclude(self, key: bytes, right: bool) -> None:
        cache = self._admitted if right else self._refused
        cache[key] = None
        if len(cache) > CACHED:
            cache.popitem(last=False)
        for then in self._pending.pop(key):
            then(Verdict.ADMITTED if right else Verdict.REFUSED)


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """(user, password) of an Authorization header; None where it is no Basic login."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(credentials.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):  # not base64, or a user name that is not UTF-8
        return None
