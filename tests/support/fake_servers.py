"""Servers with responses that the test sets."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gputally.commands.servers import PrometheusApi, RemoteServer, RequestFailed

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Told(RemoteServer):
    """Answers without a network: path -> JSON; of queries, the first whose key is in the query."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    queries: Mapping[str, list[Sample]] = field(default_factory=dict)

    def get_json(self, path: str, **query: str) -> Any:
        if path == "/api/v1/query" and path not in self.answers:
            samples = next((found for part, found in self.queries.items() if part in query["query"]), [])
            result = [{"metric": labels, "value": [0, str(value)]} for labels, value in samples]
            return {"data": {"result": result}}
        answer = self.answers.get(path, RequestFailed("connection refused"))
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def refusing_address() -> Iterator[str]:
    """An address that refuses connections; no other program gets its port meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def prometheus(queries: Mapping[str, list[Sample]] | None = None, **answers: Any) -> PrometheusApi:
    """`answers` by the last part of the path, as the `data` of the answer."""
    told = {
        f"/api/v1/{name}": found if isinstance(found, Exception) else {"data": found}
        for name, found in answers.items()
    }
    return PrometheusApi(Told("http://prometheus", answers=told, queries=queries or {}), "gputally")


@dataclass(slots=True)
class Site:
    """A real server: path -> (status, type, body). Notes what it was asked."""

    pages: dict[str, tuple[int, str, bytes]]
    port: int = 0
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    posted: list[tuple[str, Mapping[str, str], Mapping[str, str], bytes]] = field(default_factory=list)
    """Path, query, headers and body of what was sent to it; it accepts everything."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def site(pages: Mapping[str, Any], *, login: str = "") -> Iterator[Site]:
    """Pages are JSON or, as bytes, text; with `login`, only for who has this header."""
    told = Site(
        {
            path: (200, "text/plain", page)
            if isinstance(page, bytes)
            else page
            if isinstance(page, tuple)
            else (200, "application/json", json.dumps(page).encode())
            for path, page in pages.items()
        }
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            told.asked.append((parts.path, query))
            status, kind, body = told.pages.get(parts.path, (404, "text/plain", b"no such page"))
            if login and self.headers.get("Authorization") != login:
                status, kind, body = 401, "text/plain", b"who are you?"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.posted.append((parts.path, query, dict(self.headers), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """What was asked is kept."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield told
        finally:
            server.shutdown()
