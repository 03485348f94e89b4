"""Child processes that start and end together."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import ROOT, Failed
from tools.servers.children import Child, Children
from tools.servers.waiting import wait_until

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


def child(directory: Path, name: str, script: str) -> Child:
    return Child(name, ["sh", "-c", script], directory, directory / f"{name}.log")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_of(started: Child) -> int:
    assert started.process is not None
    return started.process.pid


def test_all_children_end_with_the_block_even_one_that_ignores_the_signal(tmp_path: Path) -> None:
    with Children(seconds_to_stop=1) as children:
        started = [
            children.start(child(tmp_path, "willing", "exec sleep 98765")),
            children.start(child(tmp_path, "stubborn", STUBBORN)),
        ]
        wait_until(lambda: "ready" in (tmp_path / "stubborn.log").read_text())
        children.check()
    assert not any(alive(pid_of(each)) for each in started)


def test_one_child_ends_and_may_be_started_again(tmp_path: Path) -> None:
    with Children() as children:
        one = children.start(child(tmp_path, "one", "exec sleep 98765"))
        other = children.start(child(tmp_path, "other", "exec sleep 98765"))
        before = pid_of(one)
        children.end(one)
        assert not alive(before)
        children.check()
        assert alive(pid_of(children.start(one)))
        assert alive(pid_of(other))


def test_all_children_end_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Children() as children:  # noqa: PT012
        started = children.start(child(tmp_path, "willing", "exec sleep 98765"))
        raise KeyboardInterrupt
    assert not alive(pid_of(started))


@pytest.mark.parametrize(
    ("script", "how"), [("seq 50; exit 3", "exit code 3"), ("seq 50; kill -KILL $$", "SIGKILL")]
)
def test_a_child_that_exits_is_named_with_its_last_lines(tmp_path: Path, script: str, how: str) -> None:
    with Children() as children:
        children.start(child(tmp_path, "healthy", "exec sleep 98765"))
        sick = children.start(child(tmp_path, "sick", script))
        assert sick.process is not None
        sick.process.wait()
        with pytest.raises(Failed) as failure:
            children.check()
    assert f"sick ended ({how})" in str(failure.value)
    assert "\n    50" in str(failure.value)
    assert "\n    20\n" not in str(failure.value)


def test_a_child_that_ended_can_be_started_again(tmp_path: Path) -> None:
    with Children() as children:
        short = children.start(child(tmp_path, "short", "test -e again && exec sleep 98765; touch again"))
        first = pid_of(short)
        assert short.process is not None
        short.process.wait()
        children.dismiss(short)
        children.check()
        children.start(short)
        assert pid_of(short) != first
        wait_until(lambda: b"98765" in Path(f"/proc/{pid_of(short)}/cmdline").read_bytes())
        children.check()
    assert not alive(pid_of(short))


def test_all_children_end_if_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tools.servers.children import Child, Children\n"
        "directory = Path(sys.argv[1])\n"
        "started = Children().start(Child('x', ['sleep', '98765'], directory, directory / 'log'))\n"
        "print(started.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not alive(pid))
