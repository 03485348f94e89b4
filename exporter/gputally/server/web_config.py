"""`--web-config FILE`, in the format that Prometheus exporters share.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
Only parses and checks the text; `tls` and `web_security` apply it. An unknown key is an error that names
it: a security setting must not be ignored silently. `http2` is accepted and has no effect: the client
chooses the protocol, and this server offers HTTP/1.1 only.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gputally.server.errors import WebConfigError

BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
BCRYPT_COSTS = range(4, 19)
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """`tls_server_config`, with absolute paths and otherwise as written."""

    file: Path
    cert: str | None
    key: str | None
    cert_file: str | None
    key_file: str | None
    client_auth_type: str
    client_ca: str | None
    client_ca_file: str | None
    client_allowed_sans: tuple[str, ...]
    min_version: str
    max_version: str
    cipher_suites: tuple[str, ...]
    prefer_server_cipher_suites: bool
    curve_preferences: tuple[str, ...]

    def error(self, key: str, problem: str) -> WebConfigError:
        """The error of one of these settings."""
        return WebConfigError(f"{self.file}: tls_server_config: {key}: {problem}")

    def files(self) -> tuple[Path, ...]:
        """The files that a renewal replaces."""
        return tuple(Path(path) for path in (self.cert_file, self.key_file, self.client_ca_file) if path)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`rate_limit`: one request per interval, and a burst."""

    interval_seconds: float
    burst: int


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole file."""

    tls: TlsSettings | None
    headers: tuple[tuple[str, str], ...]
    users: Mapping[str, bytes]
    rate_limit: RateLimit | None


def load_web_config(path: Path) -> WebConfig:
    """Read and check the file. Raises WebConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise WebConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WebConfigError(f"{path}: is not UTF-8 text") from error
    return parse_web_config(text, path)


def parse_web_config(text: str, path: Path) -> WebConfig:
    """Check the text of the file; `path` is for messages, and its directory for relative paths."""
    try:
        document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that refuses duplicates
    except yaml.YAMLError as error:
        raise WebConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:  # PyYAML does not catch malformed timestamps
        raise WebConfigError(f"{path}: is not valid YAML: {error}") from error
    top = _Section(path, "", {} if document is None else document)
    tls = top.section("tls_server_config")
    http = top.section("http_server_config")
    users = top.section("basic_auth_users")
    rate = top.section("rate_limit")
    top.finish()
    return WebConfig(
        tls=_tls(tls) if tls is not None and not tls.empty else None,
        headers=_headers(http) if http is not None else (),
        users=_users(users) if users is not None else {},
        rate_limit=_rate_limit(rate) if rate is not None else None,
    )


def _tls(section: "_Section") -> TlsSettings:
    settings = TlsSettings(
        file=section.file,
        cert=section.text("cert"),
        key=section.text("key"),
        cert_file=section.path("cert_file"),
        key_file=section.path("key_file"),
        client_auth_type=section.text("client_auth_type") or "NoClientCert",
        client_ca=section.text("client_ca"),
        client_ca_file=section.path("client_ca_file"),
        client_allowed_sans=section.texts("client_allowed_sans"),
        min_version=section.text("min_version") or "TLS12",
        max_version=section.text("max_version") or "TLS13",
        cipher_suites=section.texts("cipher_suites"),
        prefer_server_cipher_suites=section.boolean("prefer_server_cipher_suites", True),
        curve_preferences=section.texts("curve_preferences"),
    )
    section.finish()
    for what in ("cert", "key", "client_ca"):
        if getattr(settings, what) and getattr(settings, f"{what}_file"):
            raise section.error(what, f"set either {what} or {what}_file, not both")
    for what in ("cert", "key"):
        if not getattr(settings, what) and not getattr(settings, f"{what}_file"):
            raise section.error(what, f"missing: set {what} or {what}_file")
    return settings


