"""Runs format, lint, types, layers, generated files, words and all tests in .venv.

tools/test                       everything
tools/test fast                  the checks and the unit tests; builds no external program
tools/test unit                  only the tests in tests/unit
tools/test -k lost               only pytest, with these arguments
tools/test --last-failed         only what failed in the run before
tools/test --repeat 3 --stress   three times, with all processors busy, in random order

A test that needs what this machine lacks (root, a kernel feature, a program that could not be built) is left
out, with the reason at the end. With CI=true it fails instead.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from tools import ROOT
from tools.dependencies import programs
from tools.servers.children import Child, Children
from tools.test_cluster import preflight

OUTPUT = ROOT / "build" / "test"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the command line asks for."""

    fast: bool
    repeat: int
    stress: bool
    selection: Sequence[str]
    """Arguments of pytest; without any, all tests."""

    @property
    def unit_only(self) -> bool:
        """Whether every test that is asked for is in tests/unit."""
        paths = [named for each in self.selection if (named := _test_path(each))]
        return bool(paths) and all(path.startswith("tests/unit") for path in paths)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step; `last_line` is its last line of output, which has the count."""

    step: str
    passed: bool
    seconds: float
    last_line: str


def checks() -> dict[str, list[str]]:
    """Every step except the tests: name -> command. The longest is first."""
    python = sys.executable
    return {
        "types": [python, "-m", "mypy"],
        "generated files": [python, "-m", "tools.rendering.command", "--check"],
        "layers": [str(Path(python).with_name("lint-imports"))],
        "lint": [python, "-m", "ruff", "check"],
        "words": [python, "-m", "tools.wording.check"],
        "format": [python, "-m", "ruff", "format", "--check"],
    }


def pytest_command(request: Arguments) -> list[str]:
    """The command of pytest; paths may be relative to tests/.

    The tests of a file stay in one worker, which builds their shared fixtures once. There is one worker more
    than processors, because the tests in a cluster mostly wait.
    """
    named = [_test_path(each) or each for each in request.selection]
    terminal = ["--color=yes", "--progress-bar"] if sys.stdout.isatty() else []
    # For a single file the start of workers takes longer than they save.
    one_file = any(each.partition("::")[0].endswith(".py") for each in named)
    workers = [] if one_file else ["-n", str((os.cpu_count() or 1) + 1), "--dist=loadfile"]
    # Printed with the command, so that the order can be repeated.
    shuffle = ["--shuffle", str(random.randrange(10**6))] if request.stress else []
    return [sys.executable, "-m", "pytest", "-q", *workers, "--durations=20", *terminal, *shuffle, *named]


def run_step(step: str, command: Sequence[str], *, show: bool) -> StepResult:
    """Runs one step; prints its output at once or, without `show`, only when it fails."""
    title = f"== {step}\n".encode()
    if show:
        _write(title)
    OUTPUT.mkdir(parents=True, exist_ok=True)
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
        _write(title + printed)
    (OUTPUT / f"{step.replace(' ', '-')}.txt").write_bytes(printed)
    lines = _COLOUR.sub("", printed.decode(errors="replace")).strip().splitlines()
    return StepResult(step, process.returncode == 0, time.monotonic() - begin, lines[-1] if lines else "")


def summary(outcomes: Sequence[StepResult], left_out: Sequence[str]) -> str:
    lines = ["", "== summary"]
    for outcome in outcomes:
        word = "ok" if outcome.passed else "FAILED"
        lines.append(f"{outcome.step:16} {word:7} {outcome.seconds:6.1f} s   {outcome.last_line.strip('= ')}")
    if left_out:
        lines.append(f"not run: {', '.join(left_out)} (tools/test without arguments runs everything)")
    if not all(outcome.passed for outcome in outcomes):
        files = Path(tempfile.gettempdir(), f"pytest-of-{getuser()}")
        lines.append(f"output: {OUTPUT}; screenshots: {ROOT / 'build/screenshots'}; files of tests: {files}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        return 0
    request = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        outcomes = _run(request)
    except KeyboardInterrupt:
        return 130
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def parse(arguments: Sequence[str]) -> Arguments:
    parser = argparse.ArgumentParser(prog="tools/test", add_help=False, allow_abbrev=False)
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    parser.add_argument("--stress", action="store_true")
    known, selection = parser.parse_known_args(arguments)
    fast = "fast" in selection
    if fast:
        selection[selection.index("fast")] = "unit"
    return Arguments(fast, known.repeat, known.stress, selection)


def _run(request: Arguments) -> list[StepResult]:
    outcomes = [_install(programs_for(request))]
    steps = checks()
    with_checks = request.fast or not request.selection
    if with_checks:
        print(f"== {', '.join(steps)}", flush=True)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            outcomes += threads.map(lambda step: run_step(step, steps[step], show=False), steps)
    for number in range(1, request.repeat + 1):
        step = "tests" if request.repeat == 1 else f"tests {number} of {request.repeat}"
        with _busy_processors() if request.stress else nullcontext():
            outcomes.append(run_step(step, pytest_command(request), show=True))
    print(summary(outcomes, [] if with_checks else list(steps)), flush=True)
    return outcomes


def programs_for(request: Arguments) -> list[str]:
    """The programs that the tests need, without those of a cluster that cannot run here."""
    if request.unit_only:
        return programs.names("fast")
    if lack := preflight.lacking():
        print(f"the tests in a cluster are left out: {lack}", flush=True)
        return programs.names("test")
    return programs.names("test") + programs.names("cluster")


def _install(wanted: Sequence[str]) -> StepResult:
    """Gets the programs. Without one of them only the tests that need it are left out."""
    begin = time.monotonic()
    failures = programs.install(wanted)
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    result = f"{len(failures)} could not be installed" if failures else "ready"
    return StepResult(
        "programs", not failures or os.environ.get("CI") != "true", time.monotonic() - begin, result
    )


@contextmanager
def _busy_processors() -> Iterator[None]:
    with Children() as children:
        for number in range(os.cpu_count() or 1):
            endless = [sys.executable, "-c", "while True: pass"]
            children.start(Child(f"load {number}", endless, ROOT, Path(os.devnull)))
        yield


def _test_path(argument: str) -> str | None:
    """The path below the repository of an argument that names a file, directory or test; None for others."""
    file = argument.partition("::")[0]
    if argument.startswith("-"):
        return None
    if (ROOT / "tests" / file).exists():
        return f"tests/{argument}"
    return argument if file.startswith("tests/") and (ROOT / file).exists() else None


def _write(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
