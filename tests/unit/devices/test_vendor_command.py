"""A tool that hangs, forks or prints without end does not block the reader and leaves no process."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.devices import vendor_command as command_module
from gputally.devices.vendor_command import Command, CommandFailed
from tests.unit.devices.tool_clock import ToolClock
from tools.servers.waiting import wait_until

Tool = Callable[[str], Command]


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    def write(script: str) -> Command:
        path = tmp_path / "tool"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Command(str(path), fix_when_it_hangs="wake the driver")

    return write


@pytest.fixture(autouse=True)
def killed_processes_may_take_long_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_END_SECONDS", 60.0)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolClock:
    return ToolClock(tmp_path / "clock", monkeypatch, command_module)


def children() -> set[int]:
    mine = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            mine.add(int(stat.parent.name))
    return mine


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> bool:
    return wait_until(lambda: not is_alive(pid), f"process {pid} ends")


def test_output_errors_and_exit_code_are_returned_in_the_c_locale(tool: Tool) -> None:
    finished = tool('echo "out $1 $LC_ALL"; echo err >&2; exit 7').run("argument", timeout_seconds=20)
    assert (finished.exit_code, finished.stdout, finished.stderr) == (7, "out argument C\n", "err\n")


def test_more_output_than_a_pipe_buffer_is_returned_completely(tool: Tool) -> None:
    finished = tool("head -c 1000000 /dev/zero | tr '\\0' x").run(timeout_seconds=20)
    assert finished.stdout == "x" * 1_000_000


def test_invalid_utf8_is_accepted(tool: Tool) -> None:
    assert tool("printf '\\377\\000\\n'").run(timeout_seconds=20).stdout == "�\0\n"


def test_a_missing_tool_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="no-such-tool was not found") as failure:
        Command(str(tmp_path / "no-such-tool"), fix_when_it_hangs="").run(timeout_seconds=20)
    assert failure.value.error == "not_found"
    assert "install" in failure.value.fix


def test_a_file_that_is_not_executable_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"\x7fELF but not really")
    path.chmod(0o755)
    with pytest.raises(CommandFailed, match="Exec format error") as failure:
        Command(str(path), fix_when_it_hangs="").run(timeout_seconds=20)
    assert failure.value.error == "not_started"


def test_a_tool_that_hangs_is_killed_with_its_children_and_reaped(
    tool: Tool, tmp_path: Path, clock: ToolClock
) -> None:
    pids = tmp_path / "pids"
    command = tool(f"sleep 600 & echo $$ $! > {pids}; {clock.passes(20)}; wait")
    with pytest.raises(CommandFailed, match=r"was still running after .* and was killed") as failure:
        command.run(timeout_seconds=20)
    assert (failure.value.error, failure.value.fix) == ("timeout", "wake the driver")
    parent, child = map(int, pids.read_text().split())
    # The first process of a container inherits the child: it may have one more.
    assert parent not in children(), "the tool is a zombie, or runs on"
    assert wait_until_gone(parent)
    assert wait_until_gone(child)


def test_a_grandchild_that_keeps_the_pipe_open_does_not_block(tool: Tool, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    finished = tool(f"sleep 600 & echo $! > {pid}; echo done").run(timeout_seconds=500)
    assert finished.stdout == "done\n"
    assert wait_until_gone(int(pid.read_text())), "what the tool left behind runs on"


def test_a_grandchild_in_another_process_group_does_not_block(
    tool: Tool, tmp_path: Path, clock: ToolClock
) -> None:
    pid = tmp_path / "pid"
    command = tool(
        f"setsid sh -c 'echo $$ > {pid}; {clock.passes(20)}; exec sleep 600' & echo started; sleep 600"
    )
    with pytest.raises(CommandFailed, match="killed"):
        command.run(timeout_seconds=20)
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_tool_that_closes_its_output_and_hangs_is_killed(tool: Tool, clock: ToolClock) -> None:
    before = children()
    with pytest.raises(CommandFailed) as failure:
        tool(f"exec >&- 2>&-; {clock.passes(20)}; exec sleep 600").run(timeout_seconds=20)
    assert failure.value.error == "timeout"
    assert children() == before


def test_a_tool_that_never_stops_printing_is_killed(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "MAX_OUTPUT_BYTES", 2**20)
    before = children()
    with pytest.raises(CommandFailed, match="printed more than 1 MiB") as failure:
        tool("exec yes").run(timeout_seconds=60)
    assert failure.value.error == "too_much_output"
    assert children() == before


def test_no_second_process_is_started_while_one_cannot_be_killed(
    tool: Tool, tmp_path: Path, clock: ToolClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    command = tool(f"echo $$ >> {starts}; {clock.passes(20)}; exec sleep 600")
    with monkeypatch.context() as patch:
        patch.setattr(command_module, "_END_SECONDS", 0.1)
        patch.setattr(os, "killpg", lambda *_: None)  # as if it hung inside the kernel
        with pytest.raises(CommandFailed):
            command.run(timeout_seconds=20)
    for _ in range(3):
        with pytest.raises(CommandFailed, match=r"hangs inside the driver and cannot be ended") as failure:
            command.run(timeout_seconds=20)
        assert failure.value.error == "stuck"
    (pid,) = map(int, starts.read_text().split())
    assert str(pid) in failure.value.reason

    os.kill(pid, signal.SIGKILL)
    assert wait_until_gone(pid)
    with pytest.raises(CommandFailed) as failure:
        command.run(timeout_seconds=20)
    assert failure.value.error == "timeout", "it is tried again once the old process is gone"
    assert len(starts.read_text().split()) == 2
    assert pid not in children(), "the old process was not reaped"
