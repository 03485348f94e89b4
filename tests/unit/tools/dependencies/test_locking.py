"""Locks: exclusive, or shared with removal by the last user; no wait is endless."""

import shutil
import threading
from pathlib import Path

import pytest

from tools import Failed
from tools.dependencies.locking import locked, shared_directory


def test_waiting_for_a_lock_can_be_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()
    stop.set()
    with (
        locked(tmp_path / "lock", "tool"),
        pytest.raises(Failed, match="tool: stopped"),
        locked(tmp_path / "lock", "tool", stop),
    ):
        pass
    assert capsys.readouterr().err.startswith("tool: ")


def test_a_free_lock_is_acquired_repeatedly_without_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with locked(tmp_path / "lock", "tool"):
            pass
    assert capsys.readouterr().err == ""


def test_a_shared_directory_is_removed_by_its_last_user(tmp_path: Path) -> None:
    directory = tmp_path / "cache" / "shared"
    first, second = (shared_directory(directory, shutil.rmtree) for _ in range(2))
    first.__enter__()
    second.__enter__()
    (directory / "compiled").touch()
    first.__exit__(None, None, None)
    assert (directory / "compiled").exists()
    second.__exit__(None, None, None)
    assert not directory.exists()


def test_a_directory_of_a_killed_run_is_reused_and_removed_by_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    (directory / "compiled").touch()
    with shared_directory(directory, shutil.rmtree):
        assert (directory / "compiled").exists()
    assert not directory.exists()


def test_a_directory_is_removed_after_a_failure(tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    with pytest.raises(Failed), shared_directory(directory, shutil.rmtree):
        raise Failed("the registry did not answer")
    assert not directory.exists()
