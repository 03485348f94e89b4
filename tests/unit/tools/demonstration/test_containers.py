"""Docker or Podman, where one of them works."""

from pathlib import Path

import pytest

from tools import ROOT
from tools.demonstration.containers import COMPOSE_FILE, compose_command


def engine(directory: Path, name: str, script: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_an_engine_nothing_is_offered(path: Path) -> None:
    assert compose_command() == ""


def test_a_client_without_an_engine_or_without_compose_is_not_offered(path: Path) -> None:
    engine(path, "docker", '[ "$1" = compose ]')
    engine(path, "podman", '[ "$1" = info ]')
    assert compose_command() == ""


def test_the_engine_that_works_is_offered(path: Path) -> None:
    engine(path, "docker", "exit 1")
    engine(path, "podman", "exit 0")
    assert compose_command() == "podman compose"


def test_the_file_exists() -> None:
    assert (ROOT / COMPOSE_FILE).exists()
