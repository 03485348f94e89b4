"""What a run of the tests prints, seen from outside: pytest on small files, with the suite's own settings."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_collection_modifyitems
from tools import ROOT
from tools.testing.report import SECONDS_BETWEEN_LINES, ProgressReport

TESTS = """
import pytest
from tools import Missing

@pytest.fixture
def root():
    raise Missing("needs root")

def test_with_root(root): ...
def test_with_a_program(): raise Missing("prometheus is not installed")
def test_with_the_same_program(): raise Missing("prometheus is not installed")
def test_without_anything(): ...
"""
BROKEN = """
import pytest

@pytest.mark.parametrize("name", ["a b"])
def test_wrong(name): assert name == "c"
"""


def run(directory: Path, text: str, *arguments: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    (directory / "test_small.py").write_text(text)
    settings = ("-p", "tests.conftest", "-c", ROOT / "pyproject.toml", "--rootdir", directory, "-q")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-p", "no:cacheprovider", *arguments, directory],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


def test_tests_that_cannot_run_are_listed_by_reason_and_the_run_passes(tmp_path: Path) -> None:
    ran = run(tmp_path, TESTS, "-n", "1")
    assert ran.returncode == 0, ran.stdout
    assert "    1 tests: needs root\n" in ran.stdout
    assert "    2 tests: prometheus is not installed\n" in ran.stdout
    assert "1 passed, 3 skipped" in ran.stdout.splitlines()[-1]


def test_in_ci_a_test_that_cannot_run_fails(tmp_path: Path) -> None:
    ran = run(tmp_path, TESTS, ci="true")
    assert ran.returncode == 1
    assert "1 passed" in ran.stdout.splitlines()[-1]
    assert "skipped" not in ran.stdout.splitlines()[-1]
    assert "with CI=true every test must" in ran.stdout


def test_the_command_that_repeats_a_failed_test_can_be_pasted(tmp_path: Path) -> None:
    ran = run(tmp_path, BROKEN)
    assert ran.returncode == 1
    assert "tools/test 'test_small.py::test_wrong[a b]'" in ran.stdout.splitlines()


def test_a_shuffled_order_can_be_repeated() -> None:
    written = [f"tests/unit/test_{file}.py::test_{number}" for file in "ab" for number in range(20)]
    written += [f"tests/e2e/test_it.py::test_{number}" for number in range(20)]

    def order(seed: int) -> list[str]:
        items = [SimpleNamespace(nodeid=test, get_closest_marker=lambda _: None) for test in written]
        config = SimpleNamespace(getoption={"--shuffle": seed}.get)
        pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
        return [item.nodeid for item in items]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(written)
    assert [test for test in order(1) if "e2e" in test] == written[-20:]
    assert [test for test in order(1) if "test_a" in test] != written[:20]


class Screen:
    def __init__(self) -> None:
        self.now = 0.0
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def pass_tests(self, report: ProgressReport, count: int, outcome: str = "passed") -> None:
        for number in range(count):
            for when in ("setup", "call", "teardown"):
                result = outcome if when == "call" else "passed"
                report.pytest_runtest_logreport(
                    pytest.TestReport(f"a.py::t{number}", ("a.py", 1, "t"), {}, result, None, when)  # type: ignore[arg-type]
                )


def test_progress_in_a_log_is_a_line_now_and_then() -> None:
    screen = Screen()
    report = ProgressReport(screen.write, bar=False, clock=lambda: screen.now)
    report.pytest_xdist_node_collection_finished(["a"] * 2000)
    screen.pass_tests(report, 500)
    assert screen.text == ""
    screen.now = SECONDS_BETWEEN_LINES + 65
    screen.pass_tests(report, 1)
    assert screen.text == "500 of 2,000 tests (25%), 1:35 min, a.py\n"


def test_progress_on_a_terminal_is_a_bar_and_failures_stay() -> None:
    screen = Screen()
    report = ProgressReport(screen.write, bar=True, clock=lambda: screen.now)
    report.pytest_xdist_node_collection_finished(["a"] * 4)
    screen.now = 1.0
    screen.pass_tests(report, 1, "failed")
    screen.now = 2.0
    screen.pass_tests(report, 1)
    shown = screen.text.split("\r\x1b[K")
    assert "FAILED a.py::t0\n" in shown
    assert shown[-1] == "[######..................] 1 of 4 tests (25%), 1 FAILED, 0:02 min, a.py"
