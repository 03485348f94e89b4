"""kubectl with the configuration of the user: objects, texts and port forwarding."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tools import Failed

Object = Mapping[str, Any]

_FORWARDED = re.compile(r"^Forwarding from 127\.0\.0\.1:(\d+) ", re.MULTILINE)
_UNKNOWN_KIND = "the server doesn't have a resource type"
_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Kubectl:
    """All methods raise Failed with kubectl's error."""

    program: str
    context: str = ""

    def get(self, kind: str, *flags: str) -> list[Object]:
        """The objects of a kind; none if the cluster lacks the kind."""
        try:
            found: list[Object] = json.loads(self.run("get", kind, *flags, "--output=json"))["items"]
        except Failed as failure:
            if _UNKNOWN_KIND in str(failure):
                return []
            raise
        return found

    def kinds(self, group: str) -> set[str]:
        """The resources of an API group in this cluster, as in `prometheusrules.monitoring.coreos.com`."""
        return set(self.run("api-resources", f"--api-group={group}", "--output=name").split())

    def run(self, *arguments: str) -> str:
        try:
            ran = subprocess.run(
                self._command(*arguments), capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"kubectl {arguments[0]}: no response within {_SECONDS} s") from None
        if ran.returncode:
            said = ran.stderr.strip().splitlines()
            raise Failed(said[-1] if said else f"kubectl {arguments[0]} failed")
        return ran.stdout

    @contextmanager
    def forward(self, namespace: str, target: str, port: int) -> Iterator[int]:
        """A local port that is forwarded to a port of `service/NAME` or `pod/NAME`."""
        command = self._command(
            "port-forward",
            f"--namespace={namespace}",
            "--address=127.0.0.1",
            "--pod-running-timeout=5s",
            target,
            f":{port}",
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                # It prints nothing until it has found a pod, and ends when there is none.
                match = _FORWARDED.match(process.stdout.readline())
                if match is None:
                    process.terminate()
                    assert process.stderr is not None
                    said = process.stderr.read().strip().splitlines()
                    raise Failed(said[-1] if said else f"cannot forward a port to {target}")
                yield int(match[1])
            finally:
                process.terminate()

    def _command(self, *arguments: str) -> list[str]:
        context = (f"--context={self.context}",) if self.context else ()
        return [self.program, *context, *arguments]


def find_kubectl(context: str) -> Kubectl:
    program = shutil.which("kubectl")
    if program is None:
        raise Failed("kubectl is not on PATH; tools/verify needs it")
    return Kubectl(program, context)
