"""The workflows of GitHub: linted, with the least permissions, and only actions that cannot change."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools import ROOT
from tools.dependencies import programs

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def test_actionlint_finds_nothing() -> None:
    linted = subprocess.run(
        [programs.path("actionlint"), "-shellcheck=", "-pyflakes=", *WORKFLOWS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (linted.returncode, linted.stdout) == (0, "")


def test_actionlint_finds_a_mistake(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        "on: push\njobs: {one: {runs-on: ubuntu-24.04, steps: [{run: 'echo ${{ github.nothing }}'}]}}\n"
    )
    linted = subprocess.run(
        [programs.path("actionlint"), "-shellcheck=", "-pyflakes=", wrong], capture_output=True, check=False
    )
    assert linted.returncode == 1


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    for used in re.findall(r"uses: (\S+)", workflow.read_text()):
        assert used.startswith("./") or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), used


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_otherwise(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_only_the_release_may_write() -> None:
    writing = {
        (workflow.stem, name)
        for workflow in WORKFLOWS
        for name, job in yaml.safe_load(workflow.read_text())["jobs"].items()
        if "write" in job.get("permissions", {}).values()
    }
    assert writing == {("release", "release")}


def test_the_other_files_are_valid_yaml() -> None:
    for path in (*GITHUB.glob("*.yml"), *GITHUB.glob("ISSUE_TEMPLATE/*.yml")):
        assert yaml.safe_load(path.read_text()), path
