"""The guarded state file: never resumed from when it may be behind what was published."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import Saved, StateFile, encode
from gputally.sampling import checkpoint as checkpoints
from gputally.sampling.checkpoint import STOPPED_US, Checkpoint
from tests.support.disks import Disk, small_disk
from tests.support.ledger_states import BOOT, held, joules_in
from tests.support.ledger_states import state as ledger_state

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


def new(path: Path) -> Checkpoint:
    return Checkpoint(path, boot_id=BOOT, valid_seconds=60)


def document(joules: int, *, owners: int = 1) -> bytes:
    """As an exporter that was stopped just now left it."""
    return encode(Saved(ledger_state(joules, owners=owners), time.time(), since_boot_us() + STOPPED_US))


def resumed(path: Path) -> int | None:
    """What the next exporter continues from, after the one before it was killed."""
    after = new(path)
    found = after.resume(AMPLE)
    after.close(AMPLE)
    return joules_in(Saved(found, 0, 0)) if found else None


def wait_until_idle(checkpoint: Checkpoint) -> None:
    assert checkpoint._worker.wait(AMPLE)


def test_the_next_exporter_continues_the_state(path: Path) -> None:
    first = new(path)
    assert first.resume(AMPLE) is None
    assert first.state().up
    first.write(ledger_state(1), AMPLE)
    assert held(path) == 1
    assert first.write(ledger_state(2), AMPLE)
    first.close(AMPLE)
    second = new(path)
    assert second.resume(AMPLE) == ledger_state(2)
    state = second.state()
    assert (state.name, state.up, state.failures, state.overruns, state.errors) == (
        "state_file",
        True,
        0,
        0,
        {},
    )
    assert state.last_success_seconds is not None
    second.close(AMPLE)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (document(1)[:-1], "torn"),
        (b"of someone else", "foreign"),
        (b'{"format":"gputally ledger","version":3,"state":{}}', "version"),
    ],
)
def test_a_rejected_file_is_counted_and_a_new_ledger_begins(
    path: Path, document: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(document)
    checkpoint = new(path)
    assert checkpoint.resume(AMPLE) is None
    assert not checkpoint.state().up
    assert "ledger.rejected" in caplog.text
    checkpoint.write(ledger_state(1), AMPLE)
    state = checkpoint.state()
    assert (state.up, state.errors) == (True, {("state_file", reason): 1})
    checkpoint.close(AMPLE)


def test_a_missing_directory_has_mkdir_as_its_fix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "not there"
    checkpoint = new(folder / "ledger")
    assert checkpoint.resume(AMPLE) is None
    state = checkpoint.state()
    assert (state.up, state.failures, state.fix) == (False, 1, f"mkdir -p {folder}")
    assert f"mkdir -p {folder}" in caplog.text
    folder.mkdir()
    checkpoint.write(ledger_state(1), AMPLE)
    assert checkpoint.state().up
    checkpoint.close(AMPLE)


def test_a_readable_file_that_cannot_be_written_is_not_resumed(disk: Disk) -> None:
    path = disk.directory / "ledger"
    path.write_bytes(document(1, owners=40))
    path.with_name("ledger.lock").touch()
    disk.fill()
    checkpoint = new(path)
    assert checkpoint.resume(AMPLE) is None
    assert "No space left" in checkpoint.state().reason
    # The ledger begin anew, so that the old ones must not come back.
    assert not path.exists()
    checkpoint.close(AMPLE)


def test_nothing_is_resumed_from_a_read_only_disk(disk: Disk) -> None:
    (disk.directory / "ledger").write_bytes(document(1))
    disk.make_read_only()
    checkpoint = new(disk.directory / "ledger")
    assert checkpoint.resume(AMPLE) is None
    assert "Read-only" in checkpoint.state().reason
    disk.make_writable()
    checkpoint.write(ledger_state(0), AMPLE)
    assert checkpoint.state().up
    assert held(disk.directory / "ledger") == 0
    checkpoint.close(AMPLE)


def test_a_full_disk_disables_the_file_until_there_is_space(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    path = disk.directory / "ledger"
    checkpoint = new(path)
    checkpoint.resume(AMPLE)
    checkpoint.write(ledger_state(1), AMPLE)
    disk.fill()
    much = ledger_state(2, owners=40)
    for _ in range(3):
        checkpoint.write(much, AMPLE)
    state = checkpoint.state()
    assert (state.up, state.failures) == (False, 3)
    assert caplog.text.count("is down") == 1
    assert not path.exists()
    disk.make_room()
    checkpoint.write(much, AMPLE)
    assert (checkpoint.state().up, held(path)) == (True, 2)
    checkpoint.close(AMPLE)


def test_a_state_that_cannot_be_encoded_disables_the_file(path: Path) -> None:
    checkpoint = new(path)
    checkpoint.write(ledger_state(1), AMPLE)
    checkpoint.write({"total": object()}, AMPLE)
    assert "report this" in checkpoint.state().fix
    assert not path.exists()
    checkpoint.close(AMPLE)


def test_a_removed_directory_is_reported_and_used_again_when_it_returns(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    checkpoint = new(folder / "ledger")
    checkpoint.write(ledger_state(1), AMPLE)
    folder.rename(tmp_path / "gone")
    checkpoint.write(ledger_state(2), AMPLE)
    assert checkpoint.state().fix == f"mkdir -p {folder}"
    folder.mkdir()
    checkpoint.write(ledger_state(3), AMPLE)
    assert (checkpoint.state().up, held(folder / "ledger")) == (True, 3)
    checkpoint.close(AMPLE)


def test_a_fifo_at_the_path_does_not_block_the_start(path: Path) -> None:
    os.mkfifo(path)
    checkpoint = new(path)
    assert checkpoint.resume(AMPLE) is None
    checkpoint.write(ledger_state(1), AMPLE)
    state = checkpoint.state()
    assert (state.up, state.overruns, state.errors) == (False, 0, {("state_file", "foreign"): 1})
    assert path.is_fifo()
    checkpoint.close(AMPLE)


def test_the_file_of_another_exporter_is_not_used_until_that_one_exits(path: Path) -> None:
    other = StateFile(path)
    other.save(Saved(ledger_state(1000), time.time(), since_boot_us() + STOPPED_US))
    checkpoint = new(path)
    assert checkpoint.resume(AMPLE) is None
    checkpoint.write(ledger_state(1), AMPLE)
    assert "in use by another exporter" in checkpoint.state().reason
    assert held(path) == 1000
    other.close()
    checkpoint.write(ledger_state(2), AMPLE)
    assert (checkpoint.state().up, held(path)) == (True, 2)
    checkpoint.close(AMPLE)


def test_a_hanging_write_is_waited_for_once_and_ends_with_the_newest_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = new(path)
    checkpoint.resume(AMPLE)
    checkpoint.write(ledger_state(1), AMPLE)
    with hanging(monkeypatch) as hang:
        checkpoint.write(ledger_state(2), 0.01)
        assert hang.reached.wait(AMPLE)
        checkpoint.write(ledger_state(3), AMPLE)
        checkpoint.write(ledger_state(4), AMPLE)
        state = checkpoint.state()
        assert (state.up, state.overruns, held(path)) == (False, 3, 1)
        assert "df " in state.fix
    wait_until_idle(checkpoint)
    assert held(path) == 4
    checkpoint.write(ledger_state(5), AMPLE)
    assert (checkpoint.state().up, held(path)) == (True, 5)
    checkpoint.close(AMPLE)


def test_a_start_on_a_hanging_disk_is_not_blocked_and_the_old_state_is_not_resumed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(document(1000))
    checkpoint = new(path)
    with hanging(monkeypatch) as hang:
        assert checkpoint.resume(0.01) is None
        assert hang.reached.wait(AMPLE)
        checkpoint.write(ledger_state(1), AMPLE)
        assert checkpoint.state().overruns == 2
    wait_until_idle(checkpoint)
    assert held(path) == 1
    checkpoint.write(ledger_state(2), AMPLE)
    assert held(path) == 2
    checkpoint.close(AMPLE)
    assert resumed(path) == 2


def test_a_late_write_failure_disables_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = new(path)
    checkpoint.write(ledger_state(1), AMPLE)
    hang, fsync = Hang(), os.fsync

    def fails_late(fd: int) -> None:
        hang.fsync(fd)
        monkeypatch.setattr(os, "fsync", fsync)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails_late)
    checkpoint.write(ledger_state(2), 0.01)
    hang.over.set()
    wait_until_idle(checkpoint)
    assert not path.exists()
    checkpoint.write(ledger_state(3), AMPLE)
    assert (checkpoint.state().failures, held(path)) == (1, 3)
    checkpoint.close(AMPLE)


def test_the_exit_waits_for_a_running_write_and_then_writes_the_last_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = new(path)
    wait = checkpoint._worker.wait

    def disk_goes_on_once_waited_for(seconds: float) -> bool:
        hang.over.set()
        return wait(seconds)

    with hanging(monkeypatch) as hang:
        checkpoint.write(ledger_state(1), 0.01)
        checkpoint.write(ledger_state(2), 0.01)
        monkeypatch.setattr(checkpoint._worker, "wait", disk_goes_on_once_waited_for)
        checkpoint.close(AMPLE)
    assert resumed(path) == 2


def test_the_exit_does_not_wait_for_a_hanging_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = new(path)
    with hanging(monkeypatch):
        checkpoint.write(ledger_state(1), 0.01)
        checkpoint.close(0.01)
        assert checkpoint.state().overruns == 2
        # The file is still in this exporter's hands.
        assert resumed(path) is None
    wait_until_idle(checkpoint)
    assert held(path) == 1


# No state is published that a later exporter could fall behind


class Boot:
    """The clock of the boot, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_us = 0
        monkeypatch.setattr(checkpoints, "since_boot_us", lambda: since_boot_us() + self.ahead_us)

    def forward(self, seconds: float) -> None:
        self.ahead_us += round(seconds * 1_000_000)


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    return Boot(monkeypatch)


