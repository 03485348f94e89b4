"""The Dockerfile, as far as it can be tried without a container engine.

Covered: it is parsed, its COPY sources are what .dockerignore lets through, the commands of its build stage
run here (in another directory than /opt/gputally), and the entry point, command and health check run on their
result. Not covered: the base image, file ownership in the image, and the NVIDIA container runtime.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import Missing
from tools.dependencies import hashes
from tools.servers.waiting import wait_until

ROOT = Path(__file__).parents[2]

Instruction = tuple[str, str]


def parse(text: str) -> list[list[Instruction]]:
    """The stages of a Dockerfile: lists of (instruction, rest of the line)."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    stages: list[list[Instruction]] = []
    for line in filter(None, joined.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((word, rest))
    return stages


STAGES = parse((ROOT / "Dockerfile").read_text())
BUILD, FINAL = STAGES
RUNTIME = ROOT / "packaging/image/requirements.txt"


def only(stage: list[Instruction], word: str) -> str:
    (rest,) = (rest for name, rest in stage if name == word)
    return rest


def test_the_image_runs_as_a_numeric_unprivileged_user_and_the_final_stage_runs_no_command() -> None:
    assert only(FINAL, "USER") == "65532:65532"
    assert "RUN" not in dict(FINAL)
    copies = [rest.split() for name, rest in FINAL if name == "COPY"]
    assert all(copy[0] == "--from=build" for copy in copies)
    assert ["--from=build", "--chown=65532:65532", "/src/state", "/var/lib/gputally"] in copies


def test_the_base_image_of_both_stages_is_named_by_digest() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert [stage[0] for stage in STAGES] == [
        ("FROM", "${PYTHON_IMAGE} AS build"),
        ("FROM", "${PYTHON_IMAGE}"),
    ]


def test_everything_from_a_registry_is_installed_by_hash() -> None:
    installs = [
        part for name, rest in BUILD if name == "RUN" for part in rest.split("&&") if " install " in part
    ]
    assert installs
    assert all("--require-hashes" in one or "--no-deps --no-index" in one for one in installs)
    (wheel,) = (
        part for name, rest in BUILD if name == "RUN" for part in rest.split("&&") if " wheel " in part
    )
    assert "--no-deps --no-build-isolation" in wheel


@pytest.mark.parametrize("file", hashes.files(), ids=lambda file: file.name)
def test_the_packages_of_the_image_are_those_of_the_constraints(file: Path) -> None:
    _, requirements = hashes.files()[file]
    listed = dict(
        re.findall(r"^(\S+==\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", file.read_text(), re.M)
    )
    pins = hashes.pins()
    assert {*listed} == {pins[name] for name in hashes.closure(requirements)}
    assert "://" not in file.read_text()


def test_a_wheel_with_other_contents_is_refused(tmp_path: Path) -> None:
    name, _, version = hashes.pins()["hpack"].partition("==")
    (requirement,) = re.findall(rf"^{name}==(?:.*\\\n)+.*\n", RUNTIME.read_text(), re.MULTILINE)
    (tmp_path / "requirements.txt").write_text(requirement)
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "print('other contents')")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    install = [sys.executable, "-m", "pip", "install", "--require-hashes", "--no-index", "--no-deps"]
    where = [f"--find-links={tmp_path}", f"--target={tmp_path}/installed"]
    ran = subprocess.run(
        [*install, *where, f"--requirement={tmp_path}/requirements.txt"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert "DO NOT MATCH THE HASHES" in ran.stderr
    assert not (tmp_path / "installed").exists()


def test_the_image_requests_every_gpu_and_only_the_utility_driver_capability() -> None:
    environment = dict(pair.split("=", 1) for pair in shlex.split(only(FINAL, "ENV")))
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def copied() -> list[str]:
    return [source for name, rest in BUILD if name == "COPY" for source in rest.split()[:-1]]


@pytest.mark.parametrize("source", copied())
def test_copied_files_exist_and_are_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_build_context_has_only_copied_files() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(copied())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the build stage's commands fill, in place of /opt/gputally."""
    folder = tmp_path_factory.mktemp("image")
    source = folder / "src"
    (source / "tools").mkdir(parents=True)
    for name in copied():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    # As in the base image, `python` and `pip` are on PATH.
    commands = folder / "commands"
    commands.mkdir()
    for name, command in {"python": sys.executable, "pip": f"{sys.executable} -m pip"}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (commands / name).chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    for command in (rest for name, rest in BUILD if name == "RUN"):
        here = re.sub(r"(?<![\w/])(/opt/gputally|/builder|/wheels)", rf"{folder}\1", command)
        ran = subprocess.run(
            here,
            shell=True,  # a RUN line is a shell command
            cwd=source,
            env={**os.environ, "PATH": path},
            check=False,
            capture_output=True,
            text=True,
        )
        if "NewConnectionError" in ran.stderr and ran.returncode:
            raise Missing("the package registry cannot be reached: connect the machine to it")
        assert ran.returncode == 0, ran.stderr
    return folder / "opt/gputally"


def in_image(image: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not fnmatch.fnmatch(name, "PYTHON*")}
    path = f"{image / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "GPUTALLY_PORT": str(port), "GPUTALLY_LISTEN_ADDRESS": "127.0.0.1:0"}


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(image: Path, port: int, tmp_path: Path) -> Iterator[None]:
    """The entry point and the command, run as the image would."""
    command = json.loads(only(FINAL, "ENTRYPOINT")) + json.loads(only(FINAL, "CMD"))
    with subprocess.Popen(
        command, cwd=tmp_path, env=in_image(image, port), stderr=subprocess.PIPE
    ) as process:
        yield
        process.terminate()
        process.communicate(timeout=20)


def health(image: Path, port: int) -> int:
    check = json.loads(only(FINAL, "HEALTHCHECK").partition("CMD ")[2])
    return subprocess.run(check, check=False, env=in_image(image, port), capture_output=True).returncode


@pytest.mark.usefixtures("served")
def test_the_replayed_image_serves_and_its_health_check_succeeds(image: Path, port: int) -> None:
    wait_until(lambda: health(image, port) == 0, "the health check succeeds")


def test_the_health_check_fails_without_a_server(image: Path, port: int) -> None:
    assert health(image, port) != 0


def test_the_replayed_image_has_no_pip_and_only_the_pinned_versions(image: Path) -> None:
    (site,) = image.glob("lib/python*/site-packages")
    assert not (site / "pip").exists()
    pins = (ROOT / "tools/constraints.txt").read_text().lower().replace("_", "-")
    for about in site.glob("*.dist-info"):
        name, _, version = about.name.removesuffix(".dist-info").lower().replace("_", "-").rpartition("-")
        assert name == "gputally" or f"{name}=={version}\n" in pins
