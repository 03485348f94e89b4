"""Long commands: shown as they go, explained when they fail, ended when we are."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tools import ROOT, Failed
from tools.dependencies import progress
from tools.dependencies.progress import Work
from tools.servers.waiting import wait_until


def test_a_command_returns_its_output_and_its_duration(tmp_path: Path) -> None:
    screen = io.StringIO()
    work = Work("tool 1", tmp_path / "log", screen)
    assert work.run("first", ["sh", "-c", "echo one; echo two >&2"]) == "one\ntwo\n"
    assert work.run("second", ["echo", "three"]) == "three\n"
    assert (tmp_path / "log").read_text() == "one\ntwo\nthree\n"
    assert screen.getvalue().startswith("tool 1: first: 0.")


def test_a_failure_shows_the_last_lines_and_the_path_of_the_others(tmp_path: Path) -> None:
    screen = io.StringIO()
    work = Work("tool 1", tmp_path / "log", screen)
    with pytest.raises(Failed) as failure:
        work.run("building", ["sh", "-c", "seq 100; exit 3"])
    text = str(failure.value)
    assert "tool 1: building failed (exit code 3)" in text
    assert "    100\n" in text
    assert "    50\n" not in text
    assert str(tmp_path / "log") in text
    assert screen.getvalue().startswith("tool 1: building: failed after 0.")


def test_without_a_terminal_a_line_is_printed_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.4)
    screen = io.StringIO()
    Work("tool 1", tmp_path / "log", screen).run("building", ["sleep", "1.2"])
    assert "tool 1: building (" in screen.getvalue()
    assert "\r" not in screen.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_updated_and_removed_at_the_end(tmp_path: Path) -> None:
    screen = Terminal()
    Work("tool 1", tmp_path / "log", screen).run("building", ["sleep", "0.8"])
    assert "\r\x1b[Ktool 1: building (" in screen.getvalue()
    assert screen.getvalue().splitlines()[-1].startswith("\x1b[Ktool 1: building: ")


def test_with_concurrent_work_on_a_terminal_lines_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.4)
    screen = Terminal()
    Work("tool 1", tmp_path / "log", screen, alone=False).run("building", ["sleep", "1.2"])
    assert "tool 1: building (" in screen.getvalue()
    assert "\r" not in screen.getvalue()


def test_a_stop_from_another_thread_ends_the_command_with_a_failure(tmp_path: Path) -> None:
    stop = threading.Event()
    work = Work("tool 1", tmp_path / "log", io.StringIO(), stop=stop)
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Failed, match="tool 1: stopped"):
        work.run("building", ["sh", "-c", "echo $$; exec sleep 98765"])
    assert not running(int((tmp_path / "log").read_text()))


def test_the_command_ends_if_its_parent_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    code = """
import sys
from pathlib import Path
from tools.dependencies.progress import Work
command = ["sh", "-c", f"echo $$ > {sys.argv[1]}/begun; exec sleep 98765"]
Work("tool 1", Path(sys.argv[1], "log")).run("building", command)
"""
    ours = subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT)
    command = int(fifo.read_text())
    assert running(command)
    ours.kill()
    ours.wait()
    wait_until(lambda: not running(command))


def test_ctrl_c_ends_the_command_and_its_children(tmp_path: Path) -> None:
    work = Work("tool 1", tmp_path / "log", io.StringIO())
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    # A shell starts what it puts in the background with Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(1, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            work.run("building", ["sh", "-c", "sleep 98765 & echo $!; wait"])
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until(lambda: not running(int((tmp_path / "log").read_text())))


def running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
