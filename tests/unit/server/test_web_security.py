import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server.http1 import Request
from gputally.server.web_config import MOST_BYTES, RateLimit
from gputally.server.web_security import CHECK_SECONDS, TokenBucket, WebSecurity
from tests.support.authority import Authority
from tests.support.http_client import Client, serving


@dataclass
class Visitor:
    """A client."""

    address: str = "127.0.0.1"
    gone: bool = False


def test_requests_above_the_rate_are_refused_and_probes_are_not(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("rate_limit: {interval: 1h, burst: 3}")
    with serving(web_config=path) as server, Client(server.port) as client:
        assert [client.get().status for _ in range(5)] == [200, 200, 200, 429, 429]
        assert client.get("/healthz").status == 200


def test_the_file_is_checked_once_a_second_at_most(tmp_path: Path) -> None:
    path, clock = tmp_path / "web.yml", [0.0]
    path.write_text("")
    security = WebSecurity(path, clock=lambda: clock[-1])
    path.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    headers = []
    for now in (0.9, 1.0):
        clock.append(now)
        security.admit(Request("GET", "/metrics"), Visitor(), lambda _: headers.append(security.headers))
    assert headers == [(), (("X-Frame-Options", "deny"),)]


def endless(path: Path) -> None:
    path.touch()
    os.truncate(path, MOST_BYTES + 1)


@pytest.mark.parametrize(
    ("replace", "problem"),
    [
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "Is a directory|is not a regular file"),
        (endless, "is larger than"),
        (lambda path: path.symlink_to(path.name), "symbolic links"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    ],
    ids=["pipe", "directory", "too large", "link to itself", "device"],
)
@pytest.mark.parametrize("name", ["web.yml", "server.crt", "server.key", "ca.crt"])
def test_a_file_that_becomes_something_else_is_not_waited_for(
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    name: str,
    replace: Callable[[Path], None],
    problem: str,
) -> None:
    authority.issue()
    path = authority.write(
        "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: ca.crt,"
        " client_auth_type: RequireAndVerifyClientCert}"
    )
    now = 0.0
    security = WebSecurity(path, clock=lambda: now)
    before = security.tls
    changed = authority.folder / name
    changed.rename(authority.folder / "old")
    replace(changed)
    now += CHECK_SECONDS
    assert security.tls is before
    assert "stays in force" in caplog.text
    assert re.search(problem, caplog.text)


def test_the_rate_limit_recovers_with_time() -> None:
    now = 0.0
    bucket = TokenBucket(RateLimit(2.0, 2), lambda: now)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now = 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]
    now = 1000.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


@given(st.lists(st.floats(0, 10), max_size=50), st.integers(1, 5))
def test_the_rate_never_exceeds_the_burst_and_one_per_interval(steps: list[float], burst: int) -> None:
    now = 0.0
    bucket = TokenBucket(RateLimit(1.0, burst), lambda: now)
    taken = 0
    for step in steps:
        now += step
        taken += bucket.take()
    assert taken <= burst + now + 1e-6


def test_without_a_limit_all_requests_are_accepted() -> None:
    assert all(TokenBucket(None, lambda: 0.0).take() for _ in range(100))
