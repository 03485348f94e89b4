"""Asks servers over HTTP: what they say, or in one phrase why they do not."""

import base64
import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 10.0


class NotAnswered(Exception):
    """No answer, or none of any use; the text says why."""


class LoginNeeded(NotAnswered):
    """The server answers, but not to strangers."""


class NotThere(NotAnswered):
    """The server answers, but knows nothing of what it is asked for."""


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    password: str

    @property
    def header(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def read_login(folder: Path) -> Login:
    """From the files `username` and `password`, as a Secret of type basic-auth is mounted. Raises OSError."""
    user, password = ((folder / name).read_text().strip("\n") for name in ("username", "password"))
    return Login(user, password)


@dataclass(frozen=True, slots=True)
class Server:
    """Where one answers, and what it wants to see before it does."""

    url: str
    login: Login | None = None
    authority: Path | None = None
    """Certificates to trust instead of the system's."""
    server_name: str = ""
    """The name in its certificate, where that is not the one in the URL."""
    insecure: bool = False
    """Its certificate is not checked."""

    def get(self, path: str, **query: str) -> bytes:
        """The body of a 200. Raises NotAnswered."""
        url = self.url.rstrip("/") + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Authorization": self.login.header} if self.login else {}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the flags allow http and https
        try:
            with self._opener().open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotAnswered(_reason(error)) from None

    def get_json(self, path: str, **query: str) -> Any:
        """Raises NotAnswered."""
        try:
            return json.loads(self.get(path, **query))
        except ValueError:
            raise NotAnswered("the answer is not JSON: is something else behind this address?") from None

    def _opener(self) -> urllib.request.OpenerDirector:
        # Servers of the cluster are not behind the proxy that the environment may name.
        no_proxy = urllib.request.ProxyHandler({})
        if not self.url.startswith("https:"):
            return urllib.request.build_opener(no_proxy)
        return urllib.request.build_opener(no_proxy, _Https(self._tls(), self.server_name))

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority) if self.authority else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _Https(urllib.request.HTTPSHandler):
    """HTTPS to a server whose certificate is for another name than that in the URL."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(context=context)
        self._tls = context
        self._server_name = server_name

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        tls, name = self._tls, self._server_name

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                http.client.HTTPConnection.connect(self)
                self.sock = tls.wrap_socket(self.sock, server_hostname=name or self.host)

        return self.do_open(Connection, request)


def _refusal(error: urllib.error.HTTPError) -> NotAnswered:
    said = error.read(2000).decode(errors="replace").strip()
    if error.code in (401, 403):
        return LoginNeeded(f"HTTP {error.code}: it asks for a login")
    if error.headers.get_content_type() == "application/json":
        with contextlib.suppress(ValueError, AttributeError):
            said = str(json.loads(said).get("error", said))
    first = said.splitlines()[0][:200] if said else error.reason
    kind = NotThere if error.code == 404 else NotAnswered
    return kind(f"HTTP {error.code}: {first}")


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer in {_TIMEOUT_SECONDS:.0f} s"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__
