"""What tools/bench reads of a process."""

import os
import subprocess
import sys

import pytest

from tools.benchmark.proc import (
    ProcessStat,
    cpu_seconds,
    parse_resident_bytes,
    parse_stat,
    process_tree,
    resident_bytes,
)
from tools.servers.waiting import wait_until

TICKS = os.sysconf("SC_CLK_TCK")
LINE = (
    "4242 ({name}) S 17 4242 4242 0 -1 4194304 1500 0 0 0 250 50 30 20 20 0 3 0 777 22000000 2700 "
    "18446744073709551615 1 1 0 0 0 0 0 16781312 134217730 0 0 0 17 1 0 0 0 0 0"
)


@pytest.mark.parametrize("name", ["python3", "tmux: server", "odd) S 9 (name", "()"])
def test_stat_is_parsed_with_any_command_name(name: str) -> None:
    stat = parse_stat(LINE.format(name=name))
    assert stat == ProcessStat(pid=4242, parent=17, cpu_seconds=300 / TICKS, reaped_cpu_seconds=50 / TICKS)


def test_resident_memory_is_in_bytes() -> None:
    assert (
        parse_resident_bytes("Name:\tx\nVmHWM:\t   9000 kB\nVmRSS:\t   1234 kB\nThreads:\t1\n") == 1234 * 1024
    )


def test_an_exited_process_has_no_memory() -> None:
    assert parse_resident_bytes("Name:\tx\nState:\tZ (zombie)\n") == 0


def test_a_tree_has_only_children_and_grandchildren() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 10, 13: 12, 20: 1}
    stats = {pid: ProcessStat(pid, parent, 0, 0) for pid, parent in parents.items()}
    assert {stat.pid for stat in process_tree(10, stats)} == {10, 11, 12, 13}


def test_cpu_time_and_memory_of_a_child_count() -> None:
    """A parent that only waits for a child that works."""
    work = "x = bytearray(30_000_000)\nprint('ready', flush=True)\nwhile True: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            assert resident_bytes(process.pid) > 30_000_000
            before = cpu_seconds(process.pid)
            wait_until(lambda: cpu_seconds(process.pid) >= before + 0.05, "CPU time rises")
        finally:
            os.killpg(process.pid, 9)


def test_cpu_time_equals_the_measurement_of_the_process() -> None:
    work = (
        "import sys, time\nwhile time.process_time() < 0.3: pass\n"
        "print(time.process_time(), flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        own = float(process.stdout.readline())
        assert cpu_seconds(process.pid) == pytest.approx(own, abs=0.1)
        process.kill()


def test_cpu_time_of_an_exited_child_counts() -> None:
    work = "import time\nwhile time.process_time() < 0.2: pass"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]);"
        "print('done', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert cpu_seconds(process.pid) >= 0.2
        process.kill()
