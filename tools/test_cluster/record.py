"""Which cluster runs on this machine: there can be one, because names and addresses are its own.

Its processes hold a lock on a file from their first to their last moment: whatever ends them frees it.
"""

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tools import Failed

RECORD = Path("/run/gputally-cluster.json")
NODE_MODULE = "tools.test_cluster.node"
_SECONDS_TO_END = 20


def take(folder: Path, record: Path = RECORD) -> int:
    """The file, open and locked, for a new cluster's processes to inherit. Raises Failed if there is one."""
    while True:
        handle = os.open(record, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Failed(refusal(recorded(record))) from None
        # Whoever ended a cluster in the meantime has removed the file that this one was.
        with suppress(FileNotFoundError):
            if record.stat().st_ino == os.fstat(handle).st_ino:
                break
        os.close(handle)
    os.truncate(handle, 0)
    os.pwrite(handle, json.dumps({"folder": str(folder)}).encode(), 0)
    return handle


def refusal(folder: Path | None) -> str:
    return f"a cluster is already running, in {folder}: `tools/cluster down` ends it"


def running(record: Path = RECORD) -> Path | None:
    """The folder of the cluster that runs now."""
    try:
        handle = os.open(record, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return recorded(record)
    finally:
        os.close(handle)
    return None


def recorded(record: Path = RECORD) -> Path | None:
    """The folder of the cluster that ran last and was not ended properly, or runs still."""
    try:
        return Path(json.loads(record.read_text())["folder"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def end(record: Path = RECORD) -> None:
    """Kill the cluster's processes, and come back when the last one is gone. Raises Failed."""
    deadline = time.monotonic() + _SECONDS_TO_END
    ending = False
    while folder := running(record):
        found = holders(record)
        inside = [child for parent in found for child in children(parent) if child in found]
        ending = ending or bool(inside)
        # With the first one inside end all that are inside; whoever waits for it ends by itself, the last.
        for pid in inside if ending else found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise Failed(
                f"the cluster's processes {found} do not end"
                if found
                else f"a cluster is just being started in {folder}: wait for that, or end it there"
            )
        time.sleep(0.05)


def forget(record: Path = RECORD) -> None:
    record.unlink(missing_ok=True)


def holders(record: Path = RECORD) -> list[int]:
    """The processes that are the node: `unshare`, and the first one inside."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Processes come and go while one looks.
        with suppress(OSError):
            is_node = NODE_MODULE.encode() in (process / "cmdline").read_bytes().split(b"\0")
            if is_node and any(_leads_to(link, record) for link in (process / "fd").iterdir()):
                found.append(int(process.name))
    return sorted(found)


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _leads_to(link: Path, record: Path) -> bool:
    with suppress(OSError):
        return link.readlink() == record
    return False
