"""The guarded state file: never resumed from when it may be behind what was published."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputally.ledger.state_file import StateFile, decode, encode
from gputally.sampling.checkpoint import Checkpoint
from tests.support.disks import Disk, small_disk

AMPLE = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path) as disk:
        yield disk


class Hang:
    """A disk on which every fsync waits until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()
        self._fsync = os.fsync

    def fsync(self, fd: int) -> None:
        self.reached.set()
        assert self.over.wait(AMPLE)
        self._fsync(fd)


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    hang = Hang()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", hang.fsync)
        try:
            yield hang
        finally:
            hang.over.set()


def held(path: Path) -> object:
    return decode(path.read_bytes())["total"]


def resumed(path: Path) -> object:
    """What the next exporter goes on from, after the one before it was killed."""
    after = Checkpoint(path)
    state = after.resume(AMPLE)
    after.close(AMPLE, state or {})
    return state


def wait_until_idle(checkpoint: Checkpoint) -> None:
    assert checkpoint._worker.wait(AMPLE)


def test_the_next_exporter_continues_the_state(path: Path) -> None:
    first = Checkpoint(path)
    assert first.resume(AMPLE) is None
    assert first.state().up
    first.write({"total": 1}, AMPLE)
    assert held(path) == 1
    first.close(AMPLE, {"total": 2})
    second = Checkpoint(path)
    assert second.resume(AMPLE) == {"total": 2}
    state = second.state()
    assert (state.name, state.up, state.failures, state.overruns, state.errors) == (
        "state_file",
        True,
        0,
        0,
        {},
    )
    assert state.last_success_seconds is not None
    second.close(AMPLE, {"total": 3})


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (encode({"total": 1})[:-1], "torn"),
        (b"of someone else", "foreign"),
        (b'{"format":"gputally ledger","version":2,"state":{}}', "version"),
    ],
)
def test_a_rejected_file_is_counted_and_a_new_ledger_begins(
    path: Path, document: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(document)
    checkpoint = Checkpoint(path)
    assert checkpoint.resume(AMPLE) is None
    assert not checkpoint.state().up
    assert "ledger.rejected" in caplog.text
    checkpoint.write({"total": 1}, AMPLE)
    state = checkpoint.state()
    assert (state.up, state.errors) == (True, {("state_file", reason): 1})
    checkpoint.close(AMPLE, {"total": 1})


def test_a_missing_directory_has_mkdir_as_its_fix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "not there"
    checkpoint = Checkpoint(folder / "ledger")
    assert checkpoint.resume(AMPLE) is None
    state = checkpoint.state()
    assert (state.up, state.failures, state.fix) == (False, 1, f"mkdir -p {folder}")
    assert f"mkdir -p {folder}" in caplog.text
    folder.mkdir()
    checkpoint.write({"total": 1}, AMPLE)
    assert checkpoint.state().up
    checkpoint.close(AMPLE, {"total": 1})


def test_a_readable_file_that_cannot_be_written_is_not_resumed(disk: Disk) -> None:
    path = disk.directory / "ledger"
    path.write_bytes(encode({"total": 1, "much": "x" * 5000}))
    path.with_name("ledger.lock").touch()
    disk.fill()
    checkpoint = Checkpoint(path)
    assert checkpoint.resume(AMPLE) is None
    assert "No space left" in checkpoint.state().reason
    # The ledger begin anew, so that the old ones must not come back.
    assert not path.exists()
    checkpoint.close(AMPLE, {"total": 0})


def test_nothing_is_resumed_from_a_read_only_disk(disk: Disk) -> None:
    (disk.directory / "ledger").write_bytes(encode({"total": 1}))
    disk.make_read_only()
    checkpoint = Checkpoint(disk.directory / "ledger")
    assert checkpoint.resume(AMPLE) is None
    assert "Read-only" in checkpoint.state().reason
    disk.make_writable()
    checkpoint.write({"total": 0}, AMPLE)
    assert checkpoint.state().up
    assert held(disk.directory / "ledger") == 0
    checkpoint.close(AMPLE, {"total": 0})


def test_a_full_disk_disables_the_file_until_there_is_space(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    path = disk.directory / "ledger"
    checkpoint = Checkpoint(path)
    checkpoint.resume(AMPLE)
    checkpoint.write({"total": 1}, AMPLE)
    disk.fill()
    much = {"total": 2, "much": "x" * 9000}
    for _ in range(3):
        checkpoint.write(much, AMPLE)
    state = checkpoint.state()
    assert (state.up, state.failures) == (False, 3)
    assert caplog.text.count("is down") == 1
    assert not path.exists()
    disk.make_room()
    checkpoint.write(much, AMPLE)
    assert (checkpoint.state().up, held(path)) == (True, 2)
    checkpoint.close(AMPLE, much)


def test_a_state_that_cannot_be_encoded_disables_the_file(path: Path) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.write({"total": 1}, AMPLE)
    checkpoint.write({"total": object()}, AMPLE)
    assert "report this" in checkpoint.state().fix
    assert not path.exists()
    checkpoint.close(AMPLE, {"total": 1})


def test_a_removed_directory_is_reported_and_used_again_when_it_returns(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    checkpoint = Checkpoint(folder / "ledger")
    checkpoint.write({"total": 1}, AMPLE)
    folder.rename(tmp_path / "gone")
    checkpoint.write({"total": 2}, AMPLE)
    assert checkpoint.state().fix == f"mkdir -p {folder}"
    folder.mkdir()
    checkpoint.write({"total": 3}, AMPLE)
    assert (checkpoint.state().up, held(folder / "ledger")) == (True, 3)
    checkpoint.close(AMPLE, {"total": 3})


@pytest.mark.timeout(60)
def test_a_fifo_at_the_path_does_not_block_the_start(path: Path) -> None:
    os.mkfifo(path)
    checkpoint = Checkpoint(path)
    assert checkpoint.resume(AMPLE) is None
    checkpoint.write({"total": 1}, AMPLE)
    state = checkpoint.state()
    assert (state.up, state.overruns, state.errors) == (False, 0, {("state_file", "foreign"): 1})
    assert path.is_fifo()
    checkpoint.close(AMPLE, {"total": 1})


def test_the_file_of_another_exporter_is_not_used_until_that_one_exits(path: Path) -> None:
    other = StateFile(path)
    other.save({"total": 1000})
    checkpoint = Checkpoint(path)
    assert checkpoint.resume(AMPLE) is None
    checkpoint.write({"total": 1}, AMPLE)
    assert "in use by another exporter" in checkpoint.state().reason
    assert held(path) == 1000
    other.close()
    checkpoint.write({"total": 2}, AMPLE)
    assert (checkpoint.state().up, held(path)) == (True, 2)
    checkpoint.close(AMPLE, {"total": 2})


def test_a_hanging_write_is_waited_for_once_and_ends_with_the_newest_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.resume(AMPLE)
    checkpoint.write({"total": 1}, AMPLE)
    with hanging(monkeypatch) as hang:
        checkpoint.write({"total": 2}, 0.01)
        assert hang.reached.wait(AMPLE)
        checkpoint.write({"total": 3}, AMPLE)
        checkpoint.write({"total": 4}, AMPLE)
        state = checkpoint.state()
        assert (state.up, state.overruns, held(path)) == (False, 3, 1)
        assert "df " in state.fix
    wait_until_idle(checkpoint)
    assert held(path) == 4
    checkpoint.write({"total": 5}, AMPLE)
    assert (checkpoint.state().up, held(path)) == (True, 5)
    checkpoint.close(AMPLE, {"total": 5})


def test_a_start_on_a_hanging_disk_is_not_blocked_and_the_old_state_is_not_resumed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(encode({"total": 1000}))
    checkpoint = Checkpoint(path)
    with hanging(monkeypatch) as hang:
        assert checkpoint.resume(0.01) is None
        assert hang.reached.wait(AMPLE)
        checkpoint.write({"total": 1}, AMPLE)
        assert checkpoint.state().overruns == 2
    wait_until_idle(checkpoint)
    assert held(path) == 1
    checkpoint.write({"total": 2}, AMPLE)
    assert held(path) == 2
    checkpoint.close(AMPLE, {"total": 2})
    assert resumed(path) == {"total": 2}


def test_a_late_write_failure_disables_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.write({"total": 1}, AMPLE)
    hang, fsync = Hang(), os.fsync

    def fails_late(fd: int) -> None:
        hang.fsync(fd)
        monkeypatch.setattr(os, "fsync", fsync)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails_late)
    checkpoint.write({"total": 2}, 0.01)
    hang.over.set()
    wait_until_idle(checkpoint)
    assert not path.exists()
    checkpoint.write({"total": 3}, AMPLE)
    assert (checkpoint.state().failures, held(path)) == (1, 3)
    checkpoint.close(AMPLE, {"total": 3})


def test_the_exit_waits_for_a_running_write_and_then_writes_the_last_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(path)
    wait = checkpoint._worker.wait

    def disk_goes_on_once_waited_for(seconds: float) -> bool:
        hang.over.set()
        return wait(seconds)

    with hanging(monkeypatch) as hang:
        checkpoint.write({"total": 1}, 0.01)
        monkeypatch.setattr(checkpoint._worker, "wait", disk_goes_on_once_waited_for)
        checkpoint.close(AMPLE, {"total": 2})
    assert resumed(path) == {"total": 2}


def test_the_exit_does_not_wait_for_a_hanging_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(path)
    with hanging(monkeypatch):
        checkpoint.write({"total": 1}, 0.01)
        checkpoint.close(0.01, {"total": 2})
        assert checkpoint.state().overruns == 2
        # The file is still in this exporter's hands.
        assert resumed(path) is None
    wait_until_idle(checkpoint)
    assert held(path) == 2
