"""What a file for `--web-config` leads to, in exporter-toolkit and here.

The verdicts of exporter-toolkit are those of its version 0.20.0 (web/tls_config.go, web/handler.go), measured
with these files. They are compared for a client without a certificate, and for one whose certificate is
of the file's `client_ca_file` and has the name prometheus.example.
"""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What comes of a file, or of a request."""

    INVALID = "the exporter does not start"
    ANSWERED = "200"
    LOGIN = "401"
    LIMITED = "429"
    CLOSED = "the handshake fails"


INVALID, ANSWERED, LOGIN, LIMITED, CLOSED = Verdict


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    toolkit: tuple[Verdict, Verdict]
    """For a client without a certificate, and with one."""
    ours: tuple[Verdict, Verdict] | None = None
    """Where they differ: stricter, with the reason in docs/exporter.md."""


def same(name: str, text: str, verdict: Verdict, with_certificate: Verdict | None = None) -> Case:
    return Case(name, text, (verdict, with_certificate or verdict))


def stricter(
    name: str, text: str, toolkit: Verdict, with_certificate: Verdict | None = None, ours: Verdict = INVALID
) -> Case:
    return Case(name, text, (toolkit, with_certificate or toolkit), (ours, ours))


HASH = "$2y$04$wq0UfA9JrT0VqsQX1HHh9uSS6mCLDDMDoDYTHXqpjBnXTEw4eVyOC"


HTTP1 = "\nhttp_server_config: {http2: false}"


def tls(settings: str) -> str:
    return f"tls_server_config: {{cert_file: server.crt, key_file: server.key, {settings}}}"


def verified(settings: str, policy: str = "RequireAndVerifyClientCert") -> str:
    return tls(f"client_auth_type: {policy}, client_ca_file: ca.crt, {settings}")


def header(line: str) -> str:
    return f"http_server_config: {{headers: {{{line}}}}}"


def rate(settings: str) -> str:
    return f"rate_limit: {{{settings}}}"


CASES = (
    # The document
    same("empty file", "", ANSWERED),
    same("comment only", "# nothing\n", ANSWERED),
    same("prose", "lorem ipsum\ndolor sit\n", INVALID),
    same("list", "- tls_server_config\n", INVALID),
    same("unknown section", "tls_config: {}", INVALID),
    same("unknown key of TLS", tls("certfile: x"), INVALID),
    same("unknown key of HTTP", "http_server_config: {http3: true}", INVALID),
    same("unknown key of the rate limit", rate("interval: 1s, burst: 9, per: ip"), INVALID),
    same("duplicate section", "rate_limit: {}\nrate_limit: {}\n", INVALID),
    same("duplicate key", tls("key_file: server.key"), INVALID),
    same("section that is null", "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n", ANSWERED),
    same("section that is text", "tls_server_config: yes please", INVALID),
    same(
        "merged settings",
        "http_server_config:\n  headers: {<<: {X-Frame-Options: deny}, X-Content-Type-Options: nosniff}\n",
        ANSWERED,
    ),
    stricter("two documents", "{}\n---\nunknown: 1\n", ANSWERED),
    # Certificate and key
    same("TLS", tls(""), ANSWERED),
    same("TLS without settings", "tls_server_config: {}", ANSWERED),
    same("no key", "tls_server_config: {cert_file: server.crt}", INVALID),
    same("no certificate", "tls_server_config: {key_file: server.key}", INVALID),
    same("empty certificate path", "tls_server_config: {cert_file: '', key_file: server.key}", INVALID),
    same("empty inline key", "tls_server_config: {cert_file: server.crt, key: ''}", INVALID),
    same(
        "both paths empty", "tls_server_config: {cert_file: '', key_file: '', client_auth_type: x}", INVALID
    ),
    same("missing files", "tls_server_config: {cert_file: none.crt, key_file: none.key}", INVALID),
    same(
        "key of another certificate", "tls_server_config: {cert_file: ca.crt, key_file: server.key}", INVALID
    ),
    stricter("only a version, no certificate", "tls_server_config: {min_version: TLS12}", ANSWERED),
    stricter("certificate inline and as a file", tls("cert: x"), ANSWERED),
    # Client certificates
    same("client certificate required", verified(""), CLOSED, ANSWERED),
    same("client certificate optional", verified("", "VerifyClientCertIfGiven"), ANSWERED),
    same(
        "client certificate required, system authorities",
        tls("client_auth_type: RequireAndVerifyClientCert"),
        CLOSED,
    ),
    same("client certificate requested", tls("client_auth_type: RequestClientCert"), ANSWERED),
    same("empty policy", tls("client_auth_type: ''"), ANSWERED),
    same("invented policy", tls("client_auth_type: Maybe"), INVALID),
    same("authority without a policy", tls("client_ca_file: ca.crt"), INVALID),
    same("authority and no certificate wanted", verified("", "NoClientCert"), INVALID),
    stricter("authority inline and as a file", verified("client_ca: x"), CLOSED, ANSWERED),
    same(
        "missing authority",
        tls("client_auth_type: RequireAndVerifyClientCert, client_ca_file: none.crt"),
        INVALID,
    ),
    stricter("any certificate", tls("client_auth_type: RequireAnyClientCert"), CLOSED, ANSWERED),
    stricter("any certificate, old name", tls("client_auth_type: RequireClientCert"), CLOSED, ANSWERED),
    stricter("authority that verifies nothing", verified("", "RequestClientCert"), ANSWERED),
    stricter(
        "authority without a certificate",
        tls("client_auth_type: RequireAndVerifyClientCert, client_ca_file: server.key"),
        CLOSED,
    ),
    # Names of client certificates
    same("allowed name", verified("client_allowed_sans: [x.example, prometheus.example]"), CLOSED, ANSWERED),
    same("other name", verified("client_allowed_sans: [x.example]"), CLOSED),
    same("no name is allowed", verified("client_allowed_sans: []"), CLOSED),
    same("names not set", verified("client_allowed_sans: "), CLOSED, ANSWERED),
    same("empty name", verified("client_allowed_sans: ['']"), CLOSED),
    same(
        "names are compared as written",
        verified("client_allowed_sans: [PROMETHEUS.example, '*.example']"),
        CLOSED,
    ),
    same(
        "optional certificate with an allowed name",
        verified("client_allowed_sans: [prometheus.example]", "VerifyClientCertIfGiven"),
        CLOSED,
        ANSWERED,
    ),
    same(
        "optional certificate with another name",
        verified("client_allowed_sans: [x.example]", "VerifyClientCertIfGiven"),
        CLOSED,
    ),
    same(
        "optional certificate and no name",
        verified("client_allowed_sans: []", "VerifyClientCertIfGiven"),
        CLOSED,
    ),
    same("one name that is no list", verified("client_allowed_sans: prometheus.example"), INVALID),
    stricter("names without certificates", tls("client_allowed_sans: [x.example]"), ANSWERED),
    stricter("no name without certificates", tls("client_allowed_sans: []"), ANSWERED),
    stricter(
        "names of unverified certificates",
        tls("client_auth_type: RequestClientCert, client_allowed_sans: [prometheus.example]"),
        CLOSED,
        ANSWERED,
    ),
    # Versions, ciphers, curves
    same("TLS 1.3 only", tls("min_version: TLS13"), ANSWERED),
    same("TLS 1.2 only", tls("max_version: TLS12"), ANSWERED),
    same("version of no standard", tls("min_version: TLS111"), INVALID),
    same("empty version", tls("min_version: ''"), INVALID),
    same("version that is null", tls("min_version: , max_version: null"), ANSWERED),
    same("version as a number", tls("min_version: 1.2"), INVALID),
    stricter("old version", tls("min_version: TLS10"), ANSWERED),
    stricter("only old versions", tls("min_version: TLS10, max_version: TLS11"), CLOSED),
    stricter("versions in the wrong order", tls("min_version: TLS13, max_version: TLS12"), CLOSED),
    same(
        "ciphers",
        tls(
            "max_version: TLS12, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,"
            " TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]"
        ),
        ANSWERED,
    ),
    same("no ciphers", tls("cipher_suites: []"), ANSWERED),
    same("invented cipher", tls("cipher_suites: [TLS_ECDHE_RSA_WITH_AES_512_GCM_SHA512]"), INVALID),
    same("insecure cipher", tls("cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]"), INVALID),
    same("OpenSSL's name of a cipher", tls("cipher_suites: [ECDHE-RSA-AES128-GCM-SHA256]"), INVALID),
    same("ciphers of TLS 1.3 only", tls("cipher_suites: [TLS_AES_128_GCM_SHA256]") + HTTP1, ANSWERED),
    stricter(
        "ciphers of TLS 1.3 only, up to TLS 1.2",
        tls("max_version: TLS12, cipher_suites: [TLS_AES_128_GCM_SHA256]") + HTTP1,
        CLOSED,
    ),
    # The one case in which exporter-toolkit is stricter: HTTP/2, which is not offered here, needs others.
    Case(
        "ciphers without those of HTTP/2",
        tls("max_version: TLS12, cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]"),
        (INVALID, INVALID),
        (ANSWERED, ANSWERED),
    ),
    same("server's order", tls("prefer_server_cipher_suites: false"), ANSWERED),
    same("order as text", tls("prefer_server_cipher_suites: 'false'"), INVALID),
    same("order in old YAML", tls("prefer_server_cipher_suites: no"), ANSWERED),
    same("one curve", tls("curve_preferences: [CurveP521]"), ANSWERED),
    same("all curves", tls("curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]"), ANSWERED),
    same("no curves", tls("curve_preferences: []"), ANSWERED),
    same("invented curve", tls("curve_preferences: [CurveP257]"), INVALID),
    # HTTP
    same("HTTP/2 off", "http_server_config: {http2: false}", ANSWERED),
    same("HTTP/2 as a number", "http_server_config: {http2: 1}", INVALID),
    same("frame options", header("X-Frame-Options: deny"), ANSWERED),
    same("frame options in capitals", header("X-Frame-Options: DENY"), INVALID),
    same("invented frame options", header("X-Frame-Options: all"), INVALID),
    same("empty frame options", header("X-Frame-Options: ''"), INVALID),
    same("frame options that are null", header("X-Frame-Options: "), INVALID),
    same("empty content type options", header("X-Content-Type-Options: ''"), INVALID),
    same("sniffing", header("X-Content-Type-Options: sniff"), INVALID),
    same("XSS protection as a number", header("X-XSS-Protection: 1"), ANSWERED),
    same("XSS protection as text", header("X-XSS-Protection: '1; mode=block'"), ANSWERED),
    same("empty XSS protection", header("X-XSS-Protection: ''"), ANSWERED),
    same("policy", header("Content-Security-Policy: \"default-src 'self'\""), ANSWERED),
    same("strict transport", header("Strict-Transport-Security: max-age=31536000"), ANSWERED),
    same("header of our own", header("Server: x"), INVALID),
    same("header in another case", header("x-frame-options: deny"), INVALID),
    stricter("header of two lines", header('Content-Security-Policy: "a\\r\\nSet-Cookie: b"'), ANSWERED),
    stricter("header with another alphabet", header("Content-Security-Policy: ü"), ANSWERED),
    # Logins
    same("users", f"basic_auth_users: {{alice: {HASH}}}", LOGIN),
    same("no users", "basic_auth_users: {}", ANSWERED),
    same("user name that is a number", f"basic_auth_users: {{1: {HASH}}}", LOGIN),
    same("user name that is a word of YAML", f"basic_auth_users: {{no: {HASH}}}", LOGIN),
    same("empty user name", f"basic_auth_users: {{'': {HASH}}}", LOGIN),
    same("plain password", "basic_auth_users: {alice: secret}", INVALID),
    same("no password", "basic_auth_users: {alice: }", INVALID),
    same("SHA-1", "basic_auth_users: {alice: '{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ='}", INVALID),
    same("SHA-512", f"basic_auth_users: {{alice: '$6$salt${'a' * 86}'}}", INVALID),
    same("users as a list", "basic_auth_users: [alice]", INVALID),
    same("user twice", f"basic_auth_users: {{alice: {HASH}, alice: {HASH}}}", INVALID),
    stricter(
        "password that takes hours", f"basic_auth_users: {{alice: {HASH.replace('$04$', '$31$')}}}", LOGIN
    ),
    same("cost out of range", f"basic_auth_users: {{alice: {HASH.replace('$04$', '$32$')}}}", INVALID),
    same("cost below the least", f"basic_auth_users: {{alice: {HASH.replace('$04$', '$03$')}}}", INVALID),
    stricter("hash with more text", f"basic_auth_users: {{alice: {HASH}xyz}}", LOGIN),
    stricter(
        "hash of the first version", f"basic_auth_users: {{alice: {HASH.replace('$2y$', '$2$')}0}}", LOGIN
    ),
    stricter("user name with a colon", f"basic_auth_users: {{'a:b': {HASH}}}", LOGIN),
    # Rate limit
    same("rate", rate("interval: 1h, burst: 9"), ANSWERED),
    same("rate without a burst", rate("interval: 1h, burst: 0"), LIMITED),
    same("rate with the default burst", rate("interval: 1h"), LIMITED),
    same("negative burst", rate("interval: 1h, burst: -1"), LIMITED),
    same("interval of 0", rate("interval: 0, burst: 0"), ANSWERED),
    same("interval of 0s", rate("interval: 0s"), ANSWERED),
    same("no interval", rate("burst: 5"), ANSWERED),
    same("interval that is no duration", rate("interval: fast, burst: 1"), INVALID),
    same("interval without a unit, as text", rate("interval: '5', burst: 1"), INVALID),
    same("interval with all units", rate("interval: 1h1m1.5s1ms1us1µs1ns, burst: 9"), ANSWERED),
    same("interval with a sign", rate("interval: +.5h, burst: 9"), ANSWERED),
    same("interval of days", rate("interval: 1d, burst: 1"), INVALID),
    same("burst as text", rate("interval: 1h, burst: '5'"), INVALID),
    stricter("burst as a fraction", rate("interval: 1h, burst: 9.5"), ANSWERED),
    same("burst as a truth value", rate("interval: 1h, burst: true"), INVALID),
    same("burst in hexadecimal", rate("interval: 1h, burst: 0x10"), ANSWERED),
    stricter("interval in nanoseconds", rate("interval: 1000000000, burst: 9"), ANSWERED),
    stricter("negative interval", rate("interval: -1s, burst: 1"), ANSWERED),
)
