"""What a server says, or in one phrase why it does not."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme

from gputally.commands.servers import (
    Login,
    LoginRequired,
    NotFound,
    RemoteServer,
    RequestFailed,
    read_login,
)
from tests.support.fake_servers import site


def test_the_query_reaches_the_server_unchanged() -> None:
    with site({"/a": {"b": 1}}) as served:
        assert RemoteServer(served.url + "/").get_json("/a", query='up{job="x y"}') == {"b": 1}
        assert served.asked == [("/a", {"query": 'up{job="x y"}'})]


@pytest.mark.parametrize(
    ("page", "kind", "said"),
    [
        ((404, "text/plain", b"404 page not found"), NotFound, "HTTP 404: 404 page not found"),
        ((503, "text/plain", b""), RequestFailed, "HTTP 503: Service Unavailable"),
        ((400, "application/json", b'{"error": "parse error"}'), RequestFailed, "HTTP 400: parse error"),
        ((400, "application/json", b"[1]"), RequestFailed, r"HTTP 400: \[1\]"),
        ((403, "text/html", b"<html>"), LoginRequired, "HTTP 403: login required"),
        (b"<html>not JSON", RequestFailed, "the response is not JSON"),
    ],
)
def test_a_refusal_is_one_line(page: object, kind: type[Exception], said: str) -> None:
    with site({"/a": page}) as served, pytest.raises(kind, match=f"^{said}"):
        RemoteServer(served.url).get_json("/a")


def test_a_refused_connection_is_one_line() -> None:
    with pytest.raises(RequestFailed, match=r"^connection refused$"):
        RemoteServer("http://127.0.0.1:1").get("/")
    with pytest.raises(RequestFailed, match=r"not known|resolution"):
        RemoteServer("http://nowhere.invalid").get("/")


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with site({"/a": b"here"}) as served:
        assert RemoteServer(served.url).get("/a") == b"here"


def test_a_login_is_read_from_a_mounted_secret_and_sent(tmp_path: Path) -> None:
    (tmp_path / "username").write_text("ann\n")
    (tmp_path / "password").write_text("b:c\n")
    login = read_login(tmp_path)
    assert login == Login("ann", "b:c")
    with site({"/a": b"here"}, login="Basic YW5uOmI6Yw==") as served:
        assert RemoteServer(served.url, login).get("/a") == b"here"
        with pytest.raises(LoginRequired):
            RemoteServer(served.url).get("/a")


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_tls_is_verified_with_the_given_authority_and_name(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("gputally.gpu.svc").configure_cert(context)
    with HTTPServer(("127.0.0.1", 0), _Hello) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"https://127.0.0.1:{server.server_address[1]}"
        known = tmp_path / "ca.crt"
        try:
            assert RemoteServer(url, authority=known, server_name="gputally.gpu.svc").get("/") == b"hello"
            assert RemoteServer(url, insecure=True).get("/") == b"hello"
            with pytest.raises(RequestFailed, match=r"(?i)certificate"):
                RemoteServer(url, authority=known).get("/")
            with pytest.raises(RequestFailed, match=r"(?i)certificate"):
                RemoteServer(url, server_name="gputally.gpu.svc").get("/")
            with pytest.raises(RequestFailed, match="no such file"):
                RemoteServer(url, authority=tmp_path / "gone").get("/")
        finally:
            server.shutdown()


class _Redirects(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.path.removeprefix("/"))
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_a_login_is_not_sent_to_another_server() -> None:
    with site({"/a": b"here"}) as other, HTTPServer(("127.0.0.1", 0), _Redirects) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        asked = RemoteServer(f"http://127.0.0.1:{server.server_port}", Login("ann", "b"))
        with pytest.raises(RequestFailed, match=r"^redirected to another server"):
            asked.get(f"/{other.url}/a")
        assert other.asked == []
