"""The command `gputally`, run to its end."""

import os
import re
import subprocess
import sys
from pathlib import Path

NO_DRIVER = {"LD_LIBRARY_PATH": "", "PATH": "/nonexistent"}


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputally", *map(str, arguments)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False
    )


def levels(report: str) -> dict[str, str]:
    """Of a report of `gputally verify`: subject -> its worst level."""
    found: dict[str, str] = {}
    order = ("ok", "not checked", "warning", "failure")
    for line in report.splitlines():
        level, subject, *_ = [*re.split(" {2,}", line), ""]
        if level in order:
            found[subject] = max(level, found.get(subject, "ok"), key=order.index)
    return found
