"""`--web-config`: TLS, logins, a rate limit and headers, read again when a file changes.

The files are checked on a connection or request, at most once a second. A new version that is invalid is
logged once and the old one stays in force. So does the old one when the new version has no TLS or no
logins any more, because a file that is being rewritten can be incomplete: that takes a restart.

`/healthz` and `/readyz` need no login and have no rate limit, unlike in exporter-toolkit: they only say
what works and why a source does not, and the kubelet's probes cannot send a password. Where a client
certificate is required, they need it too.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gputally.server.basic_auth import Client, Logins, Verdict
from gputally.server.errors import WebConfigError
from gputally.server.http1 import Request, Response, text_response
from gputally.server.limits import Limits
from gputally.server.tls import Tls, build_tls
from gputally.server.web_config import RateLimit, WebConfig, load_web_config

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
FileState = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class _Active:
    """The version of the file that is in force."""

    config: WebConfig
    tls: Tls | None
    files: tuple[Path, ...]


class WebSecurity:
    """Admits requests according to the file. Raises WebConfigError where it is invalid at start-up."""

    def __init__(
        self,
        path: Path,
        waiting_logins: int = Limits().waiting_logins,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._logins = Logins(waiting_logins)
        # Before reading, so that a change during the read is noticed.
        self._seen = _states((path,))
        self._active = _load(path)
        self._seen = _states(self._active.files)
        self._checked_at = clock()
        self._bucket = TokenBucket(self._active.config.rate_limit, clock)

    @property
    def tls(self) -> Tls | None:
        """For the next handshake; None where connections are not encrypted."""
        self._refresh()
        return self._active.tls

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """For every response."""
        return self._active.config.headers

    def admit(self, request: Request, client: Client, then: Callable[[Response | None], None]) -> None:
        """Call `then` with the refusal, or with None when the request is admitted."""
        self._refresh()
        if not self._bucket.take():
            then(text_response(429, "too many requests", ("Retry-After", "1")))
            return
        users = self._active.config.users
        if not users:
            then(None)
            return
        self._logins.check(request.authorization, users, client, lambda verdict: then(_refusal(verdict)))

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        seen = _states(self._active.files)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            fresh = _load(self._path)
            _refuse_weaker(self._path, self._active.config, fresh.config)
        except WebConfigError as error:
            log.error("%s; the previous web configuration stays in force", error)
            return
        if fresh.config.rate_limit != self._active.config.rate_limit:
            self._bucket = TokenBucket(fresh.config.rate_limit, self._clock)
        if fresh.files != self._active.files:
            self._seen = _states(fresh.files)
        self._active = fresh
        log.info("web configuration %s and its certificates reloaded", self._path)


class TokenBucket:
    """Admits one request per interval, and a burst of unused ones."""

    def __init__(self, limit: RateLimit | None, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = float(limit.burst) if limit else 0.0
        self._at = clock()

    def take(self) -> bool:
        """Whether one more request is within the limit."""
        if self._limit is None:
            return True
        now = self._clock()
        earned = (now - self._at) / self._limit.interval_seconds
        self._tokens = min(float(self._limit.burst), self._tokens + earned)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _load(path: Path) -> _Active:
    config = load_web_config(path)
    tls = build_tls(config.tls) if config.tls else None
    return _Active(config, tls, (path, *(config.tls.files() if config.tls else ())))


def _refuse_weaker(path: Path, old: WebConfig, new: WebConfig) -> None:
    if old.tls and not new.tls:
        raise WebConfigError(f"{path}: tls_server_config: removed; restart to serve without TLS")
    if old.users and not new.users:
        raise WebConfigError(f"{path}: basic_auth_users: removed; restart to serve without logins")


def _refusal(verdict: Verdict) -> Response | None:
    if verdict is Verdict.ADMITTED:
        return None
    if verdict is Verdict.BUSY:
        return text_response(503, "too many logins are being verified", ("Retry-After", "1"))
    challenge = ("WWW-Authenticate", 'Basic realm="gputally", charset="UTF-8"')
    return text_response(401, "a user name and a password are required", challenge)


def _states(files: tuple[Path, ...]) -> tuple[FileState, ...]:
    """It differs after a file is rewritten, replaced, or linked to another (as Kubernetes does)."""
    return tuple(_state(file) for file in files)


def _state(file: Path) -> FileState:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
