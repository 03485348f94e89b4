"""The wheel and the sdist: what is in them, and that the wheel works where the repository is not."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gputally import __version__

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "exporter" / "gputally"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist, built from a copy: the repository stays untouched."""
    source = tmp_path_factory.mktemp("source")
    for name in ("exporter", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "tools", "tests"):
        original = ROOT / name
        if original.is_dir():
            shutil.copytree(original, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(original, source)
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return folder


def wheel_of(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def package_files() -> set[str]:
    return {
        f"gputally/{path.relative_to(SOURCES)}"
        for path in SOURCES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_contains_only_the_package(built: Path) -> None:
    wheel = wheel_of(built)
    assert wheel.name == f"gputally-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = f"gputally-{__version__}.dist-info"
    expected = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert names == package_files() | {f"{about}/{name}" for name in expected}
    assert "gputally/py.typed" in names


def test_the_sdist_contains_only_the_sources_of_the_wheel(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    top = f"gputally-{__version__}"
    assert sdist.name == f"{top}.tar.gz"
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(f"{top}/") for member in archive if member.isfile()}
    around = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO"}
    # hatchling always adds the ignore file where there is one.
    assert names - {".gitignore"} == {f"exporter/{name}" for name in package_files()} | around


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it, without any registry: its dependencies are copied."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in with_their_own(project["dependencies"]):
        copy_distribution(name, site)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--no-index"]
    subprocess.run([*pip, str(wheel_of(built))], check=True, capture_output=True, env=clean_environment())
    return folder


def with_their_own(requirements: Iterable[str]) -> set[str]:
    """Names of the distributions that are required here, and of those that they require."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found |= {requirement.name} | with_their_own(importlib.metadata.requires(requirement.name) or ())
    return found


def copy_distribution(name: str, site: Path) -> None:
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(str(file.locate())), target)


def clean_environment() -> Mapping[str, str]:
    """No variable through which the repository could be found."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.mark.parametrize("command", [["bin/gputally"], ["bin/python", "-m", "gputally"]])
def test_the_installed_command_prints_its_version_outside_the_repository(
    installed: Path, command: list[str], tmp_path: Path
) -> None:
    ran = subprocess.run(
        [installed / command[0], *command[1:], "version"],
        cwd=tmp_path,
        env=clean_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.stdout, ran.stderr) == (f"gputally {__version__}\n", "")


def test_the_installed_command_samples_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [installed / "bin" / "gputally", "simulate", "--gpus", "2", "--once"],
        cwd=tmp_path,
        env=clean_environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.count("gputally_gpu_power_watts{") == 2
