"""The exporter process of a soak: one port, one state file, many starts."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import Failed
from tools.benchmark.proc import parse_resident_bytes
from tools.servers.waiting import wait_until

SECONDS_TO_STOP = 30
"""What Kubernetes gives a pod."""
_LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a process at one moment."""

    resident_bytes: int
    threads: int
    descriptors: int


class Exporter:
    """Started and ended by the soak alone: an exporter that ends by itself is a failure."""

    def __init__(self, directory: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log = directory / "exporter.log"
        self._command = [sys.executable, "-m", "gputally", *arguments]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0
        self.ends: Counter[str] = Counter()
        """How often it was ended, by signal."""

    def start(self) -> None:
        self._began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def end(self, with_signal: signal.Signals) -> None:
        """Raises Failed when it does not end, or after SIGTERM not with 0."""
        process = self._running()
        process.send_signal(with_signal)
        try:
            code = process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"the exporter did not end within {SECONDS_TO_STOP} s of {with_signal.name}"
            ) from None
        finally:
            self.ends[with_signal.name] += 1
        if with_signal == signal.SIGTERM and code != 0:
            raise Failed(f"after SIGTERM the exporter ended with {code}")

    def wait_for_log(self, lines: int) -> None:
        """Waits until it has logged so many lines since its start, or has ended."""
        process = self._running()
        wait_until(
            lambda: self.log.read_bytes()[self._began :].count(b"\n") >= lines or process.poll() is not None,
            f"the exporter logs {lines} lines",
        )

    def check(self) -> None:
        """Raises Failed if it is not running."""
        code = self._running().poll()
        if code is not None:
            raise Failed(f"the exporter ended by itself with {code}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def measure(self) -> Usage:
        root = Path(f"/proc/{self._running().pid}")
        status = (root / "status").read_text()
        return Usage(
            resident_bytes=parse_resident_bytes(status),
            threads=int(status.partition("Threads:")[2].split()[0]),
            descriptors=len(list((root / "fd").iterdir())),
        )

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start comes first"
        return self._process