HOUR = 3600


def test_what_cannot_be_saved_is_published_once_the_saved_state_has_expired(disk: Disk, boot: Boot) -> None:
    path = disk.directory / "ledger"
    checkpoint = new(path)
    checkpoint.resume(AMPLE)
    assert checkpoint.write(ledger_state(1), AMPLE)
    disk.make_read_only()
    for joules in (2, 3):
        assert not checkpoint.write(ledger_state(joules), AMPLE), "an exporter that starts now resumes 1 J"
        boot.forward(25)
    boot.forward(11)
    assert checkpoint.write(ledger_state(4), AMPLE)
    disk.make_writable()
    checkpoint._file.close()  # it is killed
    after = new(path)
    assert after.resume(AMPLE) is None
    assert "has expired" in after.state().reason
    assert after.state().errors == {("state_file", "stale"): 1}
    assert path.with_name("ledger.rejected").exists()
    after.close(AMPLE)


def test_a_file_that_is_removed_instead_of_saved_holds_back_nothing(disk: Disk) -> None:
    checkpoint = new(disk.directory / "ledger")
    checkpoint.write(ledger_state(1), AMPLE)
    disk.fill()
    assert checkpoint.write(ledger_state(2, owners=40), AMPLE)
    assert checkpoint.write(ledger_state(3, owners=40), AMPLE)
    checkpoint.close(AMPLE)


