"""Beside the container that does the work: sees when it has ended, so that the pod can end too.

With `shareProcessNamespace: true` the processes of all containers are in one /proc, each container's in a
cgroup of its own, and pid 1 is the pod's sandbox. Without it no other container can be seen, and the end
comes as SIGTERM: from Argo for its sidecars, from the kubelet for init containers with restartPolicy Always.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_SANDBOX = "1"


def sees_containers(procfs: Path) -> bool:
    """Whether the processes of the pod's other containers are in this /proc."""
    return _cgroup(procfs, _SANDBOX) not in ("", _cgroup(procfs, "self"))


def others_run(procfs: Path) -> bool:
    """Whether a process of another container runs; the sandbox is none."""
    own = _cgroup(procfs, "self")
    pids = (entry.name for entry in procfs.iterdir() if entry.name.isdigit() and entry.name != _SANDBOX)
    return any(_cgroup(procfs, pid) not in ("", own) for pid in pids)


def watch_containers(
    procfs: Path, end: Callable[[], None], stop: threading.Event, every_seconds: float = LOOK_SECONDS
) -> None:
    """Call `end` once nothing runs any more in the other containers, after something did; until `stop`."""
    ran = False
    while not stop.is_set():
        run = others_run(procfs)
        if ran and not run:
            log.info("the other containers of this pod have ended")
            end()
            return
        ran = run
        stop.wait(every_seconds)


def start_watch(procfs: Path, end: Callable[[], None], stop: threading.Event) -> None:
    if not sees_containers(procfs):
        log.info("the pod has no shareProcessNamespace: this sidecar ends when it is told to (SIGTERM)")
        return
    threading.Thread(target=watch_containers, args=(procfs, end, stop), daemon=True, name="sidecar").start()


def _cgroup(procfs: Path, pid: str) -> str:
    try:
        return (procfs / pid / "cgroup").read_text(errors="replace")
    except OSError:
        return ""
