"""Basic authentication against bcrypt hashes, off the event loop and at a bounded cost.

bcrypt is slow on purpose. One thread verifies, a short queue waits for it, and what was verified is
remembered, so that a scraper pays once and an attacker cannot take more than one core.
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
REMEMBERED = 256
LONGEST_PASSWORD = 72
"""bcrypt knows no more than this of a password; Go's and Apache's implementations cut it off too."""


class Verdict(Enum):
    """What came of a login."""

    ADMITTED = auto()
    REFUSED = auto()
    BUSY = auto()


Then = Callable[[Verdict], None]
Job = tuple[bytes, bytes, bytes, bool]


class Logins:
    """Checks `Authorization: Basic` headers. All methods are called on the event loop."""

    def __init__(self) -> None:
        # Keyed with a secret of this process: to look a login up leaks nothing about a stored one.
        self._secret = os.urandom(32)
        # Two memories, so that a flood of wrong passwords cannot push the right ones out.
        self._admitted: OrderedDict[bytes, None] = OrderedDict()
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._pending: dict[bytes, list[Then]] = {}
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self, authorization: str, users: Mapping[str, bytes], then: Then) -> None:
        """Calls `then` with the verdict: at once when it is known, else when bcrypt has spoken."""
        login = parse_basic(authorization)
        if login is None:
            then(Verdict.REFUSED)
            return
        user, password = login
        # An unknown user costs as much as the costliest known one, so that time tells nothing.
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
        # Each part is hashed on its own: no choice of user and password can look like another.
        joined = b"".join(hashlib.sha256(part).digest() for part in parts)
        return hmac.digest(self._secret, joined, "sha256")

    def _start_thread(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            # A daemon: a verification that takes seconds must not hold up the end of the program.
            threading.Thread(target=self._verify_forever, name="bcrypt", daemon=True).start()

    def _verify_forever(self) -> None:
        while True:
            key, password, hashed, known = self._jobs.get()
            right = bcrypt.checkpw(password[:LONGEST_PASSWORD], hashed) and known
            try:
                assert self._loop is not None  # noqa: S101 - set before the thread was started
                self._loop.call_soon_threadsafe(self._conclude, key, right)
            except RuntimeError:
                return  # the event loop is closed: the program is ending

    def _conclude(self, key: bytes, right: bool) -> None:
        memory = self._admitted if right else self._refused
        memory[key] = None
        if len(memory) > REMEMBERED:
            memory.popitem(last=False)
        for then in self._pending.pop(key):
            then(Verdict.ADMITTED if right else Verdict.REFUSED)


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """(user, password) of an Authorization header; None when it is no Basic login."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(credentials.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):  # not base64, or a user name that is not UTF-8
        return None