def test_a_hanging_write_holds_back_what_follows_until_it_has_expired(
    path: Path, monkeypatch: pytest.MonkeyPatch, boot: Boot
) -> None:
    checkpoint = new(path)
    assert checkpoint.write(ledger_state(1), AMPLE)
    with hanging(monkeypatch) as hang:
        assert not checkpoint.write(ledger_state(2), 0.01)
        assert hang.reached.wait(AMPLE)
        assert not checkpoint.write(ledger_state(3), AMPLE)
        boot.forward(61)
        assert checkpoint.write(ledger_state(4), AMPLE)
    wait_until_idle(checkpoint)
    assert held(path) == 4, "not 3, which is less than was published"
    checkpoint.close(AMPLE)


def test_after_a_stop_the_state_is_valid_for_hours(path: Path, boot: Boot) -> None:
    first = new(path)
    first.write(ledger_state(1), AMPLE)
    first.close(AMPLE)
    assert not first.write(ledger_state(2), AMPLE), "nothing is published after it"
    boot.forward(20 * HOUR)
    assert resumed(path) == 1


def test_after_a_kill_the_state_is_valid_for_a_minute(path: Path, boot: Boot) -> None:
    for seconds, joules in ((55, 1), (65, None)):
        killed = new(path)
        killed.write(ledger_state(1), AMPLE)
        killed._file.close()
        boot.forward(seconds)
        assert resumed(path) == joules


