"""The receiver of the demo's Alertmanager: prints each notification as a line."""

import http.server
import json
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tools.servers.ports import HOST


class Inbox:
    """A context manager. It listens at once, and responds while it is polled: the demo has no threads."""

    def __init__(self) -> None:
        self._server = http.server.HTTPServer((HOST, 0), _Handler)
        self._server.timeout = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def poll(self) -> None:
        """Responds to a notification that has come."""
        self._server.handle_request()

    def __enter__(self) -> "Inbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.server_close()


def line(receiver: str, message: Mapping[str, Any]) -> str:
    """A notification in one line."""
    names = Counter(alert["labels"]["alertname"] for alert in message["alerts"])
    alerts = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in sorted(names.items()))
    group = ", ".join(
        f"{name} {value}" for name, value in message["groupLabels"].items() if name != "alertname"
    )
    return f"message to {receiver}: {message['status']}: {alerts} ({group})"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(line(self.path[1:], message), flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the notification is printed."""
