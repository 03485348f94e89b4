"""Runs format, lint, types, layers, generated files, words and all tests in .venv.

tools/test            everything
tools/test unit       only the tests in tests/unit
tools/test -k lost    only pytest, with these arguments
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import ROOT, Failed
from tools.dependencies import environment, programs

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one step; `last_line` is its last line of output, which has the count."""

    step: str
    passed: bool
    seconds: float
    last_line: str


def checks(python: Path) -> dict[str, list[str]]:
    """Every step except the tests: name -> command."""
    run = str(python)
    return {
        "format": [run, "-m", "ruff", "format", "--check"],
        "lint": [run, "-m", "ruff", "check"],
        "types": [run, "-m", "mypy"],
        "layers": [str(python.with_name("lint-imports"))],
        "generated files": [run, "-m", "tools.rendering.command", "--check"],
        "words": [run, "-m", "tools.wording.check"],
    }


def pytest_command(python: Path, arguments: Sequence[str], root: Path = ROOT) -> list[str]:
    """The command of pytest, with a worker per processor; paths may be relative to tests/.

    The tests of a file stay in one worker, which builds their shared fixtures once.
    """
    named = [
        f"tests/{argument}"
        if not argument.startswith("-") and (root / "tests" / argument.partition("::")[0]).exists()
        else argument
        for argument in arguments
    ]
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    # For a single file the start of workers takes longer than they save.
    one_file = any(argument.partition("::")[0].endswith(".py") for argument in arguments)
    workers = [] if one_file else ["-n", str(max(2, os.cpu_count() or 1)), "--dist=loadfile"]
    return [str(python), "-m", "pytest", *workers, "--durations=5", *colour, *named]


def run_step(step: str, command: Sequence[str], *, show: bool) -> Outcome:
    """Runs one step; prints its output at once or, without `show`, only when it fails."""
    print(f"== {step}", flush=True)
    begin = time.monotonic()
    printed = bytearray()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            while chunk := os.read(process.stdout.fileno(), 65536):
                printed += chunk
                if show:
                    _write(chunk)
        except BaseException:
            process.terminate()
            raise
    if process.returncode and not show:
        _write(bytes(printed))
    lines = _COLOUR.sub("", printed.decode(errors="replace")).strip().splitlines()
    return Outcome(step, process.returncode == 0, time.monotonic() - begin, lines[-1] if lines else "")


def summary(outcomes: Sequence[Outcome], left_out: Sequence[str]) -> str:
    lines = ["", "== summary"]
    for outcome in outcomes:
        word = "ok" if outcome.passed else "FAILED"
        lines.append(f"{outcome.step:16} {word:7} {outcome.seconds:6.1f} s   {outcome.last_line.strip('= ')}")
    if left_out:
        lines.append(f"not run: {', '.join(left_out)} (tools/test without arguments runs everything)")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    try:
        python = environment.python("test", "lint", root=ROOT)
        failures = programs.install(programs.names("test"))
    except Failed as failure:
        failures = [failure]
    except KeyboardInterrupt:
        return 130
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
        return 1
    ready = time.monotonic() - begin
    print(f"environment and programs ready ({ready:.1f} s)", flush=True)
    steps = checks(python)
    outcomes: list[Outcome] = []
    try:
        if not arguments:
            outcomes += [run_step(step, command, show=False) for step, command in steps.items()]
        outcomes.append(run_step("tests", pytest_command(python, arguments), show=True))
    except KeyboardInterrupt:
        return 130
    print(summary(outcomes, list(steps) if arguments else []), flush=True)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _write(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
