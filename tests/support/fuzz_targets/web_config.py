"""Any bytes as a file for `--web-config` are a configuration that can be applied, or an error of one line."""

import tempfile
from pathlib import Path

from gputally.server.errors import WebConfigError
from gputally.server.http1 import encode_head, text_response
from gputally.server.web_config import BCRYPT_COSTS, load_web_config
from gputally.server.web_security import TokenBucket

CORPUS = [
    b"tls_server_config: {cert_file: a.crt, key_file: a.key, client_auth_type: RequireAndVerifyClientCert,"
    b" client_ca_file: ca.crt, client_allowed_sans: [a.example], min_version: TLS13, max_version: TLS13,"
    b" cipher_suites: [TLS_AES_128_GCM_SHA256], prefer_server_cipher_suites: no,"
    b" curve_preferences: [X25519]}",
    b"tls_server_config:\n  cert: |\n    -----BEGIN CERTIFICATE-----\n  key: |\n    x\n  client_ca: ''\n",
    b"basic_auth_users:\n  no: $2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze\n",
    b"http_server_config:\n  http2: false\n  headers: {X-Frame-Options: deny, X-XSS-Protection: 1}\n",
    b"http_server_config: {headers: {<<: {X-Frame-Options: deny}, <<: [&a {}, *a]}}",
    b'http_server_config: {headers: {Content-Security-Policy: "a\\r\\nb: c"}}',
    b"rate_limit: {interval: 1h2m3.5s4ms5us6ns, burst: 0x10}",
    b"rate_limit: {interval: 0, burst: -1}",
    b"&a [*a]",
    b"&a {<<: *a}",
    b"!!python/object:os.system x",
    b"[" * 3000,
]


def one_input(data: bytes) -> None:
    """Raises where this file breaks what the module promises."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "web.yml"
        path.write_bytes(data)
        try:
            config = load_web_config(path)
        except WebConfigError as error:
            assert str(error).startswith(f"{path}: ")
            assert str(error).isprintable(), repr(str(error))
            return
    head = encode_head(text_response(200, "ok", *config.headers), 0.0, keep_alive=True)
    assert head.count(b"\r\n") == head.count(b"\n") == 7 + len(config.headers)
    assert all(int(hashed[4:6]) in BCRYPT_COSTS and len(hashed) == 60 for hashed in config.users.values())
    assert not any(":" in name for name in config.users)
    TokenBucket(config.rate_limit, lambda: 0.0).take()
