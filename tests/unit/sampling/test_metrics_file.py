"""The file for the textfile collector is replaced as a whole, or not at all, and holds up nothing."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.files import replace_file
from gputally.sampling import metrics_file
from gputally.sampling.metrics_file import MetricsFile
from tools.servers.waiting import wait_until

AMPLE = 30.0


def test_the_file_is_replaced_and_readable_by_all(tmp_path: Path) -> None:
    target = tmp_path / "gpu.prom"
    file = MetricsFile(target)
    file.write(b"old 1\n", AMPLE)
    file.write(b"new 2\n", AMPLE)
    assert file.up
    assert target.read_bytes() == b"new 2\n"
    assert target.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_keeps_the_old_file_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "gpu.prom"
    target.mkdir()
    (target / "in the way").touch()
    file = MetricsFile(target)
    file.write(b"new 2\n", AMPLE)
    file.write(b"new 3\n", AMPLE)
    assert not file.up
    assert caplog.text.count(f"--metrics-file: cannot write {target}: is not a regular file") == 1
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "gpu.prom"
    os.mkfifo(target)
    MetricsFile(target).write(b"new 2\n", AMPLE)
    assert target.is_fifo()


@pytest.mark.parametrize("plant", [lambda at, to: at.symlink_to(to), lambda at, to: os.link(to, at)])
def test_a_link_at_any_name_that_can_be_guessed_is_not_followed(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    directory = tmp_path / "textfiles"
    directory.mkdir()
    target = directory / "gpu.prom"
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    victim.chmod(0o600)
    for name in (".gpu.prom.tmp", f".gpu.prom.{os.getpid()}.tmp", "gpu.prom.tmp", "gpu.prom"):
        plant(directory / name, victim)
    file = MetricsFile(target)
    file.write(b"new 2\n", AMPLE)
    assert file.up
    assert target.read_bytes() == b"new 2\n"
    assert not target.is_symlink()
    assert (victim.read_bytes(), victim.stat().st_mode & 0o777) == (b"precious", 0o600)


@pytest.mark.parametrize("plant", [lambda at, to: at.symlink_to(to), lambda at, to: os.link(to, at)])
def test_a_link_that_is_planted_in_the_last_moment_is_refused(
    tmp_path: Path, plant: Callable[[Path, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, target = tmp_path / "victim", tmp_path / "gpu.prom"
    victim.write_bytes(b"precious")
    unlink = os.unlink

    def planted_at_once(name: str, *, dir_fd: int) -> None:
        if not (tmp_path / name).exists():
            plant(tmp_path / name, victim)
        else:
            unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", planted_at_once)
    file = MetricsFile(target)
    file.write(b"new 2\n", AMPLE)
    assert not file.up
    assert victim.read_bytes() == b"precious"
    assert not target.exists()


def test_a_write_that_hangs_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()

    def hangs(*arguments: object, **more: object) -> None:
        assert over.wait(AMPLE)
        replace_file(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(metrics_file, "replace_file", hangs)
    file = MetricsFile(tmp_path / "gpu.prom")
    file.write(b"late 1\n", 0.01)
    file.write(b"dropped 2\n", AMPLE)
    assert not file.up
    assert "source metrics_file is down: no answer within" in caplog.text
    over.set()
    wait_until(lambda: not file._worker.busy)
    file.write(b"new 3\n", AMPLE)
    assert file.up
    assert (tmp_path / "gpu.prom").read_bytes() == b"new 3\n"
