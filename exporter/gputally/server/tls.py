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
from pathlib import Path
from typing import Any

from gputally.files import read_regular
from gputally.server.connection import Connection, ConnectionPool
from gputally.server.limits import Limits
from gputally.server.routes import Routes
from gputally.server.web_config import MOST_BYTES, TlsSettings

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
SAN_KINDS = ("DNS", "email", "IP Address", "URI")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of a handshake."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str] | None
    """A client's certificate must have one of these names; None where the handshake alone decides."""

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this verified certificate (or with none) is admitted.

        Raises ValueError for a malformed name.
        """
        if self.allowed_sans is None:
            return True
        names = (certificate or {}).get("subjectAltName", ())
        return any(kind in SAN_KINDS and _canonical(kind, name) in self.allowed_sans for kind, name in names)


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
    sans = settings.client_allowed_sans
    return Tls(context, None if sans is None else frozenset(sans))


def _choose_ciphers(settings: TlsSettings, context: ssl.SSLContext) -> None:
    for name in settings.cipher_suites:
        if name not in TLS13_CIPHERS:
            _choice(settings, "cipher_suites", name, CIPHERS)
    chosen = [CIPHERS[name] for name in settings.cipher_suites if name in CIPHERS]
    if settings.cipher_suites and not chosen:
        # Only suites of TLS 1.3: older versions have none, not OpenSSL's default ones.
        if context.maximum_version < ssl.TLSVersion.TLSv1_3:
            raise settings.error("cipher_suites", f"none of them is of {settings.max_version}")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
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
        log.warning(
            "%s: curve_preferences: Python's TLS supports one curve: %s, the first, is used",
            settings.file,
            settings.curve_preferences[0],
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
    """A path for OpenSSL, which would wait for a pipe. The text is passed in memory, never on disk."""
    content = _read(settings, f"{key}_file", path) if path is not None else (inline or "").encode()
    descriptor = os.memfd_create(f"gputally-{key}")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read(settings: TlsSettings, key: str, path: str) -> bytes:
    try:
        return read_regular(Path(path), MOST_BYTES)
    except OSError as error:
        raise settings.error(key, f"cannot read {path}: {error.strerror}") from error


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
        if settings.client_allowed_sans is not None:
            raise settings.error(
                "client_allowed_sans", f"not checked with {policy}: use RequireAndVerifyClientCert"
            )
        return
    try:
        if settings.client_ca_file:
            with _as_file(settings, "client_ca", None, settings.client_ca_file) as file:
                context.load_verify_locations(cafile=file)
        elif settings.client_ca:
            context.load_verify_locations(cadata=settings.client_ca)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except ssl.SSLError as error:
        raise settings.error("client_ca", f"no certificate in it ({error.reason or error})") from error


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
            if secured is not None and self._admits(secured):
                self._raw = None
                self._start(secured)
        except (OSError, ValueError) as error:
            # ssl.SSLError is an OSError; a malformed name in a client's certificate is a ValueError.
            # The traceback is a reference cycle that would keep the buffers until a garbage collection.
            error.__traceback__ = None
        finally:
            if self._raw is not None:
                raw.abort()
        # The first request can be decrypted before this task runs again.
        early, self._early = b"".join(self._early), []
        if early and self._raw is None:
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
