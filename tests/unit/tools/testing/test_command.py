"""tools/test itself: every step runs, every failure counts, the counts stand at the end."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools import ROOT, Failed
from tools.dependencies import environment, programs
from tools.testing import command as test

PYTHON = Path("/env/bin/python")


def prints(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The checks; the tests print `5 passed in 0.1s`. Nothing is installed."""
    found = {"format": prints("3 files already formatted"), "types": prints("no issues in 3 source files")}
    monkeypatch.setattr(environment, "python", lambda *_, **__: PYTHON)
    monkeypatch.setattr(programs, "install", lambda _: [])
    monkeypatch.setattr(test, "checks", lambda _: found)
    monkeypatch.setattr(test, "pytest_command", lambda *_: prints("\n=== 5 passed in 0.1s ==="))
    return found


@pytest.mark.usefixtures("steps")
def test_the_summary_ends_with_the_count_of_the_tests(capfd: pytest.CaptureFixture[str]) -> None:
    assert test.main([]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1].startswith("tests            ok")
    assert lines[-1].endswith("5 passed in 0.1s")
    assert lines[-2].endswith("no issues in 3 source files")


@pytest.mark.parametrize("failing", ["format", "types", "tests"])
def test_one_failure_fails_the_whole_and_the_other_steps_still_run(
    steps: dict[str, list[str]],
    failing: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = prints("what is wrong\n1 failed", 1)
    if failing == "tests":
        monkeypatch.setattr(test, "pytest_command", lambda *_: command)
    else:
        steps[failing] = command
    assert test.main([]) == 1
    said = capfd.readouterr().out
    assert "what is wrong" in said
    assert said.count(" FAILED ") == 1
    assert said.count(" ok ") == 2


@pytest.mark.usefixtures("steps")
def test_a_selection_leaves_the_checks_out_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert test.main(["-k", "lost"]) == 0
    said = capfd.readouterr().out
    assert "not run: format, types" in said
    assert "already formatted" not in said
    assert "5 passed" in said


@pytest.mark.usefixtures("steps")
def test_what_cannot_be_got_is_said_and_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failures = [Failed("promtool: the registry did not answer"), Failed("helm: no such version")]
    asked: list[str] = []

    def refuse(wanted: list[str]) -> list[Failed]:
        asked.extend(wanted)
        return failures

    monkeypatch.setattr(programs, "install", refuse)
    assert test.main([]) == 1
    said = capfd.readouterr()
    assert said.err.splitlines() == [str(failure) for failure in failures]
    assert "passed" not in said.out
    assert asked == programs.names("test")


def test_without_an_environment_nothing_runs(
    steps: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: str, **__: Path) -> Path:
        raise Failed(".venv: there is no pip")

    monkeypatch.setattr(environment, "python", refuse)
    assert test.main([]) == 1
    said = capfd.readouterr()
    assert said.err == ".venv: there is no pip\n"
    assert "passed" not in said.out


def test_colours_do_not_reach_the_summary() -> None:
    outcome = test.run_step("tests", prints("\x1b[32m\x1b[1m5 passed\x1b[0m"), show=False)
    assert outcome.last_line == "5 passed"


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ("unit", "tests/unit"),
        ("unit/tools/testing/test_command.py::test_x", "tests/unit/tools/testing/test_command.py::test_x"),
        ("tests/unit", "tests/unit"),
        ("-x", "-x"),
        ("lost or found", "lost or found"),
    ],
)
def test_a_directory_of_tests_may_be_named_alone_and_the_rest_is_pytests(given: str, passed_on: str) -> None:
    assert test.pytest_command(PYTHON, [given])[-1] == passed_on


def test_every_check_is_there() -> None:
    assert list(test.checks(PYTHON)) == ["format", "lint", "types", "layers", "generated files", "words"]


def test_the_ci_runs_the_test_command() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == 'exec "$(dirname "$0")/../tools/test"'


@pytest.mark.parametrize("name", ["test", "demo", "render", "programs"])
def test_an_old_python_is_told_so_in_words(name: str) -> None:
    for file in (ROOT / "tools" / name, ROOT / "tools/launching/__init__.py"):
        ast.parse(file.read_text(), feature_version=(3, 6))
    pretend = (
        "import runpy, sys\n"
        f"sys.version_info, sys.argv, sys.path[0] = (3, 9, 2), ['{name}'], {str(ROOT / 'tools')!r}\n"
        f"runpy.run_path({str(ROOT / 'tools' / name)!r})"
    )
    ran = subprocess.run([sys.executable, "-c", pretend], check=False, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"tools/{name} needs Python 3.11 or newer")