def test_a_state_that_was_resumed_is_not_that_of_a_stopped_exporter_again(path: Path, boot: Boot) -> None:
    path.write_bytes(document(1))
    killed = new(path)
    assert killed.resume(AMPLE)
    killed._file.close()
    boot.forward(HOUR)
    assert resumed(path) is None


def test_while_an_old_state_can_neither_be_replaced_nor_removed_nothing_is_published(
    disk: Disk, boot: Boot
) -> None:
    path = disk.directory / "ledger"
    path.write_bytes(document(1000))
    disk.make_read_only()
    checkpoint = new(path)
    assert checkpoint.resume(AMPLE) is None
    assert not checkpoint.write(ledger_state(1), AMPLE)
    boot.forward(23 * HOUR)
    assert not checkpoint.write(ledger_state(2), AMPLE)
    boot.forward(HOUR + 1)
    assert checkpoint.write(ledger_state(3), AMPLE), "it has expired"
    checkpoint.close(AMPLE)


def test_without_an_old_state_a_directory_that_is_read_only_holds_back_nothing(disk: Disk) -> None:
    disk.make_read_only()
    checkpoint = new(disk.directory / "ledger")
    assert checkpoint.resume(AMPLE) is None
    assert checkpoint.write(ledger_state(1), AMPLE)
    checkpoint.close(AMPLE)


def test_two_exporters_with_one_file_do_not_publish_the_same_energy(path: Path, boot: Boot) -> None:
    first, second = new(path), new(path)
    assert first.write(ledger_state(1000), AMPLE)
    second.resume(AMPLE)
    for _ in range(3):
        assert not second.write(ledger_state(1), AMPLE)
        boot.forward(20 * HOUR)
    first.close(AMPLE)
    assert second.write(ledger_state(2), AMPLE)
    assert held(path) == 2
    second.close(AMPLE)


def test_a_copy_that_was_restored_is_not_resumed(path: Path) -> None:
    two_minutes_ago = time.time() - 120
    path.write_bytes(encode(Saved(ledger_state(1), two_minutes_ago, since_boot_us() + STOPPED_US)))
    os.utime(path, (two_minutes_ago, two_minutes_ago))  # as cp -p and tar do
    checkpoint = new(path)
    assert checkpoint.resume(AMPLE) is None
    assert "was changed or copied after it was saved" in checkpoint.state().reason
    checkpoint.close(AMPLE)


@pytest.mark.parametrize("days", [-400, 400])
def test_a_jump_of_the_wall_clock_changes_nothing(
    path: Path, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = new(path)
    first.write(ledger_state(1), AMPLE)
    first.close(AMPLE)
    jumped = time.time() + days * 24 * HOUR
    monkeypatch.setattr(time, "time", lambda: jumped)
    second = new(path)
    assert second.resume(AMPLE) == ledger_state(1)
    second._file.close()


def test_another_boot_or_one_that_is_not_known_is_not_continued(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for boot_id, which in (("another", "another boot"), ("", "a boot that cannot be identified")):
        path.write_bytes(document(1))
        checkpoint = Checkpoint(path, boot_id=boot_id, valid_seconds=60)
        assert checkpoint.resume(AMPLE) is None
        assert f"--state-file {path} is of {which}" in caplog.text
        assert checkpoint.write(ledger_state(2), AMPLE)
        checkpoint.close(AMPLE)
