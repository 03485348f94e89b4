"""`tls_server_config`, in real handshakes."""

import gc
import ssl
from asyncio.sslproto import SSLProtocol
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from gputally.server import WebConfigError
from gputally.server.web_security import WebSecurity
from tests.support.authority import MALFORMED_NAMES, Authority
from tests.support.http_client import (
    HOUR,
    PATIENT,
    Client,
    StaticPages,
    pass_time,
    request,
    serving,
    wait_for_connections,
)
from tools.servers.waiting import wait_until

BASE = "tls_server_config: {cert_file: server.crt, key_file: server.key, %s}"
MUTUAL = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, %s"


def trusting(authority: Authority, certificate: str = "") -> ssl.SSLContext:
    """A client that trusts the authority and may show a certificate of its own."""
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    if certificate:
        context.load_cert_chain(
            authority.folder / f"{certificate}.crt", authority.folder / f"{certificate}.key"
        )
    return context


def answered(port: int, context: ssl.SSLContext) -> bool:
    try:
        with Client(port, tls=context) as client:
            return client.get("/healthz").status == 200
    except (ssl.SSLError, ConnectionError):
        return False


def serial(port: int, context: ssl.SSLContext) -> object:
    with Client(port, tls=context) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        certificate = client.socket.getpeercert()
        return certificate["serialNumber"] if certificate else None


def test_metrics_are_served_over_tls(authority: Authority) -> None:
    with serving(StaticPages(size=3_000_000), web_config=authority.write(BASE % "")) as server:
        assert server.url.startswith("https://")
        with Client(server.port, tls=trusting(authority)) as client:
            for _ in range(3):
                assert len(client.get().body) == 3_000_005
            assert client.get(connection="close").status == 200
            assert client.is_hung_up()


def test_a_request_sent_with_the_end_of_the_handshake_is_answered(authority: Authority) -> None:
    with serving(web_config=authority.write(BASE % "")) as server, Client(server.port) as client:
        received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = trusting(authority).wrap_bio(received, to_send, server_hostname="localhost")
        while not _shaken(session):
            client.say(to_send.read())
            received.write(client.socket.recv(65536))
        session.write(request("/healthz", connection="close"))
        client.say(to_send.read())
        answer = b""
        while not answer.endswith(b"ok\n"):
            received.write(client.socket.recv(65536))
            answer += _decrypted(session)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def _shaken(session: ssl.SSLObject) -> bool:
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _decrypted(session: ssl.SSLObject) -> bytes:
    try:
        return session.read(65536)
    except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
        return b""


def test_certificate_and_key_can_be_inline(authority: Authority) -> None:
    def indented(name: str) -> str:
        return "".join(f"    {line}\n" for line in (authority.folder / name).read_text().splitlines())

    text = f"tls_server_config:\n  cert: |\n{indented('server.crt')}  key: |\n{indented('server.key')}"
    text += f"  client_ca: |\n{indented('ca.crt')}  client_auth_type: VerifyClientCertIfGiven\n"
    with serving(web_config=authority.write(text)) as server:
        assert answered(server.port, trusting(authority))


def test_plain_http_is_not_answered_on_a_tls_port(authority: Authority) -> None:
    with serving(web_config=authority.write(BASE % "")) as server, Client(server.port) as client:
        client.say(request("/healthz"))
        with pytest.raises((ConnectionError, ValueError)):
            client.hear()


@pytest.mark.usefixtures("changes_are_seen_at_once")
def test_a_renewed_certificate_is_used_without_a_restart(authority: Authority) -> None:
    with serving(web_config=authority.write(BASE % "")) as server:
        before = serial(server.port, trusting(authority))
        authority.issue()
        assert serial(server.port, trusting(authority)) != before


