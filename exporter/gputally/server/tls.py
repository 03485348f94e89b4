"""From `tls_server_config` to a TLS context, with what Python's ssl module can and cannot do."""

import ipaddress
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gputally.server.web_config import TlsSettings

log = logging.getLogger(__name__)

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_CERTIFICATES = {
    "NoClientCert": ssl.CERT_NONE,
    # A certificate that is asked for and not verified proves nothing: not to ask is the same.
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# Go's names, which the file uses, and OpenSSL's. TLS 1.3 suites cannot be chosen in either.
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
    """What a handshake needs."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str]
    """Names of which a client's certificate must carry one; empty when any verified one will do."""

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this verified certificate (or with none) may talk."""
        if not self.allowed_sans or not certificate:
            return True  # whether there must be one has been settled by the handshake
        names = {_canonical(kind, name) for kind, name in certificate.get("subjectAltName", ())}
        return not names.isdisjoint(self.allowed_sans)


def build_tls(settings: TlsSettings) -> Tls:
    """Read certificates and keys. Raises WebConfigError, which names the setting at fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    context.minimum_version = _choice(settings, "min_version", settings.min_version, VERSIONS)
    context.maximum_version = _choice(settings, "max_version", settings.max_version, VERSIONS)
    if context.minimum_version > context.maximum_version:
        raise settings.error("min_version", f"{settings.min_version} is above max_version")
    _choose_ciphers(settings, context)
    _choose_curve(settings, context)
    _load_certificate(settings, context)
    _demand_client_certificate(settings, context)
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
            "curve_preferences", "Python's TLS can be told one curve only: name one, or leave the list out"
        )
    if curves:
        context.set_ecdh_curve(curves[0])


def _load_certificate(settings: TlsSettings, context: ssl.SSLContext) -> None:
    with (
        _as_file(settings, "cert", settings.cert, settings.cert_file) as certificate,
        _as_file(settings, "key", settings.key, settings.key_file) as key,
    ):
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            raise settings.error(
                "cert", f"not a certificate and its unencrypted key ({error.reason or error})"
            ) from error


@contextmanager
def _as_file(settings: TlsSettings, key: str, inline: str | None, path: str | None) -> Iterator[str]:
    """A path for OpenSSL. What stands in the file itself is handed over in memory, never on disk."""
    if path is not None:
        try:
            with open(path, "rb"):  # noqa: PTH123 - only to say which of the two cannot be read
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


def _demand_client_certificate(settings: TlsSettings, context: ssl.SSLContext) -> None:
    policy = settings.client_auth_type
    if policy in ("RequireAnyClientCert", "RequireClientCert"):
        raise settings.error(
            "client_auth_type",
            f"{policy} takes any certificate unverified, which Python's TLS cannot do and which proves"
            " nothing: use RequireAndVerifyClientCert with client_ca_file",
        )
    context.verify_mode = _choice(settings, "client_auth_type", policy, CLIENT_CERTIFICATES)
    if policy == "RequestClientCert":
        log.warning(
            "%s: RequestClientCert verifies nothing: no client certificate is asked for", settings.file
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
    """IPv6 addresses have many spellings; the file has the short one, OpenSSL prints the long one."""
    return str(ipaddress.ip_address(name.strip())) if kind == "IP Address" else name
