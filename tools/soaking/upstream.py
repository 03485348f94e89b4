"""An exporter to be relayed, which can turn hostile."""

import gzip
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[dict[str, str], bytes]
_TEXT = {"Content-Type": "text/plain; version=0.0.4"}
_GOOD = b"""# HELP soak_relayed_celsius A value of another exporter.
# TYPE soak_relayed_celsius gauge
soak_relayed_celsius{gpu="0"} 41
"""


def _lines(*lines: str) -> Answer:
    return _TEXT, _GOOD + "".join(f"{line}\n" for line in lines).encode()


@cache
def _bomb() -> Answer:
    text = b"".join(b'soak_bomb{n="%d"} 1\n' % number for number in range(1_000_000))
    return {**_TEXT, "Content-Encoding": "gzip"}, gzip.compress(text)


HOSTILE: dict[str, Callable[[], Answer]] = {
    "random bytes": lambda: (_TEXT, random.Random(0).randbytes(100_000)),
    "gzip bomb": _bomb,
    "not gzip": lambda: ({**_TEXT, "Content-Encoding": "gzip"}, b"not gzip"),
    "duplicate labels": lambda: _lines('soak_twice{a="1",a="2"} 1'),
    "duplicate series": lambda: _lines('soak_same{a="1"} 1', 'soak_same{a="1"} 2'),
    "name as a label": lambda: _lines('soak_named{__name__="up"} 1'),
    "huge numbers": lambda: _lines("soak_huge 1e999999", "soak_late 1 99999999999999999999999"),
    "names of the exporter": lambda: _lines(
        "gputally_gpu_up 0", '  gputally_gpu_energy_joules_total{gpu="0",uuid="x"} 1', "# EOF"
    ),
    "one endless line": lambda: (_TEXT, _GOOD + b"soak_long{a=" + b"x" * 5_000_000),
}
"""What a hostile exporter answers."""


class Upstream:
    """The exporter; `attack` is a key of HOSTILE while it is hostile."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.attack: str | None = None
        self.asked: Counter[str] = Counter()
        """How often it has answered, by attack."""

    def answer(self) -> Answer:
        if self.attack is None:
            return _lines()
        self.asked[self.attack] += 1
        return HOSTILE[self.attack]()


@contextmanager
def upstream() -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers, body = exporter.answer()
            self.send_response(200)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing to log."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """The exporter may hang up on what it does not want."""

    with Server(("127.0.0.1", 0), Handler) as server:
        exporter = Upstream(f"http://127.0.0.1:{server.server_port}/metrics")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield exporter
        finally:
            server.shutdown()
            thread.join()
