"""CPU time and resident memory of a process and its children.

From /proc (https://man7.org/linux/man-pages/man5/proc.5.html) and, because /proc counts in hundredths of a
second, from each process's CPU clock (https://man7.org/linux/man-pages/man3/clock_getcpuclockid.3.html).
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Used fields of /proc/<pid>/stat; times in seconds."""

    pid: int
    parent: int
    cpu_seconds: float
    reaped_cpu_seconds: float
    """CPU time of children that have ended and were waited for."""


def parse_stat(text: str) -> ProcessStat:
    """Fields of /proc/<pid>/stat. The command stands in parentheses and may hold blanks and parentheses."""
    pid, _, rest = text.partition(" (")
    fields = rest[rest.rindex(")") + 1 :].split()
    user, system, reaped_user, reaped_system = (int(field) for field in fields[11:15])
    return ProcessStat(
        pid=int(pid),
        parent=int(fields[1]),
        cpu_seconds=(user + system) / _TICKS_PER_SECOND,
        reaped_cpu_seconds=(reaped_user + reaped_system) / _TICKS_PER_SECOND,
    )


def parse_resident_bytes(text: str) -> int:
    """VmRSS of /proc/<pid>/status; a process without memory (a zombie) has none: 0."""
    for line in text.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def process_tree(root: int, stats: dict[int, ProcessStat]) -> list[ProcessStat]:
    """The process and all its descendants."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat)
    tree = [stats[root]]
    for stat in tree:
        tree += children.get(stat.pid, [])
    return tree


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, its children and their children that have ended."""
    return sum(_clock_seconds(stat) + stat.reaped_cpu_seconds for stat in process_tree(pid, _read_stats()))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    return sum(
        parse_resident_bytes(text)
        for stat in process_tree(pid, _read_stats())
        if (text := _read(stat.pid, "status"))
    )


def _clock_seconds(stat: ProcessStat) -> float:
    clock = (~stat.pid << 3) | 2  # what clock_getcpuclockid() makes of a pid on Linux
    try:
        return time.clock_gettime(clock)
    except OSError:  # it has just ended, or the kernel has no such clock
        return stat.cpu_seconds


def _read_stats() -> dict[int, ProcessStat]:
    texts = (_read(int(entry.name), "stat") for entry in _PROC.iterdir() if entry.name.isdigit())
    return {stat.pid: stat for stat in (parse_stat(text) for text in texts if text)}


def _read(pid: int, name: str) -> str:
    """Empty when the process has ended meanwhile."""
    try:
        return (_PROC / str(pid) / name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
