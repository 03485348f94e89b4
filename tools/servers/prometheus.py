"""A real Prometheus on the loopback address, and the client of its HTTP API."""

import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import Failed
from tools.dependencies import programs
from tools.servers.children import Child, Children
from tools.servers.ports import HOST, free_port
from tools.servers.waiting import responds, wait_until

_SECONDS_TO_START = 120
_SECONDS_TO_STOP = 60
_SECONDS_TO_RESPOND = 600
# Data may be of any age, whatever the clock says.
_CONFIG = "storage:\n  tsdb:\n    retention:\n      time: 100y\n"
UNMERGED = "--no-storage.tsdb.allow-overlapping-compaction"
"""A flag for few queries: merging blocks that were recorded rule by rule takes more time than it saves."""
_POSTED = {"query", "query_range", "series", "admin/tsdb/snapshot"}
"""Paths that accept POST, and with it parameters of any length."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The HTTP API of a Prometheus; `url` is as in http://127.0.0.1:9090."""

    url: str

    def api(self, path: str, **parameters: str) -> Any:
        """The data of a response. Raises Failed with the error that Prometheus returns."""
        url, body = f"{self.url}/api/v1/{path}", urllib.parse.urlencode(parameters)
        if path not in _POSTED:
            url = f"{url}?{body}"
        try:
            with urllib.request.urlopen(
                url, body.encode() if path in _POSTED else None, _SECONDS_TO_RESPOND
            ) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise Failed(f"{path} {parameters}: {error.read().decode(errors='replace')}") from None
        except OSError as error:
            raise Failed(f"{url}: {error}") from None

    def query(self, expression: str, **parameters: str) -> list[dict[str, Any]]:
        """The series of an instant query's result."""
        result: list[dict[str, Any]] = self.api("query", query=expression, **parameters)["result"]
        return result

    def wait_for(self, expression: str, seconds: float = 60) -> list[dict[str, Any]]:
        """The result of an instant query as soon as it has a series."""
        return wait_until(
            lambda: self.query(expression),
            f"{expression} has a result",
            seconds,
            ignore=(Failed,),
            state=lambda: self.api("targets"),
        )


@contextmanager
def running(directory: Path, config: Path, data: Path, *flags: str) -> Iterator[Prometheus]:
    """A Prometheus on a free port until the block ends; its log goes to `directory`."""
    address = f"{HOST}:{free_port()}"
    command: list[str | Path] = [
        programs.path("prometheus"),
        f"--config.file={config.absolute()}",
        f"--storage.tsdb.path={data.absolute()}",
        f"--web.listen-address={address}",
        *flags,
    ]
    prometheus = Prometheus(f"http://{address}")
    with Children(_SECONDS_TO_STOP) as children:
        children.start(Child("prometheus", command, directory, directory / "prometheus.log"))
        wait_until(
            lambda: responds(f"{prometheus.url}/-/ready"),
            "Prometheus is ready",
            _SECONDS_TO_START,
            check=children.check,
        )
        yield prometheus
        children.check()


@contextmanager
def serving(data: Path, *flags: str) -> Iterator[Prometheus]:
    """A Prometheus that serves this directory of data, and scrapes nothing, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="gputally-prometheus-") as scratch:
        config = Path(scratch) / "prometheus.yml"
        config.write_text(_CONFIG)
        with running(Path(scratch), config, data, *flags) as prometheus:
            yield prometheus
