"""tools/test itself: every step runs, every failure counts, the counts stand at the end."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import ROOT, Failed
from tools.dependencies import programs
from tools.test_cluster import preflight
from tools.testing import command as test


def prints(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[str]]:
    """The checks; the tests print `5 passed in 0.1s`. Nothing is installed."""
    found = {"format": prints("3 files already formatted"), "types": prints("no issues in 3 source files")}
    monkeypatch.setattr(programs, "install", lambda _: [])
    monkeypatch.setattr(preflight, "lacking", lambda: None)
    monkeypatch.setattr(test, "OUTPUT", tmp_path)
    monkeypatch.setattr(test, "checks", lambda: found)
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
def test_one_failure_fails_the_run_and_the_other_steps_still_run(
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
    assert f"== {failing}\nwhat is wrong\n" in said
    assert said.count(" FAILED ") == 1
    assert said.count(" ok ") == len(["programs", "format", "types", "tests"]) - 1


@pytest.mark.usefixtures("steps")
def test_a_selection_omits_the_checks_and_reports_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert test.main(["-k", "lost"]) == 0
    said = capfd.readouterr().out
    assert "not run: format, types" in said
    assert "already formatted" not in said
    assert "5 passed" in said


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_an_unavailable_program_is_reported_and_the_tests_still_run(
    ci: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failures = [Failed("promtool: the registry did not answer"), Failed("helm: no such version")]
    monkeypatch.setattr(programs, "install", lambda _: failures)
    monkeypatch.setenv("CI", ci)
    assert test.main([]) == code
    said = capfd.readouterr()
    assert said.err.splitlines() == [str(failure) for failure in failures]
    assert "2 could not be installed" in said.out
    assert "5 passed" in said.out


@pytest.mark.usefixtures("steps")
def test_a_machine_without_a_cluster_does_not_build_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "lacking", lambda: "needs root")
    without = test.programs_for(test.parse([]))
    monkeypatch.setattr(preflight, "lacking", lambda: None)
    everything = test.programs_for(test.parse([]))
    assert {"prometheus", "kube-apiserver"} <= set(without)
    assert {"containerd", "coredns"} <= set(everything) - set(without)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("arguments", [["fast"], ["unit"], ["tests/unit/test_cli.py", "-x"]])
def test_unit_tests_need_no_program_that_must_be_built(arguments: list[str]) -> None:
    needed = set(test.programs_for(test.parse(arguments)))
    recipes = {
        each.settings["recipe"] for each in programs.program_sets().values() if needed & {*each.programs}
    }
    assert recipes == {"pypi"}


@pytest.mark.usefixtures("steps")
def test_fast_runs_every_check(capfd: pytest.CaptureFixture[str]) -> None:
    assert test.main(["fast"]) == 0
    said = capfd.readouterr().out
    assert "== format, types\n" in said
    assert "not run" not in said


def test_fast_runs_the_unit_tests() -> None:
    assert test.pytest_command(test.parse(["fast"]))[-1] == "tests/unit"


@pytest.mark.usefixtures("steps")
def test_repeated_tests_are_counted_run_by_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert test.main(["--repeat", "3", "unit"]) == 0
    assert [
        line.split(" ok ")[0].strip() for line in capfd.readouterr().out.splitlines() if " ok " in line
    ] == [
        "programs",
        "tests 1 of 3",
        "tests 2 of 3",
        "tests 3 of 3",
    ]


@pytest.mark.usefixtures("steps")
def test_under_stress_every_processor_is_busy_while_the_tests_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    children = "print(len(open(f'/proc/{ppid}/task/{ppid}/children').read().split()))"
    count = [sys.executable, "-c", f"import os; ppid = os.getppid(); {children}"]
    monkeypatch.setattr(test, "pytest_command", lambda *_: count)

    def children_of_a_run(*arguments: str) -> int:
        assert test.main([*arguments, "unit"]) == 0
        return int((tmp_path / "tests.txt").read_text())

    assert children_of_a_run("--stress") - children_of_a_run() == os.cpu_count()
    assert children_of_a_run() == children_of_a_run()


def test_under_stress_the_order_is_random() -> None:
    assert "--shuffle" in test.pytest_command(test.parse(["--stress"]))
    assert "--shuffle" not in test.pytest_command(test.parse([]))


@pytest.mark.usefixtures("steps")
def test_after_a_failure_the_files_to_read_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test, "pytest_command", lambda *_: prints("it broke", 1))
    assert test.main([]) == 1
    assert str(tmp_path) in capfd.readouterr().out.splitlines()[-1]
    assert (tmp_path / "tests.txt").read_text() == "it broke\n"


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
def test_a_directory_of_tests_can_be_given_alone_and_the_rest_is_for_pytest(
    given: str, passed_on: str
) -> None:
    assert test.pytest_command(test.parse([given]))[-1] == passed_on


def test_every_check_is_there() -> None:
    assert set(test.checks()) == {"format", "lint", "types", "layers", "generated files", "words"}


def test_the_ci_runs_the_test_command() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == 'exec "$(dirname "$0")/../tools/test"'


def test_the_module_that_tools_test_starts_runs_the_command() -> None:
    (module,) = re.findall(r'run_in_environment\("([\w.]+)"', (ROOT / "tools/test").read_text())
    ran = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert ran.stdout == f"{test.__doc__}\n"


def test_the_code_that_creates_the_environment_uses_the_standard_library_only() -> None:
    start = "import sys; sys.path.insert(0, sys.argv[1]); import launching, tools.dependencies.command"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start, ROOT / "tools"], check=False, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", ["test", "demo", "render", "programs"])
def test_an_old_python_is_refused_with_a_message(name: str) -> None:
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
