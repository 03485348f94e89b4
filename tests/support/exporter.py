"""A real exporter process for tests: started on a free port, scraped over HTTP, stopped by signal."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tools.servers.waiting import wait_until

T = TypeVar("T")
# Prometheus gives up a scrape after this time.
_SECONDS_TO_RESPOND = 10
Samples = dict[str, dict[tuple[str, ...], float]]
_ADDRESS = re.compile(r"serves https?://(\S+?)/")


def parse_samples(text: str) -> Samples:
    """name -> {values of its labels, in the order of the text -> value}."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


class Exporter:
    """`gputally` with the given arguments; use as a context manager."""

    def __init__(self, log: Path, *arguments: str, environment: Mapping[str, str] = {}) -> None:
        self.log = log
        command = [sys.executable, "-m", "gputally", *arguments, "--listen-address", "127.0.0.1:0"]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env={**os.environ, **environment}, stderr=stderr, stdout=subprocess.PIPE
            )
        try:
            self.address = self.wait_until(self._logged_address, "the exporter logs its address")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self) -> "Exporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def _logged_address(self) -> str | None:
        match = _ADDRESS.search(self.log.read_text())
        return match[1] if match else None

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://{self.address}{path}", headers=names)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS_TO_RESPOND) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def scrape(self, **headers: str) -> str:
        status, body = self.get("/metrics", **headers)
        assert status == 200, (status, body[:500])
        return body.decode()

    def samples(self) -> Samples:
        return parse_samples(self.scrape())

    def value(self, name: str, *labels: str) -> float | None:
        """The value of the first sample whose leading labels are these."""
        for found, value in self.samples().get(name, {}).items():
            if found[: len(labels)] == labels:
                return value
        return None

    def samples_when(self, condition: Callable[[Samples], object], what: str) -> Samples:
        """The samples of the first scrape that meets the condition."""
        return self.wait_until(lambda: now if condition(now := self.samples()) else None, what)

    def wait_until(self, condition: Callable[[], T | None], what: str, seconds: float = 60) -> T:
        return wait_until(
            condition, what, seconds, check=self._check, state=lambda: self.log.read_text()[-3000:]
        )

    def _check(self) -> None:
        code = self.process.poll()
        assert code is None, f"the exporter ended with {code}:\n{self.log.read_text()}"

    def next_snapshots(self, count: int = 2) -> None:
        """Wait for `count` more snapshots."""
        for _ in range(count):
            self._next_snapshot()

    def _next_snapshot(self) -> None:
        before = self.value("gputally_snapshot_timestamp_seconds")
        self.wait_until(
            lambda: self.value("gputally_snapshot_timestamp_seconds") != before, "there is a new snapshot"
        )

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """Fails when it has not ended after the time that Kubernetes gives a pod."""
        self.process.send_signal(with_signal)
        self.process.wait(30)
