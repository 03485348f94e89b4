"""A client of Prometheus's remote write protocol."""

import http.client
import urllib.parse
from collections.abc import Sequence

from tools import Failed
from tools.replay.tape import snappy
from tools.servers.prometheus import Prometheus

_SECONDS_TO_RESPOND = 600
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class Receiver:
    """Sends series to a Prometheus over one connection."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._connection = http.client.HTTPConnection(
            urllib.parse.urlsplit(prometheus.url).netloc, timeout=_SECONDS_TO_RESPOND
        )

    def write(self, series: Sequence[bytes]) -> None:
        """Raises Failed when Prometheus rejects a sample."""
        body = b"".join(snappy(series))
        self._connection.request("POST", "/api/v1/write", body, _HEADERS)
        answer = self._connection.getresponse()
        said = answer.read().decode(errors="replace")
        if answer.status >= 300:
            raise Failed(f"Prometheus rejected the samples: {answer.status} {said}")

    def close(self) -> None:
        self._connection.close()
