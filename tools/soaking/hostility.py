"""The hostile clients of a soak: few at a time, so that the machine's cores are not what is tested."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

CLIENTS = 40
PAUSE_SECONDS = 2.0


class HostileClients:
    """The program with all clients, and how often each kind has connected."""

    def __init__(self, port: int, login: str) -> None:
        program = Path(__file__).with_name("hostile_clients.py")
        self._command = [sys.executable, str(program), str(port), str(CLIENTS), str(PAUSE_SECONDS), login]
        self._process: subprocess.Popen[bytes] | None = None
        self.connections: Counter[str] = Counter()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def stop(self) -> None:
        if self._process is None:
            return
        output, _ = self._process.communicate(b"")
        self._process = None
        self.connections.update(json.loads(output.splitlines()[-1]))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
