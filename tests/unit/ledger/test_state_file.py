"""The state file is whole or rejected, and belongs to one exporter."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputally.ledger.state_file import InUse, Rejected, StateFile, decode, encode
from gputally.model import Unavailable
from tests.support.disks import Disk, small_disk

STATE = {"energy": {"GPU-0": 123456789012345}, "owner": "größer \udcff"}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
states = st.dictionaries(st.text(), values, max_size=4)


def signed(payload: bytes, version: bytes = b"1") -> bytes:
    checksum = b"%08x" % crc32(payload)
    return b'{"format":"gputally ledger","version":%b,"crc32":"%b","state":%b}\n' % (
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


@given(states)
def test_encoding_and_decoding_are_inverse(state: dict[str, Any]) -> None:
    assert decode(encode(state)) == state


def test_the_document_is_compatible_with_earlier_releases() -> None:
    assert encode({"a": [1, None]}) == signed(b'{"a":[1,null]}')


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
    assert rejection(signed(payload)) == "foreign"


@given(states, st.data())
def test_every_change_of_one_byte_is_detected(state: dict[str, Any], data: st.DataObject) -> None:
    document = bytearray(encode(state))
    document[data.draw(st.integers(0, len(document) - 1))] ^= data.draw(st.integers(1, 255))
    rejection(bytes(document))


def test_every_change_of_one_byte_of_one_file_is_detected() -> None:
    document = encode({"a": 1})
    for place in range(len(document)):
        for change in range(1, 256):
            rejection(document[:place] + bytes([document[place] ^ change]) + document[place + 1 :])


@given(states, st.data())
def test_every_truncation_is_torn(state: dict[str, Any], data: st.DataObject) -> None:
    document = encode(state)
    assert rejection(document[: data.draw(st.integers(0, len(document) - 1))]) == "torn"


@given(states, st.binary(min_size=1))
def test_bytes_after_the_document_are_detected(state: dict[str, Any], more: bytes) -> None:
    assert rejection(encode(state) + more) == "torn"


@pytest.mark.parametrize("version", [b"0", b"2", b"10"])
def test_another_version_is_reported_as_such_with_any_content(version: bytes) -> None:
    assert rejection(signed(b"{}", version)) == "version"
    assert rejection(b'{"format":"gputally ledger","version":%b,"other":[]}' % version) == "version"


# The file


def test_a_saved_state_is_loaded_by_the_next_exporter(file: StateFile, path: Path) -> None:
    file.save({"old": 1})
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
        (encode(STATE) + bytes(8 << 20), "foreign"),
        (signed(b"{}", b"2"), "version"),
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
    file.save({"new": 1})
    assert (path.is_symlink(), decode(path.read_bytes())) == (False, {"new": 1})
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


@pytest.mark.timeout(20)
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


@pytest.mark.timeout(20)
def test_a_fifo_that_replaces_the_file_during_the_check_does_not_block(
    file: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(STATE)
    lstat = Path.lstat

    def swapped_afterwards(self: Path) -> os.stat_result:
        seen = lstat(self)
        path.unlink()
        os.mkfifo(path)
        return seen

    monkeypatch.setattr(Path, "lstat", swapped_afterwards)
    with pytest.raises(Rejected):
        file.load()


@pytest.mark.parametrize("plant", [lambda p, t: p.symlink_to(t), lambda p, t: os.link(t, p)])
def test_a_link_at_the_temporary_file_is_not_followed(file: StateFile, path: Path, plant: Any) -> None:
    target = path.with_name("target")
    target.write_bytes(b"precious")
    plant(path.with_name("ledger.tmp"), target)
    file.save(STATE)
    assert target.read_bytes() == b"precious"
    assert decode(path.read_bytes()) == STATE


def test_a_link_created_just_before_the_file_is_refused(
    file: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, unlink = path.with_name("target"), Path.unlink

    def replaced_at_once(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok)
        if not target.is_symlink():
            self.symlink_to(target)
            target.symlink_to("/nowhere")

    monkeypatch.setattr(Path, "unlink", replaced_at_once)
    with pytest.raises(Unavailable, match="File exists"):
        file.save(STATE)


def test_a_link_at_the_lock_is_refused(file: StateFile, path: Path) -> None:
    path.with_name("ledger.lock").symlink_to(path.with_name("target"))
    with pytest.raises(Unavailable, match="symbolic links"):
        file.save(STATE)
    assert names(path.parent) == {"ledger.lock"}


# Disks that fail


def test_a_full_disk_is_reported_and_leaves_no_temporary_file(disk: Disk) -> None:
    file = StateFile(disk.directory / "ledger")
    file.save(STATE)
    disk.fill()
    with pytest.raises(Unavailable, match=r"--state-file .*: No space left") as caught:
        file.save(STATE | {"much": "x" * 8192})
    assert caught.value.fix.startswith("free space: df -h ")
    assert names(disk.directory) == {"ledger", "ledger.lock", "filler"}
    disk.make_room()
    file.save({"new": 1})
    assert file.load() == {"new": 1}
    file.close()


def test_a_disk_that_became_read_only_is_reported(disk: Disk) -> None:
    file = StateFile(disk.directory / "ledger")
    file.save(STATE)
    disk.make_read_only()
    with pytest.raises(Unavailable, match="Read-only file system") as caught:
        file.save({"new": 1})
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
            file.save({"new": 1})
    assert file.load() == STATE
    assert names(path.parent) == {"ledger", "ledger.lock"}


def test_file_and_directory_are_synced_in_this_order(
    file: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.load()
    seen: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: seen.append((str(Path(f"/proc/self/fd/{fd}").readlink()), path.exists()))
    )
    file.save(STATE)
    assert seen == [(f"{path}.tmp", False), (str(path.parent), True)]


# One exporter only


def test_a_file_belongs_to_one_exporter(file: StateFile, path: Path) -> None:
    file.save(STATE)
    other = StateFile(path)
    with pytest.raises(InUse, match="another exporter"):
        other.load()
    with pytest.raises(InUse):
        other.save({"new": 1})
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
from itertools import count
from pathlib import Path
from gputally.ledger.state_file import StateFile
file = StateFile(Path(sys.argv[1]))
begin = (file.load() or {"number": 0})["number"]
for number in count(begin + 1):
    file.save({"number": number, "ballast": "x" * (number * 997 % 50000)})
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
        state = decode(path.read_bytes())
        assert state["number"] >= int(said[-1])
    assert names(path.parent) <= {"ledger", "ledger.lock", "ledger.tmp"}
