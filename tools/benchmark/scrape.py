"""Scrapers: sequential over one connection, and many in parallel."""

import gc
import gzip
import selectors
import socket
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tools.benchmark.http_response import BadResponse, Head, ResponseReader

HOST = "127.0.0.1"
TIMEOUT_SECONDS = 20.0
_PLAIN = "Accept: text/plain;version=0.0.4"
# The headers of Prometheus 3.
_PROMETHEUS = (
    "Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\nAccept-Encoding: gzip\r\n"
    "X-Prometheus-Scrape-Timeout-Seconds: 10"
)


def request(port: int, *, like_prometheus: bool, login: str = "") -> bytes:
    """A request for plain text, or with the headers of Prometheus (OpenMetrics, gzip)."""
    headers = _PROMETHEUS if like_prometheus else _PLAIN
    if login:
        headers += f"\r\nAuthorization: {login}"
    return f"GET /metrics HTTP/1.1\r\nHost: {HOST}:{port}\r\nUser-Agent: bench\r\n{headers}\r\n\r\n".encode()


class Scraper:
    """Scrapes one exporter, over one connection while the exporter keeps it open."""

    def __init__(self, port: int, *, like_prometheus: bool = False, login: str = "") -> None:
        self._address = (HOST, port)
        self._request = request(port, like_prometheus=like_prometheus, login=login)
        self._reader = ResponseReader()
        self._socket: socket.socket | None = None

    def scrape(self) -> Head:
        """One scrape. Raises BadResponse, OSError."""
        reader = self._reader
        connection = self._socket
        if connection is not None:
            reader.begin()
            try:
                connection.sendall(self._request)
                while not reader.receive(connection):
                    pass
            except (BadResponse, ConnectionError):
                # An exporter may close a connection between two scrapes, but not within a response.
                self.close()
                if not reader.untouched:
                    raise
        if self._socket is None:
            connection = self._connect()
            reader.begin()
            connection.sendall(self._request)
            while not reader.receive(connection):
                pass
        head = reader.head
        if head is None:
            raise BadResponse("a response without a head")
        if head.closes:
            self.close()
        return head

    @property
    def body_size(self) -> int:
        return self._reader.body_size

    def body(self) -> bytes:
        """The content of the last response, decompressed."""
        raw = self._reader.body()
        return gzip.decompress(raw) if self._reader.head and self._reader.head.gzipped else raw

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        self._socket = socket.create_connection(self._address, timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


@dataclass(frozen=True, slots=True)
class ScrapeSeries:
    """A series of sequential scrapes."""

    seconds: "array[float]"
    """Duration of each; sorted."""
    closes: bool
    gzipped: bool
    body_bytes: int


def scrape_series(scraper: Scraper, *, least: int, least_seconds: float) -> ScrapeSeries:
    """Scrapes for at least this number and time. Raises BadResponse when a status is not 200."""
    taken = array("d")
    clock = time.perf_counter
    with _no_garbage_collection():
        begin = ended = clock()
        while len(taken) < least or ended - begin < least_seconds:
            started = clock()
            head = scraper.scrape()
            ended = clock()
            taken.append(ended - started)
            if head.status != 200:
                raise BadResponse(f"status {head.status}")
    return ScrapeSeries(array("d", sorted(taken)), head.closes, head.gzipped, scraper.body_size)


def scrape_rate(port: int, *, clients: int, seconds: float) -> float:
    """Responses per second with `clients` scrapers that request again at once."""
    with selectors.EpollSelector() as selector, _no_garbage_collection():
        crowd = [_Client(port, selector) for _ in range(clients)]
        try:
            begin = time.perf_counter()
            end = begin + seconds
            answers = 0
            while (now := time.perf_counter()) < end:
                for key, events in selector.select(end - now):
                    answers += key.data.go_on(events)
            return answers / (now - begin)
        finally:
            for client in crowd:
                client.close()


class _Client:
    """One of many scrapers on one selector.

    It must not block: a server with a short accept queue delays some connections for seconds, and the others
    must not wait for them.
    """

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self._address = (HOST, port)
        self._request = request(port, like_prometheus=False)
        self._selector = selector
        self._reader = ResponseReader()
        self._connect()

    def go_on(self, events: int) -> int:
        """Does what is possible now; 1 when that completes a response, and the next is requested."""
        if events & selectors.EVENT_WRITE:
            self._selector.modify(self._socket, selectors.EVENT_READ, self)
            self._ask()
            return 0
        try:
            if not self._reader.receive(self._socket):
                return 0
        except (BadResponse, ConnectionError):
            if not self._reader.untouched:
                raise
            self.close()
            self._connect()
            return 0
        head = self._reader.head
        if head is None or head.status != 200:
            raise BadResponse(f"status {head.status if head else None} with many clients")
        if head.closes:
            self.close()
            self._connect()
        else:
            self._ask()
        return 1

    def close(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(self._address)
        self._selector.register(self._socket, selectors.EVENT_WRITE, self)

    def _ask(self) -> None:
        self._reader.begin()
        self._socket.sendall(self._request)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
