"""Feeds every parser of untrusted input with mutated inputs, on one processor.

tools/fuzz 60                         an hour, divided among the targets
tools/fuzz 10 --target relay_text     one of them; can be given several times
tools/fuzz --target NAME --input FILE repeat one input

Prints progress, and at the end a table (Markdown). Ends with 1 if an input failed: it is in
build/fuzz/findings, and the command that repeats it is printed. What reached new code is kept in
build/fuzz/corpus, from which the next run continues.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tools import ROOT, Failed
from tools.fuzzing import targets
from tools.rendering.markdown import put_into, table

OUTPUT = ROOT / "build" / "fuzz"
_FINDINGS = OUTPUT / "findings"
_RUNS = re.compile(r"^(?:#|stat::number_of_executed_units:\s*|Done )(\d+)")
_COVERAGE = re.compile(r"\bcov: (\d+)")
_SECONDS_BETWEEN_LINES = 30
_LINES_OF_A_FINDING = 40


@dataclass(slots=True)
class Result:
    """Of one target."""

    target: str
    runs: int = 0
    coverage: int = 0
    seconds: float = 0.0
    inputs: int = 0
    finding: Path | None = None
    failed: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    request = _parse(arguments)
    try:
        if request.input is not None:
            targets.load(request.target[0]).one_input(request.input.read_bytes())
            print(f"{request.target[0]}: {request.input} does not fail")
            return 0
        chosen = request.target or targets.names()
        unknown = set(chosen) - set(targets.names())
        if unknown:
            raise Failed(
                f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(targets.names())}"
            )
    except Failed as failure:
        sys.exit(str(failure))
    results = [_fuzz(name, request.minutes * 60 / len(chosen), request.seed) for name in chosen]
    called = f"tools/fuzz {request.minutes:g} --seed {request.seed}"
    found = text(results, called, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    print(f"\n{found}")
    if request.report is not None:
        put_into(request.report, "fuzz", found)
    return 1 if any(result.failed for result in results) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minutes", type=float, nargs="?", metavar="MINUTES")
    parser.add_argument("--target", action="append", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--input", type=Path, metavar="FILE")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write the table between <!-- fuzz --> and <!-- /fuzz --> of this file, too",
    )
    request = parser.parse_args(arguments)
    if request.input is not None and len(request.target) != 1:
        parser.error("--input needs one --target")
    if request.input is None and not (request.minutes or 0) > 0:
        parser.error("MINUTES must be more than 0")
    return request


def text(results: Sequence[Result], called: str, date: str) -> str:
    """The table, with how it was made, and for each finding the command that repeats it."""
    rows = []
    repeats = []
    for one in results:
        finding = "none"
        if one.failed:
            finding = one.finding.name if one.finding else "the run failed"
        rows.append(
            (
                f"`{one.target}`",
                f"{one.runs:,}",
                f"{one.seconds:.0f}",
                str(one.coverage or "-"),
                f"{one.inputs:,}",
                finding,
            )
        )
        if one.finding:
            shown = one.finding.relative_to(ROOT) if one.finding.is_relative_to(ROOT) else one.finding
            repeats.append(f"tools/fuzz --target {one.target} --input {shown}")
    runs = sum(one.runs for one in results)
    head = ("target", "runs", "seconds", "branches reached", "inputs in the corpus", "finding")
    return "\n\n".join([f"Written by `{called}` on {date}: {runs:,} runs.", table(head, rows), *repeats])


def _fuzz(name: str, seconds: float, seed: int) -> Result:
    corpus = OUTPUT / "corpus" / name
    for directory in (corpus, _FINDINGS):
        directory.mkdir(parents=True, exist_ok=True)
    before = set(_FINDINGS.iterdir())
    result = Result(name)
    began = shown = time.monotonic()
    last: list[str] = []
    command = [
        *(sys.executable, "-P", "-m", "tools.fuzzing.worker", name, "--seconds", str(seconds)),
        *("--seed", str(seed), "--corpus", str(corpus), "--findings", str(_FINDINGS)),
    ]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace") as worker:
        assert worker.stderr is not None
        for line in worker.stderr:
            last = [*last[1 - _LINES_OF_A_FINDING :], line]
            if match := _RUNS.match(line):
                result.runs = max(result.runs, int(match[1]))
            if match := _COVERAGE.search(line):
                result.coverage = int(match[1])
            if time.monotonic() - shown > _SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                print(f"{name}: {result.runs:,} runs, {shown - began:.0f} of {seconds:.0f} s", flush=True)
    result.seconds = time.monotonic() - began
    result.inputs = sum(1 for _ in corpus.iterdir())
    result.failed = worker.returncode != 0
    result.finding = next(iter(set(_FINDINGS.iterdir()) - before), None)
    state = "FAILED" if result.failed else "ok"
    print(f"{name}: {state}, {result.runs:,} runs in {result.seconds:.0f} s", flush=True)
    if result.failed:
        print("".join(last), flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
