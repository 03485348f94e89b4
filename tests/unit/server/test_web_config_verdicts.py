"""`--web-config` beside exporter-toolkit: the same verdict on the same file, or a documented stricter one."""

import ssl

import pytest

from gputally.server import WebConfigError
from tests.support.authority import Authority
from tests.support.http_client import Client, serving
from tests.unit.server.web_config_cases import CASES, CLOSED, INVALID, Case, Verdict

STATUSES = {verdict.value: verdict for verdict in Verdict}


def verdicts(authority: Authority, text: str) -> tuple[Verdict, Verdict]:
    """For a client without a certificate, and with one."""
    path = authority.write(text)
    trusting = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    certified = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    certified.load_cert_chain(authority.folder / "client.crt", authority.folder / "client.key")
    try:
        with serving(web_config=path) as server:
            plain = server.url.startswith("http:")
            return (
                status(server.port, None if plain else trusting),
                status(server.port, None if plain else certified),
            )
    except WebConfigError:
        return INVALID, INVALID


def status(port: int, tls: ssl.SSLContext | None) -> Verdict:
    try:
        with Client(port, tls=tls) as client:
            return STATUSES[str(client.get().status)]
    except (ssl.SSLError, ConnectionError):
        return CLOSED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_has_the_verdict_of_exporter_toolkit_or_a_stricter_one(
    authority: Authority, case: Case
) -> None:
    authority.issue("prometheus.example", to="client")
    assert verdicts(authority, case.text) == (case.ours or case.toolkit)