@pytest.mark.usefixtures("changes_are_seen_at_once")
def test_a_malformed_renewal_is_logged_once_and_the_old_certificate_is_kept(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(web_config=authority.write(BASE % "")) as server:
        before = serial(server.port, trusting(authority))
        (authority.folder / "server.crt").write_text("half a certi")
        for _ in range(2):
            assert serial(server.port, trusting(authority)) == before
            assert caplog.text.count("stays in force") == 1
        authority.issue()
        assert serial(server.port, trusting(authority)) != before


def test_a_client_certificate_can_be_required(authority: Authority) -> None:
    authority.issue("prometheus.example", to="client")
    with serving(web_config=authority.write(BASE % (MUTUAL % ""))) as server:
        assert answered(server.port, trusting(authority, "client"))
        assert not answered(server.port, trusting(authority))


def test_failed_handshakes_leave_no_connection(authority: Authority) -> None:
    def sessions() -> int:
        return sum(isinstance(found, SSLProtocol) for found in gc.get_objects())

    with serving(web_config=authority.write(BASE % "")) as server:
        gc.collect()
        gc.disable()  # their buffers must not have to wait for it
        try:
            for _ in range(20):
                with Client(server.port) as client:
                    client.say(b"this is not a TLS handshake")
                    assert client.is_hung_up()
            assert wait_until(lambda: sessions() < 5)
        finally:
            gc.enable()


def test_a_client_certificate_of_another_authority_is_refused(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(trustme.CA(), tmp_path_factory.mktemp("stranger"))
    stranger.issue("prometheus.example", to="client")
    context = trusting(authority)
    context.load_cert_chain(stranger.folder / "client.crt", stranger.folder / "client.key")
    for policy in ("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"):
        text = BASE % f"client_auth_type: {policy}, client_ca_file: ca.crt"
        with serving(web_config=authority.write(text)) as server:
            assert not answered(server.port, context)


def test_with_verify_if_given_a_certificate_is_optional(authority: Authority) -> None:
    authority.issue("prometheus.example", to="client")
    text = BASE % "client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.crt"
    with serving(web_config=authority.write(text)) as server:
        assert answered(server.port, trusting(authority))
        assert answered(server.port, trusting(authority, "client"))


@pytest.mark.parametrize("name", ["prometheus.example", "10.0.0.1", "2001:db8::1", "ops@example.org"])
def test_only_clients_with_an_allowed_name_are_accepted(authority: Authority, name: str) -> None:
    authority.issue(name, to="friend")
    authority.issue("other.example", to="other")
    text = BASE % (MUTUAL % f"client_allowed_sans: ['x.example', '{name}']")
    with serving(web_config=authority.write(text)) as server:
        assert answered(server.port, trusting(authority, "friend"))
        assert not answered(server.port, trusting(authority, "other"))


@pytest.mark.usefixtures("changes_are_seen_at_once")
def test_a_new_client_authority_is_used(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    successor = Authority(trustme.CA(), tmp_path_factory.mktemp("successor"))
    successor.issue("prometheus.example", to="client")
    (authority.folder / "clients.crt").write_bytes((authority.folder / "ca.crt").read_bytes())
    context = trusting(authority)
    context.load_cert_chain(successor.folder / "client.crt", successor.folder / "client.key")
    text = BASE % "client_auth_type: RequireAndVerifyClientCert, client_ca_file: clients.crt"
    with serving(web_config=authority.write(text)) as server:
        assert not answered(server.port, context)
        successor.ca.cert_pem.write_to_path(authority.folder / "clients.crt")
        assert answered(server.port, context)


def test_versions_and_ciphers_are_those_of_the_file(authority: Authority) -> None:
    text = BASE % (
        "max_version: TLS12, curve_preferences: [CurveP384],"
        " cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,"
        " TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256]"
    )
    with serving(web_config=authority.write(text)) as server:
        with Client(server.port, tls=trusting(authority)) as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            cipher = client.socket.cipher()
            assert client.socket.version() == "TLSv1.2"
            assert cipher is not None
            assert cipher[0].endswith("CHACHA20-POLY1305")
        modern = trusting(authority)
        modern.minimum_version = ssl.TLSVersion.TLSv1_3
        assert not answered(server.port, modern)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("min_version: TLS11", "min_version: 'TLS11' is not one of TLS12, TLS13"),
        ("min_version: TLS13, max_version: TLS12", "min_version: TLS13 is above max_version"),
        (
            "cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]",
            "cipher_suites: 'TLS_RSA_WITH_RC4_128_SHA' is not one of",
        ),
        ("curve_preferences: [Curve25519]", "curve_preferences: 'Curve25519' is not one of CurveP256"),
        ("client_auth_type: Maybe", "client_auth_type: 'Maybe' is not one of NoClientCert"),
        ("client_auth_type: RequireAnyClientCert", "RequireAnyClientCert"),
        ("client_ca_file: ca.crt", "client_auth_type: NoClientCert leaves the client CA unused"),
        ("client_auth_type: RequestClientCert, client_ca_file: ca.crt", "leaves the client CA unused"),
        ("client_allowed_sans: [x]", "client_allowed_sans: not checked with NoClientCert"),
        (
            "client_auth_type: RequireAndVerifyClientCert, client_ca_file: none.crt",
            "client_ca_file: cannot read",
        ),
        (
            "client_auth_type: RequireAndVerifyClientCert, client_ca_file: web.yml",
            "client_ca: no certificate in it",
        ),
    ],
)
def test_an_unsupported_setting_is_an_error_with_its_key(
    authority: Authority, setting: str, problem: str
) -> None:
    with pytest.raises(WebConfigError) as caught:
        WebSecurity(authority.write(BASE % setting))
    assert "web.yml: tls_server_config: " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{cert_file: none.crt, key_file: server.key}", "cert_file: cannot read"),
        ("{cert_file: server.crt, key_file: none.key}", "key_file: cannot read"),
        ("{cert_file: server.crt, key_file: server.crt}", "cert: not a certificate and its unencrypted key"),
        ("{cert_file: server.key, key_file: server.key}", "cert: not a certificate and its unencrypted key"),
        ("{cert_file: server.crt, key_file: other.key}", "cert: not a certificate and its unencrypted key"),
        ("{cert: nonsense, key: nonsense}", "cert: not a certificate and its unencrypted key"),
    ],
)
def test_an_unusable_certificate_is_an_error_at_the_start(
    authority: Authority, text: str, problem: str
) -> None:
    authority.issue(to="other")
    with pytest.raises(WebConfigError) as caught:
        WebSecurity(authority.write(f"tls_server_config: {text}"))
    assert problem in str(caught.value)


