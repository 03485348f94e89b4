"""Certificates and passwords for the tests of `--web-config`."""

from pathlib import Path

import pytest
import trustme

from gputally.server import web_security
from tests.support.authority import Authority


@pytest.fixture
def changes_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are checked on every connection and request, not once a second."""
    monkeypatch.setattr(web_security, "CHECK_SECONDS", 0.0)


@pytest.fixture(scope="session")
def shared_ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authority(tmp_path: Path, shared_ca: trustme.CA) -> Authority:
    shared_ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    made = Authority(shared_ca, tmp_path)
    made.issue()
    return made
