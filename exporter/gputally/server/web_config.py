"""`--web-config FILE`, in the format that Prometheus exporters share; docs/exporter.md has the differences.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
Only parses and checks the text; `tls` and `web_security` apply it. An unknown key is an error that names
it: a security setting must not be ignored silently. `http2` is accepted and has no effect: the client
chooses the protocol, and this server offers HTTP/1.1 only.

Values are read from YAML's nodes, because exporter-toolkit takes the text of a scalar as it is written
where it expects text: `X-XSS-Protection: 1` and a user called `no` need no quotes.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from gputally.files import read_regular
from gputally.server.errors import WebConfigError

MOST_BYTES = 1 << 20
"""Of the file, and of each certificate and key: what a Secret of Kubernetes can have."""
# The last character of the salt has two bits only: bcrypt refuses to work with any other.
BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
BCRYPT_COSTS = range(4, 19)
PART = r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|μs|ns)"
DURATION = re.compile(rf"\+?({PART})+|0", re.ASCII)
DURATION_PART = re.compile(PART, re.ASCII)
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
LARGEST = 2**63 - 1
"""Of a number, and of a duration in nanoseconds."""
T = TypeVar("T")
log = logging.getLogger(__name__)

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
    client_allowed_sans: tuple[str, ...] | None
    """None where any name is allowed; an empty list allows none."""
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
        text = read_regular(path, MOST_BYTES).decode()
    except OSError as error:
        raise WebConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WebConfigError(f"{path}: is not UTF-8 text") from error
    return parse_web_config(text, path)


def parse_web_config(text: str, path: Path) -> WebConfig:
    """Check the text of the file; `path` is for messages, and its directory for relative paths."""
    try:
        return _web_config(path, yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise WebConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise WebConfigError(f"{path}: is nested too deeply") from error


def _web_config(path: Path, document: yaml.Node | None) -> WebConfig:
    top = _Section(path, "", document)
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
        cert=section.text("cert") or None,
        key=section.text("key") or None,
        cert_file=section.path("cert_file"),
        key_file=section.path("key_file"),
        client_auth_type=section.text("client_auth_type") or "NoClientCert",
        client_ca=section.text("client_ca") or None,
        client_ca_file=section.path("client_ca_file"),
        client_allowed_sans=section.texts("client_allowed_sans"),
        min_version=section.text("min_version", "TLS12"),
        max_version=section.text("max_version", "TLS13"),
        cipher_suites=section.texts("cipher_suites") or (),
        prefer_server_cipher_suites=section.boolean("prefer_server_cipher_suites", True),
        curve_preferences=section.texts("curve_preferences") or (),
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
    for name in headers.names():
        value = headers.text(name)
        if name not in HEADERS:
            raise headers.error(name, "unknown key")
        if HEADERS[name] and value not in HEADERS[name]:
            raise headers.error(name, f"{value!r} is not {' or '.join(HEADERS[name])}")
        if not (value.isascii() and value.isprintable()):
            raise headers.error(name, "must be one line of ASCII text")
        if value:
            chosen.append((name, value))
    return tuple(chosen)


def _users(section: "_Section") -> Mapping[str, bytes]:
    users = {}
    for name in section.names():
        hashed = section.text(name)
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
        log.warning("%s: rate_limit: burst: with %d, all requests are refused", section.file, burst)
    return RateLimit(interval, burst)


class _Section:
    """One mapping of the file: known keys are taken out, the rest are errors."""

    def __init__(self, file: Path, name: str, node: yaml.Node | None) -> None:
        self.file = file
        self._name = name
        self._left: dict[str, yaml.Node] = {}
        if _is_null(node):
            node = yaml.MappingNode("", [])
        if not isinstance(node, yaml.MappingNode):
            raise WebConfigError(f"{file}: {name + ': ' if name else ''}must be a mapping of keys to values")
        written = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, count in written.items():
            if count > 1:
                raise self.error(key, "duplicate key: one of the two would be ignored")
        yaml.constructor.SafeConstructor().flatten_mapping(node)  # `<<: *other`
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error("?", "a key must be text")
            self._left[key_node.value] = value
        self.empty = not self._left

    def error(self, key: str, problem: str) -> WebConfigError:
        shown = key if key.isprintable() else repr(key)
        return WebConfigError(f"{self.file}: {self._name + ': ' if self._name else ''}{shown}: {problem}")

    def finish(self) -> None:
        """Raise for a key that was not taken."""
        for key in self._left:
            raise self.error(key, "unknown key")

    def names(self) -> list[str]:
        return list(self._left)

    def section(self, key: str) -> "_Section | None":
        node = self._left.pop(key, None)
        return None if _is_null(node) else _Section(self.file, f"{self._name} {key}".strip(), node)

    def text(self, key: str, default: str = "") -> str:
        return self._take(key, default, "text", _text)

    def path(self, key: str) -> str | None:
        text = self.text(key)
        return str(self.file.parent / text) if text else None

    def boolean(self, key: str, default: bool) -> bool:
        return self._take(key, default, "true or false", _boolean)

    def number(self, key: str) -> int:
        return self._take(key, 0, "a whole number", _number)

    def texts(self, key: str) -> tuple[str, ...] | None:
        return self._take(key, None, "a list of strings", _texts)

    def duration(self, key: str) -> float:
        """`1s`, `500ms`, `1m30s`; 0 when absent."""
        return self._take(key, 0.0, "a duration like 1s or 500ms", _seconds)

    def _take(self, key: str, default: T, expected: str, read: Callable[[yaml.Node], T]) -> T:
        node = self._left.pop(key, None)
        if node is None or _is_null(node):
            return default
        try:
            return read(node)
        except ValueError as error:
            raise self.error(key, f"must be {expected}") from error


# Each returns the value of a node. Raises ValueError where it is of another type.


def _is_null(node: yaml.Node | None) -> bool:
    return node is None or node.tag == "tag:yaml.org,2002:null"


def _scalar(node: yaml.Node, *types: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag.removeprefix("tag:yaml.org,2002:") not in types:
        raise ValueError
    return str(node.value)


def _text(node: yaml.Node) -> str:
    return _scalar(node, "str", "int", "float", "bool", "timestamp")


def _texts(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise ValueError
    return tuple(_text(item) for item in node.value)


def _boolean(node: yaml.Node) -> bool:
    return yaml.SafeLoader.bool_values[_scalar(node, "bool").lower()]


def _number(node: yaml.Node) -> int:
    number = int(_scalar(node, "int"), 0)
    if abs(number) > LARGEST:
        raise ValueError
    return number


def _seconds(node: yaml.Node) -> float:
    text = _scalar(node, "str", "int")
    if not DURATION.fullmatch(text):
        raise ValueError
    seconds = sum(float(number) * SECONDS[unit] for number, unit in DURATION_PART.findall(text))
    if seconds * 1e9 > LARGEST:
        raise ValueError
    return seconds
