from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server.errors import WebConfigError
from gputally.server.web_config import RateLimit, load_web_config, parse_web_config

FILE = Path("/etc/gputally/web.yml")
HASH = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze"
TLS = "tls_server_config: {cert_file: a.crt, key_file: a.key, %s}"


def test_the_example_of_exporter_toolkit_is_accepted() -> None:
    config = parse_web_config(
        f"""
        tls_server_config:
          cert_file: server.crt
          key_file: /abs/server.key
        basic_auth_users:
          alice: {HASH}
          bob: {HASH}
        rate_limit:
          interval: "1s"
          burst: 20
        """,
        FILE,
    )
    assert config.tls is not None
    assert config.tls.cert_file == "/etc/gputally/server.crt"
    assert config.tls.key_file == "/abs/server.key"
    assert (config.tls.min_version, config.tls.max_version) == ("TLS12", "TLS13")
    assert config.tls.client_auth_type == "NoClientCert"
    assert config.users == {"alice": HASH.encode(), "bob": HASH.encode()}
    assert config.rate_limit == RateLimit(1.0, 20)


def test_every_key_of_the_format_is_accepted() -> None:
    config = parse_web_config(
        """
        tls_server_config:
          cert: inline certificate
          key: inline key
          client_ca: inline authority
          client_auth_type: RequireAndVerifyClientCert
          client_allowed_sans: [prometheus.example, 10.0.0.1]
          min_version: TLS13
          max_version: TLS13
          cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
          prefer_server_cipher_suites: false
          curve_preferences: [X25519]
        http_server_config:
          http2: false
          headers:
            X-Frame-Options: deny
            X-Content-Type-Options: nosniff
            X-XSS-Protection: "0"
            Content-Security-Policy: ""
            Strict-Transport-Security: max-age=31536000
        """,
        FILE,
    )
    assert config.tls is not None
    assert config.tls.client_allowed_sans == ("prometheus.example", "10.0.0.1")
    assert config.tls.prefer_server_cipher_suites is False
    assert config.tls.curve_preferences == ("X25519",)
    assert dict(config.headers) == {
        "X-Frame-Options": "deny",
        "X-Content-Type-Options": "nosniff",
        "X-XSS-Protection": "0",
        "Strict-Transport-Security": "max-age=31536000",
    }


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "tls_server_config: {}\n", "basic_auth_users:\n"])
def test_an_empty_file_enables_nothing(text: str) -> None:
    config = parse_web_config(text, FILE)
    assert (config.tls, config.headers, dict(config.users), config.rate_limit) == (None, (), {}, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a list", "web.yml: must be a mapping"),
        ("just text", "web.yml: must be a mapping"),
        ("tls_server_config: [", "web.yml: is not valid YAML"),
        ("a: 2000-99-99 99:99:99", "web.yml: a: unknown key"),
        ("[" * 5000, "web.yml: is nested too deeply"),
        ('"a\\e\\n": 1', r"web.yml: 'a\x1b\n': unknown key"),
        ("basic_auth_users: {a: !!python/object:os.system x}", "basic_auth_users: a: must be text"),
        ("basic_auth: {}", "web.yml: basic_auth: unknown key"),
        ("1: 2", "web.yml: 1: unknown key"),
        ("tls_server_config: yes", "tls_server_config: must be a mapping"),
        (TLS % "certfile: x", "tls_server_config: certfile: unknown key"),
        (TLS % "cert_file: x", "cert_file: duplicate key"),
        (TLS % "cert: x", "tls_server_config: cert: set either cert or cert_file, not both"),
        (
            TLS % "client_ca: x, client_ca_file: y",
            "client_ca: set either client_ca or client_ca_file, not both",
        ),
        (TLS % "min_version: [1.2]", "tls_server_config: min_version: must be text"),
        (TLS % "client_allowed_sans: prometheus", "client_allowed_sans: must be a list"),
        (TLS % "cipher_suites: [[1]]", "cipher_suites: must be a list"),
        (TLS % "prefer_server_cipher_suites: 'no'", "prefer_server_cipher_suites: must be true or false"),
        ("tls_server_config: {cert_file: a}", "tls_server_config: key: missing: set key or key_file"),
        ("tls_server_config: {key_file: a}", "tls_server_config: cert: missing: set cert or cert_file"),
        ("http_server_config: {http3: true}", "http_server_config: http3: unknown key"),
        ("http_server_config: {http2: 1}", "http_server_config: http2: must be true or false"),
        ("http_server_config: {headers: {Server: x}}", "http_server_config headers: Server: unknown key"),
        (
            "http_server_config: {headers: {X-Frame-Options: all}}",
            "X-Frame-Options: 'all' is not deny or sameorigin",
        ),
        ('http_server_config: {headers: {X-XSS-Protection: "0\\r\\nA: b"}}', "must be one line of ASCII"),
        ("basic_auth_users: {alice: secret}", "basic_auth_users: alice: the password must be a bcrypt hash"),
        ("basic_auth_users: {alice: }", "basic_auth_users: alice: the password must be a bcrypt hash"),
        ("basic_auth_users: {no: x}", "basic_auth_users: no: the password must be a bcrypt hash"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "a:b: a user name cannot contain a colon"),
        (f"basic_auth_users: {{a: {HASH.replace('$10$', '$31$')}}}", "a: bcrypt cost 31"),
        (f"basic_auth_users: {{a: {HASH[:28]}a{HASH[29:]}}}", "a: the password must be a bcrypt hash"),
        (f"basic_auth_users: {{a: {HASH}, a: {HASH}}}", "basic_auth_users: a: duplicate key"),
        ("rate_limit: {interval: fast}", "rate_limit: interval: must be a duration like 1s"),
        ("rate_limit: {interval: 3000000h, burst: 1}", "rate_limit: interval: must be a duration"),
        (f"rate_limit: {{interval: 1s, burst: {2**63}}}", "rate_limit: burst: must be a whole number"),
        ("rate_limit: {interval: 1s, burst: true}", "rate_limit: burst: must be a whole number"),
        ("rate_limit: {interval: 1s, rate: 3}", "rate_limit: rate: unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(text: str, problem: str) -> None:
    with pytest.raises(WebConfigError) as caught:
        parse_web_config(text, FILE)
    message = str(caught.value)
    assert message.startswith("/etc/gputally/web.yml: ")
    assert problem in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1.0), ("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400.0), ("2h3m", 7380.0)]
)
def test_durations_have_the_format_of_go(text: str, seconds: float) -> None:
    config = parse_web_config(f"rate_limit: {{interval: {text}, burst: 1}}", FILE)
    assert config.rate_limit == RateLimit(seconds, 1)


@pytest.mark.parametrize("interval", ["0", "0s", ""])
def test_an_interval_of_zero_is_no_limit(interval: str) -> None:
    assert parse_web_config(f"rate_limit: {{interval: {interval}, burst: 0}}", FILE).rate_limit is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(WebConfigError, match=r"none\.yml: cannot be read: No such file"):
        load_web_config(tmp_path / "none.yml")
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\0")
    with pytest.raises(WebConfigError, match=r"binary\.yml: is not UTF-8"):
        load_web_config(tmp_path / "binary.yml")


KEYS = (
    "tls_server_config",
    "basic_auth_users",
    "rate_limit",
    "cert_file",
    "interval",
    "1s",
    "2001-01-01",
    HASH,
)
MARKS = (": ", "{", "}", "[", "]", ",", "\n", "  ", "- ", "&a ", "*a", "!!set ", "? ", "<<: ", "'")
WORDS = st.sampled_from(KEYS + MARKS)


@given(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=30).map("".join)))
def test_any_text_is_a_configuration_or_a_web_config_error(text: str) -> None:
    try:
        parse_web_config(text, FILE)
    except WebConfigError as error:
        assert str(error).startswith("/etc/gputally/web.yml: ")
