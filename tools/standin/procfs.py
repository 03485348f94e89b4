"""A /proc of one's own: processes with a name, a start time and a cgroup."""

import hashlib
import shutil
from pathlib import Path


class FakeProcfs:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def start(
        self, pid: int, cgroup: str, *, ticks: int = 100, name: str = "python3", state: str = "S"
    ) -> None:
        directory = self.root / str(pid)
        directory.mkdir(exist_ok=True)
        # state is field 3, starttime field 22 of proc_pid_stat(5)
        fields = [state, *["0"] * 18, str(ticks), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (directory / "status").write_text(f"Name:\t{name}\nUid:\t1000\t1000\t1000\t1000\n")
        (directory / "cgroup").write_text(cgroup)

    def start_self(self, cgroup: str) -> None:
        """The exporter itself."""
        (self.root / "self").mkdir(exist_ok=True)
        (self.root / "self" / "cgroup").write_text(cgroup)

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


def pod_cgroup(uid: str, container_id: str) -> str:
    return f"0::/kubepods/burstable/pod{uid}/{container_id}\n"


def uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def container_id(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()
