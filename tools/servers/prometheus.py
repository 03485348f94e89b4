"""A real Prometheus on a folder of data: it serves what is there, and scrapes nobody."""

import json
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools import Failed
from tools.dependencies import programs
from tools.servers.children import Child, Children
from tools.servers.ports import HOST, free_port

_SECONDS_TO_START = 120
_SECONDS_TO_ANSWER = 600
# Data may be as old as it likes, whatever the clock says.
_CONFIG = "storage:\n  tsdb:\n    retention:\n      time: 100y\n"
UNMERGED = "--no-storage.tsdb.allow-overlapping-compaction"
"""A flag, for who asks little: to merge what was recorded rule by rule takes more time than it saves."""


class Prometheus:
    """Asks a Prometheus over its API; `url` is as in http://127.0.0.1:9090."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer. Raises Failed, with what Prometheus says is wrong."""
        body = urllib.parse.urlencode(parameters).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", body, _SECONDS_TO_ANSWER) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise Failed(f"{path} {parameters}: {error.read().decode(errors='replace')}") from None


@contextmanager
def serving(data_folder: Path, *flags: str) -> Iterator[Prometheus]:
    """A Prometheus that serves this folder, on a free port of the loopback address, until the block ends."""
    address = f"{HOST}:{free_port('Prometheus', 0, 0)}"
    with tempfile.TemporaryDirectory(prefix="gputally-history-") as scratch, Children(60) as children:
        folder = Path(scratch)
        config = folder / "prometheus.yml"
        config.write_text(_CONFIG)
        command: list[str | Path] = [
            programs.path("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={data_folder.absolute()}",
            f"--web.listen-address={address}",
            *flags,
        ]
        children.start(Child("prometheus", command, folder, folder / "prometheus.log"))
        prometheus = Prometheus(f"http://{address}")
        _wait_until_ready(prometheus, children)
        yield prometheus
        children.check()


def _wait_until_ready(prometheus: Prometheus, children: Children) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while True:
        children.check()
        try:
            with urllib.request.urlopen(f"{prometheus.url}/-/ready", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if time.monotonic() > deadline:
                raise Failed(f"Prometheus was not ready within {_SECONDS_TO_START} s") from None
        time.sleep(0.05)
