"""Certificates and passwords for the tests of `--web-config`."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from gputally.server import web_security


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its files."""

    ca: trustme.CA
    folder: Path

    def issue(self, *names: str, to: str = "server") -> None:
        """Write `<to>.crt` and `<to>.key`, as a renewal does: over the old ones."""
        certificate = self.ca.issue_cert(*(names or ("localhost", "127.0.0.1")))
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        for name, content in ((f"{to}.key", certificate.private_key_pem.bytes()), (f"{to}.crt", chain)):
            fresh = self.folder / f"{name}.new"
            fresh.write_bytes(content)
            fresh.rename(self.folder / name)

    def write(self, text: str) -> Path:
        """Write the web configuration."""
        path = self.folder / "web.yml"
        path.write_text(text)
        return path


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
