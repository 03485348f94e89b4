"""The state file is whole or rejected, and belongs to one exporter."""

import os
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputally.ledger import state_file
from gputally.ledger.state_file import InUse, Rejected, Saved, StateFile, decode, encode
from gputally.model import Unavailable
from tests.support.disks import Disk, small_disk
from tests.support.ledger_states import joules_in, state


def saved(joules: int, *, owners: int = 1) -> Saved:
    return Saved(state(joules, owners=owners), time.time(), 10**15)


@pytest.fixture(autouse=True)
def _saved_when_the_tests_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_COPY_SECONDS", 3600)


STATE = saved(1)
NEW = saved(2)
documents = st.sampled_from([saved(joules, owners=owners) for joules in (1, 10**6) for owners in range(4)])


def signed(payload: bytes, version: bytes = b"2") -> bytes:
    checksum = b"%08x" % crc32(payload)
    return b'{"format":"gputally ledger","version":%b,"crc32":"%b","content":%b}\n' % (
        version,
        checksum,
        payload,
    )


def rejection(document: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        decode(document)
    return caught.value.reason


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def file(path: Path) -> Iterator[StateFile]:
    file = StateFile(path)
    yield file
    file.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path) as disk:
        yield disk


# The document


@given(documents)
def test_encoding_and_decoding_are_inverse(saved: Saved) -> None:
    assert decode(encode(saved)) == saved


def test_a_document_of_an_earlier_release_cannot_expire_and_is_not_used() -> None:
    assert rejection(b'{"format":"gputally ledger","version":1,"crc32":"00000000","state":{}}\n') == "version"


@given(st.binary() | st.binary().map(lambda tail: b'{"format":"gputally ledger","version":' + tail))
@example(b"")
@example(b'{"format":"gputally ledger","version":' + b"9" * 5000 + b",")
def test_any_bytes_are_rejected_without_another_error(document: bytes) -> None:
    assert rejection(document) in ("torn", "foreign", "version")


@given(st.binary().filter(lambda payload: b"{" not in payload))
@example(b"[" * 100_000)
@example(b"9" * 5000)
@example(b"[]")
def test_a_valid_checksum_alone_is_not_a_state(payload: bytes) -> None:
    assert rejection(signed(payload)) == "invalid"


@given(documents, st.data())
def test_every_change_of_one_byte_is_detected(saved: Saved, data: st.DataObject) -> None:
    document = bytearray(encode(saved))
    document[data.draw(st.integers(0, len(document) - 1))] ^= data.draw(st.integers(1, 255))
    rejection(bytes(document))


def test_every_change_of_one_byte_of_one_file_is_detected() -> None:
    document = encode(STATE)
    for place in range(len(document)):
        for change in (1, 2, 16, 32, 128, 255):
            rejection(document[:place] + bytes([document[place] ^ change]) + document[place + 1 :])


@given(documents, st.data())
def test_every_truncation_is_torn(saved: Saved, data: st.DataObject) -> None:
    document = encode(saved)
    assert rejection(document[: data.draw(st.integers(0, len(document) - 1))]) == "torn"


@given(documents, st.binary(min_size=1))
def test_bytes_after_the_document_are_detected(saved: Saved, more: bytes) -> None:
    assert rejection(encode(saved) + more) == "torn"


@pytest.mark.parametrize("version", [b"0", b"1", b"3", b"10"])
def test_another_version_is_reported_as_such_with_any_content(version: bytes) -> None:
    assert rejection(signed(b"{}", version)) == "version"
    assert rejection(b'{"format":"gputally ledger","version":%b,"other":[]}' % version) == "version"


# The file


def test_a_saved_state_is_loaded_by_the_next_exporter(file: StateFile, path: Path) -> None:
    file.save(NEW)
    file.save(STATE)
    file.close()
    assert StateFile(path).load() == STATE
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(path.parent) == {"ledger", "ledger.lock"}


