"""Basic authentication against bcrypt hashes, off the event loop and at a bounded cost.

bcrypt is slow on purpose. One thread verifies, in a fair order, and results are cached, so that a scraper
pays once and an attacker cannot occupy more than one core. A wrong login takes as long as the costliest
hash of the file, whether its user exists or not and whatever the cost of the user's own hash is.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from queue import SimpleQueue
from typing import Protocol

import bcrypt

from gputally.server.fair_queue import FairQueue, source_of

log = logging.getLogger(__name__)

CACHED = 256
LONGEST_PASSWORD = 72
"""bcrypt uses no more than this of a password; Go's and Apache's implementations truncate it too."""


class Verdict(Enum):
    """The result of a login."""

    ADMITTED = auto()
    REFUSED = auto()
    BUSY = auto()


class Client(Protocol):
    """Who logs in."""

    @property
    def address(self) -> str:
        """The IP address."""
        ...

    @property
    def gone(self) -> bool:
        """The connection is closed: the response would be lost."""
        ...


Then = Callable[[Verdict], None]


@dataclass(frozen=True, slots=True, eq=False)
class Login:
    """A user name and a password that are neither right nor wrong yet."""

    client: Client
    source: bytes
    user: str
    password: bytes
    hashed: bytes
    known: bool
    costliest: int
    key: bytes
    then: Then

    @property
    def gone(self) -> bool:
        """The client has closed its connection."""
        return self.client.gone

    def verify(self) -> bool:
        """Whether the password is right. The work for any wrong one is that of the costliest hash."""
        if bcrypt.checkpw(self.password, self.hashed) and self.known:
            return True
        # Each cost is twice the work of the one before: 2^4 + 2^4 + 2^5 + ... + 2^9 = 2^10.
        for cost in range(cost_of(self.hashed), self.costliest):
            bcrypt.checkpw(self.password, b"$2b$%02d$" % cost + b"." * 53)
        return False


class Logins:
    """Checks `Authorization: Basic` headers. All methods are called on the event loop."""

    def __init__(self, waiting: int) -> None:
        # Keyed with a secret of this process: a lookup leaks nothing about a stored login.
        self._secret = os.urandom(32)
        # One right login per user: no flood, and no spelling of a known password, can evict another user's.
        self._admitted: dict[str, bytes] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._queue: FairQueue[Login] = FairQueue(waiting)
        self._verifying = False
        self._jobs: SimpleQueue[Login] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self, authorization: str, users: Mapping[str, bytes], client: Client, then: Then) -> None:
        """Call `then` with the verdict: at once when it is cached, else when bcrypt has finished."""
        parsed = parse_basic(authorization)
        if parsed is None:
            then(Verdict.REFUSED)
            return
        user, password = parsed[0], parsed[1][:LONGEST_PASSWORD]
        costliest = max(users.values(), key=cost_of)
        hashed = users.get(user, costliest)
        login = Login(
            client=client,
            source=source_of(client.address),
            user=user,
            password=password,
            hashed=hashed,
            known=user in users,
            costliest=cost_of(costliest),
            key=self._digest(user.encode(), password, hashed),
            then=then,
        )
        verdict = self._cached(login)
        if verdict is not None:
            then(verdict)
            return
        displaced = self._queue.add(login)
        if displaced is not None:
            displaced.then(Verdict.BUSY)
        if not self._verifying:
            self._verify_next()

    def _cached(self, login: Login) -> Verdict | None:
        if hmac.compare_digest(self._admitted.get(login.user, b""), login.key):
            return Verdict.ADMITTED
        if login.key in self._refused:
            self._refused.move_to_end(login.key)
            return Verdict.REFUSED
        return None

    def _digest(self, *parts: bytes) -> bytes:
        # Each part is hashed on its own: no two different logins have the same key.
        joined = b"".join(hashlib.sha256(part).digest() for part in parts)
        return hmac.digest(self._secret, joined, "sha256")

    def _verify_next(self) -> None:
        self._verifying = False
        while not self._verifying and (login := self._queue.take()):
            # The same login may have been verified while this one waited.
            verdict = self._cached(login)
            if verdict is not None:
                login.then(verdict)
            else:
                self._verifying = True
                self._start_thread()
                self._jobs.put(login)

    def _start_thread(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            # A daemon: a verification that takes seconds must not delay the exit.
            threading.Thread(target=self._verify_forever, name="bcrypt", daemon=True).start()

    def _verify_forever(self) -> None:
        while True:
            login = self._jobs.get()
            try:
                right = login.verify()
            except ValueError as error:  # all others would wait for this thread without end
                log.error("the password hash of %r cannot be verified: %s", login.user, error)
                right = False
            try:
                assert self._loop is not None  # noqa: S101 - set before the thread was started
                self._loop.call_soon_threadsafe(self._conclude, login, right)
            except RuntimeError:
                return  # the event loop is closed: the program exits

    def _conclude(self, login: Login, right: bool) -> None:
        if right:
            self._admitted[login.user] = login.key
            self._queue.succeeded(login.source)
        else:
            self._refused[login.key] = None
            if len(self._refused) > CACHED:
                self._refused.popitem(last=False)
            self._queue.failed(login.source)
        self._verify_next()
        login.then(Verdict.ADMITTED if right else Verdict.REFUSED)


def cost_of(hashed: bytes) -> int:
    """10 of `$2y$10$...`: the work doubles with each step."""
    return int(hashed[4:6])


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
