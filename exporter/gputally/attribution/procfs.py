"""Reads a process's identity and owner from /proc/<pid>/stat and /proc/<pid>/cgroup, see proc(5).

The kernel reuses pids: pid and start time together identify a process, so the start time is read before and
after everything else.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gputally.attribution import CgroupOwner
from gputally.attribution.cgroup import OUTERMOST, Trust, parse_cgroup, trust_of
from gputally.model import Unknown

_PF_EXITING = 0x4
_CHUNK = 1 << 16
_ENOUGH = 16
"""Pids to look for: not all of them can have ended between two samples."""
_ROOT = "0"
_REAL_UID = re.compile(rb"^Uid:\s+([0-9]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process: a pid from one start time on."""

    pid: int
    start_time_ticks: int
    """Clock ticks since boot, as the kernel reports them: for comparison only."""
    name: str
    owner: CgroupOwner


class Stat(NamedTuple):
    """The fields of /proc/<pid>/stat that are needed."""

    name: str
    state: str
    flags: int
    threads: int
    start_time_ticks: int

    @property
    def exiting(self) -> bool:
        """Whether this thread (of a process: its first) is ending or has ended."""
        return bool(self.flags & _PF_EXITING) or self.state in "ZXx"

    @property
    def ended(self) -> bool:
        """Whether all its threads have ended. The first thread may end before the others."""
        return self.state in "ZXx" and self.threads <= 1


def read_trust(procfs: Path, *, nested: bool = False) -> Trust:
    """What to believe in cgroup paths, by the reader's own."""
    try:
        own = _read(f"{procfs}/self/cgroup").decode("utf-8", "replace")
    except OSError:
        own = ""
    return trust_of(own, nested=nested)


def read_process(procfs: Path, pid: int, trust: Trust = OUTERMOST) -> ProcessFacts | Unknown:
    """One process; `procfs` is the root of the host's /proc."""
    try:
        return _look_up(f"{procfs}/{pid}", pid, trust)
    except (FileNotFoundError, ProcessLookupError):
        return Unknown("exited")
    except PermissionError:
        return Unknown("permission")
    except OSError:
        return Unknown("unreadable")


def _look_up(where: str, pid: int, trust: Trust) -> ProcessFacts | Unknown:
    before = parse_stat(_read(f"{where}/stat"))
    if before is None or before.ended:
        return _unknown(before)
    thread = (before.exiting and _living_thread(where)) or where
    owner = parse_cgroup(_read(f"{thread}/cgroup").decode("utf-8", "replace"), trust)
    user = ""
    if isinstance(owner, CgroupOwner) and owner.kind in ("slurm", "process") and not owner.user:
        user = parse_real_uid(_read(f"{where}/status"))
    after = parse_stat(_read(f"{where}/stat"))
    if after is None or after.start_time_ticks != before.start_time_ticks:
        return Unknown("unstable")
    if after.ended:
        return _unknown(after)
    if isinstance(owner, Unknown):
        return owner
    # In cgroup v1 an ending thread is in "/", and the driver may take seconds to free its memory.
    if owner.kind == "process" and after.exiting and thread == where:
        return Unknown("exited")
    # A host without systemd has no cgroups of users. A process chooses its name, but not its user.
    if owner.kind == "process" and user not in ("", _ROOT):
        owner = replace(owner, kind="session", name=user, user=user)
    elif owner.kind == "slurm" and user:
        owner = replace(owner, user=user)
    return ProcessFacts(pid, before.start_time_ticks, before.name, owner)


def _unknown(stat: Stat | None) -> Unknown:
    return Unknown("unreadable" if stat is None else "zombie")


def read_start_time(procfs: Path, pid: int) -> int | None:
    """When the process with this pid started, in clock ticks since boot; None if it is not known."""
    try:
        stat = parse_stat(_read(f"{procfs}/{pid}/stat"))
    except OSError:
        return None
    return stat.start_time_ticks if stat else None


def sees_host(procfs: Path, pids: Iterable[int]) -> bool:
    """Whether any of the pids that the driver lists, and that were looked up in vain, exists here.

    One process may end between two samples. If all are missing at once, this is the /proc of another pid
    namespace.
    """
    some = list(islice(pids, _ENOUGH))
    return not some or any(Path(f"{procfs}/{pid}").exists() for pid in some)


def parse_stat(text: bytes) -> Stat | None:
    """The fields of /proc/<pid>/stat; None if the text is not from such a file."""
    # The name may hold spaces, parentheses and line breaks: it ends at the last parenthesis.
    head, _, tail = text.rpartition(b")")
    pid, opening, name = head.partition(b"(")
    fields = tail.split()
    if not (opening and pid.strip().isdigit() and len(fields) >= 20):
        return None
    flags, threads, start_time = numbers = fields[6], fields[17], fields[19]
    if not (all(one.isdigit() and len(one) <= 20 for one in numbers) and len(fields[0]) == 1):
        return None
    return Stat(
        name.decode("utf-8", "replace"),
        fields[0].decode("ascii", "replace"),
        int(flags),
        int(threads),
        int(start_time),
    )


def parse_real_uid(status: bytes) -> str:
    """The real user id in /proc/<pid>/status; empty if it has none."""
    uid = _REAL_UID.search(status)
    return uid[1].decode("ascii") if uid else ""


def _living_thread(where: str) -> str | None:
    with os.scandir(f"{where}/task") as tasks:
        paths = [task.path for task in tasks]
    for path in paths:
        try:
            stat = parse_stat(_read(f"{path}/stat"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        if stat is not None and not stat.exiting:
            return path
    return None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = chunk = os.read(descriptor, _CHUNK)
        while len(chunk) == _CHUNK:  # the kernel fills these files whole: a short read is the end
            chunk = os.read(descriptor, _CHUNK)
            text += chunk
        return text
    finally:
        os.close(descriptor)
