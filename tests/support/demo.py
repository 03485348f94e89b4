"""tools/demo as a process, without Grafana."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import ROOT
from tools.dependencies import programs


@contextmanager
def running_demo(*arguments: str, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    # The demo could only say that it is missing.
    programs.path("prometheus")
    ports = [f"--{which}port=0" for which in ("", "prometheus-", "alertmanager-")]
    command = [
        sys.executable,
        "-P",
        "-m",
        "tools.demonstration.command",
        "--no-ui",
        "--no-grafana",
        "--no-open",
        *ports,
        *arguments,
    ]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'exporter'}", "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command,
        cwd=scratch,
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"the demo ended without saying {words!r}:\n{said}")
