"""What a person sees of a run of pytest: progress, and at the end what failed, was left out and took long."""

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pytest

SECONDS_BETWEEN_LINES = 30
_SECONDS_BETWEEN_UPDATES = 0.2
_BAR_CELLS = 24
_MOST_COMMANDS = 10
_CLEAR_LINE = "\r\x1b[K"


class ProgressReport:
    """A plugin of pytest, for the process that prints; `bar` is for a terminal, otherwise there are lines."""

    def __init__(
        self, write: Callable[[str], None], *, bar: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._bar = bar
        self._clock = clock
        self._started = self._shown = clock()
        self._total = 0
        self._done = 0
        self._failed: list[str] = []
        self._left_out: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._total = len(ids)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """The category that pytest counts. No letter: the progress line replaces the dots."""
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        if report.skipped:
            return ("skipped", "", "")
        return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self._seconds[test.partition("::")[0]] += report.duration
        if report.when == "teardown":
            self._done += 1
        if report.skipped:
            self._left_out[_reason(report)] += 1
        if report.failed and test not in self._failed:
            self._failed.append(test)
            self._print(f"FAILED {test}")
        self._progress(test.partition("::")[0])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._bar:
            self._write(_CLEAR_LINE)
        section, line = terminalreporter.section, terminalreporter.write_line
        section("seconds per directory, and the files that take longest")
        for directory, seconds in _sums(self._seconds, lambda file: "/".join(file.split("/")[:2])):
            line(f"{seconds:8.1f} {directory}")
        line("")
        for file, seconds in sorted(self._seconds.items(), key=lambda each: -each[1])[:20]:
            line(f"{seconds:8.1f} {file}")
        if self._left_out:
            section("left out: this machine lacks what these tests need")
            for reason, tests in sorted(self._left_out.items()):
                line(f"{tests:5} tests: {reason}")
        if self._failed:
            section("to repeat just what failed")
            for test in self._failed[:_MOST_COMMANDS]:
                line(f"tools/test {shlex.quote(test)}")
            if len(self._failed) > _MOST_COMMANDS:
                line(f"tools/test --last-failed       # all {len(self._failed)}")

    def _progress(self, file: str) -> None:
        now = self._clock()
        if now - self._shown < (_SECONDS_BETWEEN_UPDATES if self._bar else SECONDS_BETWEEN_LINES):
            return
        self._shown = now
        share = self._done / self._total if self._total else 0.0
        filled = round(share * _BAR_CELLS)
        bar = f"[{'#' * filled}{'.' * (_BAR_CELLS - filled)}] " if self._bar else ""
        failed = f", {len(self._failed)} FAILED" if self._failed else ""
        seconds = int(now - self._started)
        self._print(
            f"{bar}{self._done:,} of {self._total:,} tests ({share:.0%}){failed}, "
            f"{seconds // 60}:{seconds % 60:02} min, {file}",
            moving=self._bar,
        )

    def _print(self, text: str, *, moving: bool = False) -> None:
        start = _CLEAR_LINE if self._bar else ""
        self._write(f"{start}{text}" if moving else f"{start}{text}\n")


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


def _sums(seconds: dict[str, float], group: Callable[[str], str]) -> list[tuple[str, float]]:
    sums: defaultdict[str, float] = defaultdict(float)
    for file, each in seconds.items():
        sums[group(file)] += each
    return sorted(sums.items(), key=lambda each: -each[1])