def _headers(section: "_Section") -> tuple[tuple[str, str], ...]:
    section.boolean("http2", True)
    headers = section.section("headers")
    section.finish()
    if headers is None:
        return ()
    chosen = []
    for name, allowed in HEADERS.items():
        value = headers.text(name)
        if not value:
            continue
        if allowed and value not in allowed:
            raise headers.error(name, f"{value!r} is not {' or '.join(allowed)}")
        if not (value.isascii() and value.isprintable()):
            raise headers.error(name, "must be one line of ASCII text")
        chosen.append((name, value))
    headers.finish()
    return tuple(chosen)


def _users(section: "_Section") -> Mapping[str, bytes]:
    users = {}
    for name in section.names():
        hashed = section.text(name) or ""
        match = BCRYPT.fullmatch(hashed)
        if match is None:
            raise section.error(name, "the password must be a bcrypt hash: htpasswd -nBC 10 prints one")
        if int(match[1]) not in BCRYPT_COSTS:
            raise section.error(name, f"bcrypt cost {match[1]}: must be from 4 to 18; 10 is usual")
        if ":" in name:
            raise section.error(name, "a user name cannot contain a colon")
        users[name] = hashed.encode()
    return users


def _rate_limit(section: "_Section") -> RateLimit | None:
    interval = section.duration("interval")
    burst = section.number("burst")
    section.finish()
    if interval == 0:
        return None
    if burst < 1:
        raise section.error("burst", "must be at least 1: with 0, all requests are refused")
    return RateLimit(interval, burst)


class _StrictLoader(yaml.SafeLoader):
    """YAML's plain types; a duplicate key is an error, because one of the two would be ignored."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"duplicate key {key_node.value!r}", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


class _Section:
    """One mapping of the file: known keys are taken out, the rest are errors."""

    def __init__(self, file: Path, name: str, content: object) -> None:
        self.file = file
        self._name = name
        if not isinstance(content, dict):
            raise WebConfigError(f"{file}: {name + ': ' if name else ''}must be a mapping of keys to values")
        self._left: dict[Any, Any] = dict(content)
        self.empty = not content
        for key in self._left:
            if not isinstance(key, str):
                raise self.error(str(key), "this key must be a string: quote it")

    def error(self, key: str, problem: str) -> WebConfigError:
        return WebConfigError(f"{self.file}: {self._name + ': ' if self._name else ''}{key}: {problem}")

    def finish(self) -> None:
        """Raise for a key that was not taken."""
        for key in self._left:
            raise self.error(key, "unknown key")

    def names(self) -> list[str]:
        return list(self._left)

    def section(self, key: str) -> "_Section | None":
        content = self._left.pop(key, None)
        return None if content is None else _Section(self.file, f"{self._name} {key}".strip(), content)

    def text(self, key: str) -> str | None:
        value = self._take(key, None, "text", lambda value: isinstance(value, str))
        return None if value is None else str(value)

    def path(self, key: str) -> str | None:
        text = self.text(key)
        return str(self.file.parent / text) if text else None

    def boolean(self, key: str, default: bool) -> bool:
        return bool(self._take(key, default, "true or false", lambda value: isinstance(value, bool)))

    def number(self, key: str) -> int:
        return int(
            self._take(
                key, 0, "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
            )
        )

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(
            self._take(
                key,
                (),
                "a list of strings",
                lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
            )
        )

    def duration(self, key: str) -> float:
        """`1s`, `500ms`, `1m30s`; 0 when absent."""
        text = self._take(
            key,
            "0s",
            "a duration like 1s or 500ms",
            lambda value: value == 0 or (isinstance(value, str) and DURATION.fullmatch(value) is not None),
        )
        return sum(float(number) * SECONDS[unit] for number, unit in DURATION_PART.findall(str(text)))

    def _take(self, key: str, default: Any, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self._left.pop(key, None)
        if value is None:
            return default
        if not fits(value):
            raise self.error(key, f"must be {expected}")
        return value
