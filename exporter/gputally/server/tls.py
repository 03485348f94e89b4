"""TLS: the context from `tls_server_config`, and connections that use it."""

import asyncio
import ipaddress
import logging
import os
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gputally.server.connection import Connection, ConnectionPool
from gputally.server.limits import Limits
from gputally.server.routes import Routes
from gputally.server.web_config import TlsSettings

log = logging.getLogger(__name__)

# asyncio gives each TLS connection a read buffer of 256 KiB, 64 MiB for all silent clients together.
SSLProtocol.max_size = 16 * 1024

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_CERTIFICATES = {
    "NoClientCert": ssl.CERT_NONE,
    # A certificate that is requested and not verified proves nothing, so it is not requested.
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# Go's names, which the file uses -> OpenSSL's. The suites of TLS 1.3 cannot be chosen in either.
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of a handshake."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str]
    """A client's certificate must have one of these names; empty where any verified one is accepted."""

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this verified certificate (or with none) is admitted."""
        if not self.allowed_sans or not certificate:
            return True  # the handshake has checked whether one is required
        names = {_canonical(kind, name) for kind, name in certificate.get("subjectAltName", ())}
        return not names.isdisjoint(self.allowed_sans)


def build_tls(settings: TlsSettings) -> Tls:
    """Read certificates and keys. Raises WebConfigError, which names the setting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    context.minimum_version = _choice(settings, "min_version", settings.min_version, VERSIONS)
    context.maximum_version = _choice(settings, "max_version", settings.max_version, VERSIONS)
    if context.minimum_version > context.maximum_version:
        raise settings.error("min_version", f"{settings.min_version} is above max_version")
    _choose_ciphers(settings, context)
    _choose_curve(settings, context)
    _load_certificate(settings, context)
    _require_client_certificate(settings, context)
    return Tls(context, frozenset(settings.client_allowed_sans))


def _choose_ciphers(settings: TlsSettings, context: ssl.SSLContext) -> None:
    for name in settings.cipher_suites:
        if name not in TLS13_CIPHERS:
            _choice(settings, "cipher_suites", name, CIPHERS)
    chosen = [CIPHERS[name] for name in settings.cipher_suites if name in CIPHERS]
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError as error:
            raise settings.error("cipher_suites", f"this OpenSSL has none of {', '.join(chosen)}") from error
    if settings.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def _choose_curve(settings: TlsSettings, context: ssl.SSLContext) -> None:
    curves = [_choice(settings, "curve_preferences", name, CURVES) for name in settings.curve_preferences]
    if len(curves) > 1:
        raise settings.error(
            "curve_preferences", "Python's TLS supports one curve only: name one, or omit the list"
        )
    if curves:
        context.set_ecdh_curve(curves[0])


def _load_certificate(settings: TlsSettings, context: ssl.SSLContext) -> None:
    with (
        _as_file(settings, "cert", settings.cert, settings.cert_file) as certificate,
        _as_file(settings, "key", settings.key, settings.key_file) as key,
    ):
        try:
            # Without a password OpenSSL would prompt on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            raise settings.error(
                "cert", f"not a certificate and its unencrypted key ({error.reason or error})"
            ) from error


@contextmanager
def _as_file(settings: TlsSettings, key: str, inline: str | None, path: str | None) -> Iterator[str]:
    """A path for OpenSSL. Inline text is passed in memory, never on disk."""
    if path is not None:
        try:
            with open(path, "rb"):  # noqa: PTH123 - only for an error that names the file
                pass
        except OSError as error:
            raise settings.error(f"{key}_file", f"cannot read {path}: {error.strerror}") from error
        yield path
        return
    descriptor = os.memfd_create(f"gputally-{key}")
    try:
        os.write(descriptor, (inline or "").encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _require_client_certificate(settings: TlsSettings, context: ssl.SSLContext) -> None:
    policy = settings.client_auth_type
    if policy in ("RequireAnyClientCert", "RequireClientCert"):
        raise settings.error(
            "client_auth_type",
            f"{policy} accepts any unverified certificate, which proves nothing and which Python's TLS does"
            " not support: use RequireAndVerifyClientCert with client_ca_file",
        )
    context.verify_mode = _choice(settings, "client_auth_type", policy, CLIENT_CERTIFICATES)
    if policy == "RequestClientCert":
        log.warning(
            "%s: RequestClientCert verifies nothing: no client certificate is requested", settings.file
        )
    if context.verify_mode == ssl.CERT_NONE:
        if settings.client_ca_file or settings.client_ca:
            raise settings.error(
                "client_auth_type", f"{policy} leaves the client CA unused: use RequireAndVerifyClientCert"
            )
        if settings.client_allowed_sans:
            raise settings.error(
                "client_allowed_sans", f"not checked with {policy}: use RequireAndVerifyClientCert"
            )
        return
    try:
        if settings.client_ca_file:
            context.load_verify_locations(cafile=settings.client_ca_file)
        elif settings.client_ca:
            context.load_verify_locations(cadata=settings.client_ca)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except ssl.SSLError as error:
        raise settings.error("client_ca", f"no certificate in it ({error.reason or error})") from error
    except OSError as error:
        raise settings.error(
            "client_ca_file", f"cannot read {settings.client_ca_file}: {error.strerror}"
        ) from error


def _choice(settings: TlsSettings, key: str, value: str, allowed: Mapping[str, Any]) -> Any:
    if value not in allowed:
        raise settings.error(key, f"{value!r} is not one of {', '.join(allowed)}")
    return allowed[value]


def _canonical(kind: str, name: str) -> str:
    """The file has the short form of an IPv6 address, OpenSSL prints the long one."""
    return str(ipaddress.ip_address(name.strip())) if kind == "IP Address" else name


class TlsConnection(Connection):
    """HTTP over TLS. The handshake counts against the same limits as a request.

    The event loop's own TLS server would hide a connection until its handshake is done; here a client that
    never finishes it has a deadline and can be evicted like one that never sends a request.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: ConnectionPool, routes: Routes, limits: Limits, tls: Tls
    ) -> None:
        super().__init__(loop, pool, routes, limits)
        self._tls = tls
        self._raw: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected and must complete the handshake."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type for mypy
        transport.pause_reading()
        self._raw = transport
        self._pool.wait(self, self._limits.handshake_seconds)
        self._handshake = self._loop.create_task(self._do_handshake(transport))

    async def _do_handshake(self, raw: asyncio.Transport) -> None:
        try:
            secured = await self._loop.start_tls(
                raw,
                self,
                self._tls.context,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=self._limits.linger_seconds,
            )
        except OSError as error:  # ssl.SSLError is one
            # The traceback is a reference cycle that would keep the buffers until a garbage collection.
            error.__traceback__ = None
            raw.abort()
            return
        self._raw = None
        if secured is None or not self._admits(secured):
            raw.abort()
            return
        self._start(secured)
        # The first request can be decrypted before this task runs again.
        early, self._early = b"".join(self._early), []
        if early:
            self.data_received(early)

    def _admits(self, transport: asyncio.Transport) -> bool:
        session = transport.get_extra_info("ssl_object")
        return isinstance(session, ssl.SSLObject) and self._tls.admits(session.getpeercert())

    def data_received(self, data: bytes) -> None:
        """The client has sent data, here decrypted."""
        if self._transport is None:
            self._early.append(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._raw = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection now, also during the handshake."""
        if self._raw is not None:
            self._raw.abort()
        super().abort()

    def retire(self) -> None:
        """Close as soon as the current response has been sent; at once during the handshake."""
        if self._raw is not None:
            self._raw.abort()
        super().retire()
