""".venv: made once, brought up to date when its source changes, never half done."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import Failed
from tools.dependencies import environment

PROJECT = """
[dependency-groups]
lint = ["ruff==1"]
test = ["pytest==2", { include-group = "lint" }]
"""


class Recorder:
    """Stands in for `Work`: records the steps, and does as `python -m venv` would."""

    steps: list[str]
    commands: list[list[str]]
    failing: str

    def __init__(self, title: str, log: Path) -> None: ...

    def run(self, step: str, command: Sequence[str | Path]) -> str:
        if self.failing and step.startswith(self.failing):
            raise Failed("it failed")
        Recorder.steps.append(step)
        Recorder.commands.append([str(word) for word in command])
        if command[2] == "venv":
            interpreter = Path(command[3]) / "bin" / "python"
            interpreter.parent.mkdir(parents=True)
            interpreter.touch()
        return ""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Recorder.steps, Recorder.commands, Recorder.failing = [], [], ""
    monkeypatch.setattr(environment, "Work", Recorder)
    monkeypatch.setenv("GPUTALLY_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "repository"
    (root / "tools").mkdir(parents=True)
    (root / "tools" / "constraints.txt").touch()
    (root / "pyproject.toml").write_text(PROJECT)
    return root


def test_the_environment_is_created_once(root: Path) -> None:
    python = environment.python("test", root=root)
    assert python == root / ".venv/bin/python"
    assert Recorder.steps == ["creating it", "installing gputally, test"]
    assert Recorder.commands[-1][-3:] == [str(root), "pytest==2", "ruff==1"]
    environment.python("test", root=root)
    environment.python(root=root)
    assert len(Recorder.steps) == 2


def test_a_group_that_another_one_includes_is_there(root: Path) -> None:
    environment.python("test", root=root)
    environment.python("lint", root=root)
    assert len(Recorder.steps) == 2


def test_groups_accumulate(root: Path) -> None:
    environment.python(root=root)
    environment.python("lint", root=root)
    environment.python("test", root=root)
    assert Recorder.steps[1:] == [
        "installing gputally",
        "installing gputally, lint",
        "installing gputally, lint, test",
    ]


@pytest.mark.parametrize("name", ["pyproject.toml", "tools/constraints.txt"])
def test_a_changed_source_updates_it_without_recreating_it(root: Path, name: str) -> None:
    environment.python("test", root=root)
    with (root / name).open("a") as file:
        file.write("\n# changed\n")
    environment.python("test", root=root)
    assert Recorder.steps[2:] == ["installing gputally, test"]


def test_an_environment_without_its_python_is_created_again(root: Path) -> None:
    python = environment.python(root=root)
    python.unlink()
    python.symlink_to("/nowhere/python3")
    environment.python(root=root)
    assert Recorder.steps[2:] == ["creating it", "installing gputally"]


def test_an_environment_moved_with_its_repository_is_installed_again(root: Path) -> None:
    environment.python(root=root)
    moved = root.rename(root.with_name("moved"))
    environment.python(root=moved)
    assert Recorder.commands[-1][-1] == str(moved)


def test_a_failed_installation_is_repeated(root: Path) -> None:
    Recorder.failing = "installing"
    with pytest.raises(Failed):
        environment.python(root=root)
    Recorder.failing = ""
    environment.python(root=root)
    assert Recorder.steps == ["creating it", "installing gputally"]


def test_without_venv_the_fix_is_printed(root: Path) -> None:
    Recorder.failing = "creating"
    with pytest.raises(Failed, match="python3-venv"):
        environment.python(root=root)


def test_a_truncated_stamp_is_ignored(root: Path) -> None:
    environment.python(root=root)
    (root / ".venv" / environment.STAMP).write_text('{"groups": [')
    environment.python(root=root)
    assert Recorder.steps[2:] == ["installing gputally"]
