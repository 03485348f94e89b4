"""An API server that knows nothing but the pods of a cluster: list and watch over real HTTP, on loopback.

It keeps a history of events, so that a watch starts where its resourceVersion says; tests cut its
connections, make it forget, refuse, hang or talk nonsense.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "let-me-in"


def pod(name: str, uid: str = "", node: str = "node-1", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": name, "uid": uid or f"uid-of-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
    }


class FakeKubernetes:
    """The cluster. All fields are for tests to set; `changed` guards them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.pods: dict[str, dict[str, Any]] = {}
        self.node_labels: dict[str, str] = {}
        self.events: list[tuple[int, bytes]] = []
        self.version = 100
        self.oldest = 0
        self.page_size: int | None = None
        self.statuses: dict[str, tuple[int, str]] = {}
        self.watch_statuses: list[dict[str, Any]] = []
        self.list_bodies: list[bytes] = []
        self.hold_lists = False
        self.end_watches_at_once = False
        self.cuts = 0
        self.token = TOKEN
        self.requests: list[dict[str, str]] = []

    def put(self, item: dict[str, Any]) -> None:
        with self.changed:
            kind = "MODIFIED" if item["metadata"]["uid"] in self.pods else "ADDED"
            self.pods[item["metadata"]["uid"]] = item
            self._tell(kind, item)

    def delete(self, item: dict[str, Any]) -> None:
        with self.changed:
            del self.pods[item["metadata"]["uid"]]
            self._tell("DELETED", item)

    def bookmark(self) -> None:
        with self.changed:
            self._tell("BOOKMARK", {"kind": "Pod", "metadata": {}})

    def say(self, line: bytes) -> None:
        """Send this to every watch."""
        with self.changed:
            self.version += 1
            self.events.append((self.version, line))
            self.changed.notify_all()

    def cut(self) -> None:
        """Drop the connections of all who watch, in the middle of the answer."""
        with self.changed:
            self.cuts += 1
            self.changed.notify_all()

    def set(self, **fields: Any) -> None:
        with self.changed:
            for name, value in fields.items():
                assert hasattr(self, name)
                setattr(self, name, value)
            self.changed.notify_all()

    def asked(self, kind: str) -> list[dict[str, str]]:
        """The queries of all lists, or of all watches, so far."""
        with self.changed:
            return [query for query in self.requests if (kind == "watch") == ("watch" in query)]

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        event = {"type": kind, "object": {**item, "metadata": metadata}}
        self.events.append((self.version, json.dumps(event).encode()))
        self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeKubernetes
    ended: threading.Event
    """That of the server. A connection that was kept open may ask afterwards, and is not answered."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.ended.is_set():
            self.close_connection = True
            return
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        node = url.path == "/api/v1/nodes/node-1"
        verb = "get nodes" if node else "watch" if "watch" in query else "list"
        with self.cluster.changed:
            self.cluster.requests.append(query)
            # As of the request: a test that sees it may cut it, whether or not it is answered yet.
            cuts = self.cluster.cuts
            status, message = self.cluster.statuses.get(verb, (200, ""))
            scheme, _, token = self.headers["Authorization"].partition(" ")
            if (scheme.lower(), token) != ("bearer", self.cluster.token):
                status, message = 401, "Unauthorized"
        assert node or (url.path, query["fieldSelector"]) == ("/api/v1/pods", "spec.nodeName=node-1")
        if status != 200:
            self._answer(status, {"kind": "Status", "code": status, "message": message})
        elif node:
            self._answer(
                200, {"kind": "Node", "metadata": {"name": "node-1", "labels": self.cluster.node_labels}}
            )
        elif verb == "watch":
            with suppress(ConnectionError):  # who watched has gone
                self._watch(query, cuts)
        else:
            self._list(query)

    def _list(self, query: dict[str, str]) -> None:
        cluster = self.cluster
        with cluster.changed:
            cluster.changed.wait_for(lambda: not cluster.hold_lists or self.ended.is_set())
            if cluster.list_bodies:
                self._answer(200, cluster.list_bodies.pop(0))
                return
            items = list(cluster.pods.values())
            start = int(query.get("continue", "0"))
            end = len(items) if cluster.page_size is None else start + cluster.page_size
            metadata = {"resourceVersion": str(cluster.version)}
            if end < len(items):
                metadata["continue"] = str(end)
        self._answer(200, {"kind": "PodList", "metadata": metadata, "items": items[start:end]})

    def _answer(self, status: int, body: object) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, query: dict[str, str], cuts: int) -> None:
        cluster = self.cluster
        seen = int(query["resourceVersion"])
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        with cluster.changed:
            if seen < cluster.oldest:
                status = {
                    "kind": "Status",
                    "code": 410,
                    "reason": "Expired",
                    "message": "too old resource version",
                }
                self._line(json.dumps({"type": "ERROR", "object": status}).encode())
                self._line(b"")
                return
            if cluster.watch_statuses:
                self._line(json.dumps({"type": "ERROR", "object": cluster.watch_statuses.pop(0)}).encode())
                self._line(b"")
                return
        while True:
            with cluster.changed:
                while cluster.version <= seen and not self._is_over(cuts):
                    cluster.changed.wait()
                if self.ended.is_set() or cluster.cuts > cuts:
                    return  # without the last chunk
                if cluster.end_watches_at_once:
                    self._line(b"")
                    return
                lines = [line for version, line in cluster.events if version > seen]
                seen = cluster.version
            for line in lines:
                self._line(line)

    def _is_over(self, cuts: int) -> bool:
        return self.ended.is_set() or self.cluster.end_watches_at_once or self.cluster.cuts > cuts

    def _line(self, line: bytes) -> None:
        """One line in two chunks, since nothing promises that a chunk is a line; the empty one is the end."""
        for part in (line[:20], line[20:] + b"\n") if line else (b"",):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.flush()


@contextmanager
def serving(cluster: FakeKubernetes, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer on loopback; gives the port."""
    ended = threading.Event()
    handler = type("Handler", (_Handler,), {"cluster": cluster, "ended": ended})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        ended.set()
        cluster.set()
        server.shutdown()
        server.server_close()
        thread.join()


def write_kubeconfig(file: Path, port: int, token: str = TOKEN) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
    file.write_text(json.dumps(config))
    return file
