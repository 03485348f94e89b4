"""HTTP clients of the servers that commands ask: any server, and Prometheus."""

import base64
import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any


class RequestFailed(Exception):
    """There is no usable response; the text is the reason."""


class LoginRequired(RequestFailed):
    """The server requires a login, or does not accept the given one."""


class NotFound(RequestFailed):
    """The server does not have the requested path."""


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    password: str

    @property
    def header(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def read_login(directory: Path) -> Login:
    """From the files `username` and `password`, as a Secret of type basic-auth is mounted. Raises OSError."""
    user, password = ((directory / name).read_text().strip("\n") for name in ("username", "password"))
    return Login(user, password)


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server's address, login and TLS settings."""

    url: str
    login: Login | None = None
    authority: Path | None = None
    """Certificates to trust instead of the system's."""
    server_name: str = ""
    """The name in its certificate, if it differs from the one in the URL."""
    insecure: bool = False
    """Its certificate is not checked."""
    certificate: tuple[Path, Path] | None = None
    """Files with a certificate for it to check, and the key."""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Headers of each request, such as a bearer token or a tenant."""
    timeout_seconds: float = 10.0

    def get(self, path: str, **query: str) -> bytes:
        """The body of a 200. Raises RequestFailed."""
        return self._request(
            self.url.rstrip("/") + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        )

    def post(self, body: bytes) -> bytes:
        """The body of a 2xx, of a request to the URL itself. Raises RequestFailed."""
        return self._request(self.url, body)

    def _request(self, url: str, sent: bytes | None = None) -> bytes:
        headers = {**self.headers, **({"Authorization": self.login.header} if self.login else {})}
        request = urllib.request.Request(url, sent, headers)  # noqa: S310  # the flags allow http and https
        try:
            with self._opener().open(request, timeout=self.timeout_seconds) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            with error:
                raise _http_error(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RequestFailed(self._reason(error)) from None

    def get_json(self, path: str, **query: str) -> Any:
        """Raises RequestFailed."""
        try:
            return json.loads(self.get(path, **query))
        except ValueError:
            raise RequestFailed("the response is not JSON: check the address") from None

    def _opener(self) -> urllib.request.OpenerDirector:
        # Servers in the cluster are not behind the proxy of the environment.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _SameServer()]
        if self.url.startswith("https:"):
            handlers.append(_Https(self._tls(), self.server_name))
        return urllib.request.build_opener(*handlers)

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority) if self.authority else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context

    def _reason(self, error: Exception) -> str:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            return f"no answer in {self.timeout_seconds:.0f} s"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        return str(cause) or type(cause).__name__


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects on the same server only: another one would get the login."""

    def redirect_request(  # noqa: PLR0917  # as the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        asked, told = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if (asked.scheme, asked.netloc) != (told.scheme, told.netloc):
            raise urllib.error.URLError(f"redirected to another server, {told.scheme}://{told.netloc}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Https(urllib.request.HTTPSHandler):
    """HTTPS to a server whose certificate has another name than the URL."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(context=context)
        self._tls = context
        self._server_name = server_name

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        tls, name = self._tls, self._server_name

        class NamedConnection(http.client.HTTPSConnection):
            def connect(self) -> None:
                http.client.HTTPConnection.connect(self)
                self.sock = tls.wrap_socket(self.sock, server_hostname=name or self.host)

        return self.do_open(NamedConnection, request)


def _http_error(error: urllib.error.HTTPError) -> RequestFailed:
    body = error.read(2000).decode(errors="replace").strip()
    if error.code in (401, 403):
        return LoginRequired(f"HTTP {error.code}: login required")
    if error.headers.get_content_type() == "application/json":
        with contextlib.suppress(ValueError, AttributeError):
            body = str(json.loads(body).get("error", body))
    first = body.splitlines()[0][:200] if body else error.reason
    kind = NotFound if error.code == 404 else RequestFailed
    return kind(f"HTTP {error.code}: {first}")


@dataclass(frozen=True, slots=True)
class QueryRow:
    labels: Mapping[str, str]
    value: float

    @property
    def node(self) -> str:
        """The node, as labelled by the scrape."""
        return self.labels.get("node") or self.labels.get("instance") or "?"


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """All methods raise RequestFailed."""

    server: RemoteServer
    job: str
    cluster: str = ""
    complete: bool = False
    """Whether an answer from only a part of the store is refused."""

    @property
    def ours(self) -> str:
        """The matchers of series from the exporters."""
        return f'job="{self.job}"' + self._of_cluster

    @property
    def recorded(self) -> str:
        """The matchers of series from the recording rules."""
        return '__name__=~".+:gputally_.+"' + self._of_cluster

    @property
    def _of_cluster(self) -> str:
        return f',cluster="{self.cluster}"' if self.cluster else ""

    def rows(self, query: str, at_seconds: int | None = None) -> list[QueryRow]:
        """The result of an instant query: now, or at a time."""
        time = {} if at_seconds is None else {"time": str(at_seconds)}
        found = self._data("/api/v1/query", query=query, **time)["result"]
        return [QueryRow(one["metric"], float(one["value"][1])) for one in found]

    def times(
        self, query: str, first: int, last: int, step: int
    ) -> list[tuple[Mapping[str, str], list[int]]]:
        """Of each series in the result of a range query, the times that have a value."""
        found = self._data(
            "/api/v1/query_range", query=query, start=str(first), end=str(last), step=str(step)
        )["result"]
        return [(one["metric"], [round(time) for time, _ in one["values"]]) for one in found]

    def range(self, query: str, start: float, end: float, step: float) -> list[tuple[float, float]]:
        """(time, value) of a query with one series in its result, oldest first."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        found = self._data("/api/v1/query_range", query=query, **times)["result"]
        return [(float(at), float(value)) for at, value in found[0]["values"]] if found else []

    def number(self, query: str) -> float | None:
        """The value of a query with one sample in its result; None if the result is empty."""
        found = self.rows(query)
        return found[0].value if found else None

    def count(self, query: str) -> int:
        return round(self.number(f"count({query})") or 0)

    def rule_groups(self) -> list[dict[str, Any]]:
        """The rule groups of gputally."""
        groups = self._data("/api/v1/rules")["groups"]
        return [group for group in groups if group["name"].startswith("gputally")]

    def alertmanagers(self) -> list[str]:
        """The addresses to which Prometheus sends alerts."""
        return [one["url"] for one in self._data("/api/v1/alertmanagers")["activeAlertmanagers"]]

    def scrape_errors(self) -> dict[str, str]:
        """Node -> error of its scrape. Empty if the server does not report it (Thanos, Mimir)."""
        try:
            targets = self._data("/api/v1/targets", state="active")["activeTargets"]
        except RequestFailed:
            return {}
        return {
            QueryRow(target["labels"], 0).node: target["lastError"]
            for target in targets
            if target["labels"].get("job") == self.job and target.get("lastError")
        }

    def _data(self, path: str, **query: str) -> Any:
        answer = self.server.get_json(path, **query)
        try:
            data = answer["data"]
        except (KeyError, TypeError):
            raise RequestFailed("the response is not from Prometheus: check the address") from None
        if self.complete and (answer.get("warnings") or answer.get("isPartial")):
            warning = next(iter(answer.get("warnings") or ()), "isPartial")
            raise RequestFailed(f"the answer is not complete: {warning}")
        return data