def test_without_a_file_there_is_no_state(file: StateFile) -> None:
    assert file.load() is None


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "torn"),
        (encode(STATE)[:-20], "torn"),
        (b"[Unit]\nDescription=a file of someone else\n", "foreign"),
        (encode(STATE) + bytes(16 << 20), "foreign"),
        (signed(b"{}", b"3"), "version"),
    ],
)
def test_an_unusable_file_is_renamed(file: StateFile, path: Path, document: bytes, reason: str) -> None:
    aside = path.with_name("ledger.rejected")
    aside.write_bytes(b"an older one")
    path.write_bytes(document)
    with pytest.raises(Rejected, match=f"renamed to {aside}") as caught:
        file.load()
    assert caught.value.reason == reason
    assert aside.read_bytes() == document
    assert file.load() is None


def test_a_symbolic_link_is_renamed_and_its_target_is_unchanged(file: StateFile, path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(encode(STATE))
    path.symlink_to(target)
    with pytest.raises(Rejected, match=r"ledger\.rejected") as caught:
        file.load()
    assert caught.value.reason == "foreign"
    file.save(NEW)
    assert (path.is_symlink(), decode(path.read_bytes())) == (False, NEW)
    assert decode(target.read_bytes()) == STATE


def test_a_save_replaces_a_symbolic_link_and_leaves_its_target_unchanged(file: StateFile, path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"precious")
    path.symlink_to(target)
    file.save(STATE)
    assert (path.is_symlink(), decode(path.read_bytes())) == (False, STATE)
    assert target.read_bytes() == b"precious"


def folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize("make", [folder_with_a_file, fifo, unix_socket])
def test_other_file_types_are_neither_read_nor_replaced_nor_removed(
    file: StateFile, path: Path, make: Any
) -> None:
    make(path)
    before = path.lstat()
    with pytest.raises(Rejected, match="is not a regular file") as caught:
        file.load()
    assert caught.value.reason == "foreign"
    with pytest.raises(Unavailable, match="is not a regular file"):
        file.save(STATE)
    file.forget()
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("plant", [lambda p, t: p.symlink_to(t), lambda p, t: os.link(t, p)])
def test_a_link_at_the_temporary_file_is_not_followed(file: StateFile, path: Path, plant: Any) -> None:
    target = path.with_name("target")
    target.write_bytes(b"precious")
    plant(path.with_name("ledger.tmp"), target)
    file.save(STATE)
    assert target.read_bytes() == b"precious"
    assert decode(path.read_bytes()) == STATE


def test_a_link_at_the_lock_is_refused(file: StateFile, path: Path) -> None:
    path.with_name("ledger.lock").symlink_to(path.with_name("target"))
    with pytest.raises(Unavailable, match="symbolic links"):
        file.save(STATE)
    assert names(path.parent) == {"ledger.lock"}


def test_what_is_too_large_to_be_read_is_not_written(
    file: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(STATE)
    monkeypatch.setattr(state_file, "MOST_BYTES", len(encode(STATE)))
    with pytest.raises(Unavailable, match="the ledger takes"):
        file.save(saved(1, owners=9))
    assert file.load() == STATE


def test_a_state_of_many_small_objects_is_refused_before_it_takes_memory() -> None:
    bomb = signed(b'{"state":[' + b"{}," * (1 << 20) + b"{}]}")
    tracemalloc.start()
    assert rejection(bomb) == "invalid"
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * len(bomb)


# Disks that fail


def test_a_full_disk_is_reported_and_leaves_no_temporary_file(disk: Disk) -> None:
    file = StateFile(disk.directory / "ledger")
    file.save(STATE)
    disk.fill()
    with pytest.raises(Unavailable, match=r"--state-file .*: No space left") as caught:
        file.save(saved(1, owners=40))
    assert caught.value.fix.startswith("free space: df -h ")
    assert names(disk.directory) == {"ledger", "ledger.lock", "filler"}
    disk.make_room()
    file.save(NEW)
    assert file.load() == NEW
    file.close()


def test_a_disk_that_became_read_only_is_reported(disk: Disk) -> None:
    file = StateFile(disk.directory / "ledger")
    file.save(STATE)
    disk.make_read_only()
    with pytest.raises(Unavailable, match="Read-only file system") as caught:
        file.save(NEW)
    assert "writable" in caught.value.fix
    file.forget()
    assert file.load() == STATE
    with pytest.raises(Unavailable, match="Read-only file system"):
        StateFile(disk.directory / "other").load()
    file.close()


def test_a_file_that_cannot_be_renamed_is_rejected(disk: Disk) -> None:
    file = StateFile(disk.directory / "ledger")
    file.save(STATE)
    (disk.directory / "ledger").write_bytes(b"foreign")
    disk.make_read_only()
    with pytest.raises(Rejected, match="cannot be renamed: Read-only file system"):
        file.load()
    file.close()


def test_a_missing_directory_has_mkdir_as_its_fix(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    for use in (StateFile(folder / "ledger").load, lambda: StateFile(folder / "ledger").save(STATE)):
        with pytest.raises(Unavailable) as caught:
            use()
        assert caught.value.fix == f"mkdir -p {folder}"


def test_a_directory_that_was_removed_and_created_again_is_used_and_locked(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = StateFile(folder / "ledger")
    file.save(STATE)
    folder.rename(tmp_path / "gone")
    for path in (tmp_path / "gone").iterdir():
        path.unlink()
    with pytest.raises(Unavailable, match="No such file"):
        file.save(STATE)
    file.forget()
    folder.mkdir()
    file.save(STATE)
    with pytest.raises(InUse):
        StateFile(folder / "ledger").load()
    file.close()


def test_a_disk_failure_before_the_replacement_keeps_the_old_file(
    file: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(STATE)

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(Unavailable, match="Input/output error"):
            file.save(NEW)
    assert file.load() == STATE
    assert names(path.parent) == {"ledger", "ledger.lock"}


# One exporter only


def test_a_file_belongs_to_one_exporter(file: StateFile, path: Path) -> None:
    file.save(STATE)
    other = StateFile(path)
    with pytest.raises(InUse, match="another exporter"):
        other.load()
    with pytest.raises(InUse):
        other.save(NEW)
    other.forget()
    assert file.load() == STATE
    file.close()
    assert other.load() == STATE
    other.close()


def test_a_program_started_by_the_exporter_does_not_inherit_the_lock(file: StateFile, path: Path) -> None:
    file.save(STATE)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
        file.close()
        other = StateFile(path)
        assert other.load() == STATE
        other.close()


def test_a_removed_state_is_not_loaded(file: StateFile) -> None:
    file.save(STATE)
    file.forget()
    file.forget()
    assert file.load() is None


SAVES_FOR_EVER = """
import sys
import time
import tracemalloc
from itertools import count
from pathlib import Path
from gputally.ledger import state_file
from gputally.ledger.state_file import Saved, StateFile
from tests.support.ledger_states import joules_in, state
file = StateFile(Path(sys.argv[1]))
before = file.load()
for number in count(joules_in(before) + 1 if before else 1):
    file.save(Saved(state(number, owners=number * 7 % 50), time.time(), 10**15))
    print(number, flush=True)
"""


def test_a_killed_exporter_leaves_a_complete_file_no_older_than_reported(path: Path) -> None:
    for turn in range(12):
        with subprocess.Popen(
            [sys.executable, "-c", SAVES_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout
            said = [child.stdout.readline() for _ in range(turn % 4 + 1)]
            child.send_signal(signal.SIGKILL)
            said += child.stdout.readlines()
        assert joules_in(decode(path.read_bytes())) >= int(said[-1])
    assert names(path.parent) <= {"ledger", "ledger.lock", "ledger.tmp"}
