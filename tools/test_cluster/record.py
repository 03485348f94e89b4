"""Records the running cluster: there is one at most, because its names and addresses are fixed.

Its processes hold a lock on a file for all of their life.
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


def take(directory: Path, record: Path = RECORD) -> int:
    """The file, open and locked; the new cluster's processes inherit it. Raises Failed if a cluster runs."""
    while True:
        handle = os.open(record, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Failed(refusal(recorded(record))) from None
        # The end of another cluster may have removed this file in the meantime.
        with suppress(FileNotFoundError):
            if record.stat().st_ino == os.fstat(handle).st_ino:
                break
        os.close(handle)
    os.truncate(handle, 0)
    os.pwrite(handle, json.dumps({"directory": str(directory)}).encode(), 0)
    return handle


def refusal(directory: Path | None) -> str:
    return f"a cluster is already running, in {directory}: run `tools/cluster down` to end it"


def running(record: Path = RECORD) -> Path | None:
    """The directory of the running cluster."""
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
    """The directory of a cluster that runs, or was not ended properly."""
    try:
        return Path(json.loads(record.read_text())["directory"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def end(record: Path = RECORD) -> None:
    """Kills the cluster's processes, and returns when all have ended. Raises Failed."""
    deadline = time.monotonic() + _SECONDS_TO_END
    ending = False
    while directory := running(record):
        found = holders(record)
        inside = [child for parent in found for child in children(parent) if child in found]
        ending = ending or bool(inside)
        # All processes inside end with the first one; the process that waits for it ends last.
        for pid in inside if ending else found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise Failed(
                f"the cluster's processes {found} do not end"
                if found
                else f"a cluster is being started in {directory}: wait for it, or interrupt it there"
            )
        time.sleep(0.05)


def forget(record: Path = RECORD) -> None:
    record.unlink(missing_ok=True)


def holders(record: Path = RECORD) -> list[int]:
    """The pids of the node: `unshare`, and the first process inside."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Processes may end meanwhile.
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
