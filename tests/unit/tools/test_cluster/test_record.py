"""One cluster at a time, known by a lock that ends with its processes."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import Failed
from tools.servers.waiting import wait_until
from tools.test_cluster import record


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


def test_without_a_file_no_cluster_runs(file: Path) -> None:
    assert record.running(file) is None
    assert record.recorded(file) is None


def test_a_second_cluster_is_refused_with_the_directory_of_the_first(file: Path) -> None:
    handle = record.take(Path("/srv/first"), file)
    try:
        assert record.running(file) == Path("/srv/first")
        with pytest.raises(Failed, match=r"already running, in /srv/first: run `tools/cluster down`"):
            record.take(Path("/srv/second"), file)
    finally:
        os.close(handle)
    assert record.running(file) is None


def test_after_a_crash_the_directory_to_remove_is_known(file: Path) -> None:
    os.close(record.take(Path("/srv/first"), file))

    assert record.running(file) is None
    assert record.recorded(file) == Path("/srv/first")
    record.forget(file)
    assert record.recorded(file) is None


def test_a_longer_previous_path_leaves_nothing_in_the_file(file: Path) -> None:
    os.close(record.take(Path("/srv/a-rather-long-name"), file))
    os.close(record.take(Path("/srv/b"), file))

    assert json.loads(file.read_text()) == {"directory": "/srv/b"}


def test_a_file_removed_while_waiting_is_not_confused_with_the_new_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    removed: list[bool] = []

    def remove_first(handle: int, operation: int) -> None:
        real(handle, operation)
        if not removed:
            removed.append(True)
            file.unlink()

    monkeypatch.setattr("fcntl.flock", remove_first)
    handle = record.take(Path("/srv/first"), file)
    monkeypatch.undo()
    assert os.fstat(handle).st_ino == file.stat().st_ino
    assert record.running(file) == Path("/srv/first")
    os.close(handle)


def test_the_clusters_processes_are_found_by_their_lock_and_killed(file: Path, tmp_path: Path) -> None:
    wait = "import signal; signal.pause()"
    handle = record.take(tmp_path, file)
    node, stranger = (
        subprocess.Popen([sys.executable, "-c", wait, name], pass_fds=fds)
        for name, fds in ((record.NODE_MODULE, [handle]), ("somebody", []))
    )
    os.close(handle)
    try:
        assert record.holders(file) == [node.pid]

        # Only a parent's wait makes a killed child's lock end: reap it as `init` would.
        signal.signal(signal.SIGCHLD, lambda *_: node.poll())
        record.end(file)

        assert node.wait() == -signal.SIGKILL
        assert record.running(file) is None
        assert stranger.poll() is None
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for process in (node, stranger):
            process.kill()
            process.wait()


def test_a_process_that_waits_for_the_first_one_sees_it_end(file: Path, tmp_path: Path) -> None:
    handle = record.take(tmp_path, file)
    start = "import subprocess, sys; command = [sys.executable, '-c', 'import signal; signal.pause()'];"
    start += f" subprocess.run([*command, '{record.NODE_MODULE}'], pass_fds=[{handle}]); sys.exit(7)"
    with subprocess.Popen([sys.executable, "-c", start, record.NODE_MODULE], pass_fds=[handle]) as outside:
        os.close(handle)
        wait_until(lambda: len(record.holders(file)) >= 2, "both processes hold the record")
        signal.signal(signal.SIGCHLD, lambda *_: outside.poll())
        try:
            record.end(file)
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

        assert outside.wait(30) == 7


def test_a_cluster_that_is_starting_is_not_stopped(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_SECONDS_TO_END", 0.1)
    handle = record.take(Path("/srv/first"), file)
    try:
        with pytest.raises(Failed, match="being started in /srv/first"):
            record.end(file)
    finally:
        os.close(handle)