def test_an_encrypted_key_is_an_error_without_a_prompt(authority: Authority) -> None:
    key = serialization.load_pem_private_key((authority.folder / "server.key").read_bytes(), None)
    (authority.folder / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(WebConfigError, match="unencrypted key"):
        WebSecurity(authority.write(BASE % ""))


def test_requesting_a_certificate_without_verification_is_logged_as_a_warning(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(web_config=authority.write(BASE % "client_auth_type: RequestClientCert")) as server:
        assert answered(server.port, trusting(authority))
    assert "RequestClientCert verifies nothing" in caplog.text


def test_of_several_curves_the_first_is_used_and_a_warning_logged(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    client = trusting(authority)
    client.set_ecdh_curve("secp384r1")
    with serving(web_config=authority.write(BASE % "curve_preferences: [CurveP384, X25519]")) as server:
        assert answered(server.port, client)
        client.set_ecdh_curve("X25519")
        assert not answered(server.port, client)
    assert "CurveP384, the first, is used" in caplog.text


def test_ciphers_of_tls_1_3_alone_admit_no_older_version(authority: Authority) -> None:
    old = trusting(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(web_config=authority.write(BASE % "cipher_suites: [TLS_AES_128_GCM_SHA256]")) as server:
        assert answered(server.port, trusting(authority))
        assert not answered(server.port, old)


@pytest.mark.parametrize("names", MALFORMED_NAMES.values(), ids=MALFORMED_NAMES.keys())
def test_a_client_certificate_with_malformed_names_is_refused_and_leaves_no_connection(
    authority: Authority, names: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    authority.issue_malformed(names, to="client")
    with serving(web_config=authority.write(BASE % (MUTUAL % "client_allowed_sans: [x]"))) as server:
        for _ in range(3):
            assert not answered(server.port, trusting(authority, "client"))
        wait_for_connections(server, 0)
    gc.collect()  # which would report exceptions of forgotten tasks
    assert not caplog.records


@pytest.mark.usefixtures("changes_are_seen_at_once")
def test_tls_stays_enabled_while_the_file_is_rewritten(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(web_config=authority.write(BASE % "")) as server:
        authority.write("")
        assert answered(server.port, trusting(authority))
        assert "stays in force" in caplog.text
        with Client(server.port) as client, pytest.raises((ConnectionError, ValueError)):
            client.get("/healthz")


def test_a_client_without_a_handshake_is_disconnected(authority: Authority) -> None:
    with (
        serving(web_config=authority.write(BASE % "")) as server,
        Client(server.port) as silent,
        Client(server.port) as talking,
    ):
        talking.say(b"\x16\x03\x01\x02\x00")
        wait_for_connections(server, 2)
        pass_time(server, PATIENT.handshake_seconds + 1)
        assert silent.is_hung_up()
        assert talking.is_hung_up()


def test_handshakes_count_as_connections(authority: Authority) -> None:
    limits = replace(PATIENT, connections=4)
    with serving(web_config=authority.write(BASE % ""), limits=limits) as server:
        silent = [Client(server.port) for _ in range(20)]
        try:
            assert answered(server.port, trusting(authority))
            assert silent[0].is_hung_up()
        finally:
            for one in silent:
                one.socket.close()


def test_a_client_that_does_not_read_over_tls_is_disconnected(authority: Authority) -> None:
    pages = StaticPages(size=50_000_000)
    with serving(pages, web_config=authority.write(BASE % "")) as server:
        with Client(server.port, tls=trusting(authority)) as deaf:
            deaf.say(request())
            wait_until(lambda: pages.asked, "the request is read")

            def is_cut_off() -> bool:
                pass_time(server, HOUR + 1)  # again, as long as the kernel's buffers took some more
                assert server._pool is not None
                return len(server._pool) == 0

            wait_until(is_cut_off)
            with pytest.raises((ConnectionError, ssl.SSLError)):
                deaf.hear()
        assert answered(server.port, trusting(authority))


def test_paths_are_relative_to_the_file(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(authority.folder.parent)
    relative = Path(authority.folder.name) / authority.write(BASE % "").name
    assert WebSecurity(relative).tls is not None
