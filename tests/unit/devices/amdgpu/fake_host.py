"""A host on paper: KFD's part of /sys, and the processes in /proc, of which tests make what they need."""

import shutil
from pathlib import Path

from gputally.devices.amdgpu.occupancy import CardOccupancy, OccupancySampler
from gputally.devices.amdgpu.process_finder import ProcessFinder

SECOND_NS = 1_000_000_000
STARTED_AT_NS = 5_000 * SECOND_NS
STARTED_AT_WALL_US = 1_700_000_000_000_000
MIB = 1 << 20


def location_id(bus: int, device: int = 0, function: int = 0) -> int:
    return bus << 8 | device << 3 | function


def fdinfo(client_id: int, address: str = "0000:c1:00.0", **values: str) -> str:
    """What the driver writes for a client; an underscore in a key stands for a dash."""
    keys = {"drm-driver": "amdgpu", "drm-client-id": str(client_id), "drm-pdev": address}
    keys |= {key.replace("_", "-"): value for key, value in values.items()}
    return "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t614\npasid:\t32771\n" + "".join(
        f"{key}:\t{value}\n" for key, value in keys.items()
    )


class SteppedSampler(OccupancySampler):
    """Samples when the test says so, and not in threads."""

    def __init__(self) -> None:
        self.watched: dict[str, CardOccupancy] = {}
        super().__init__(start=lambda card: self.watched.update({card.pci_address: card}))

    def sample(self) -> None:
        for card in self.watched.values():
            card.sample()


class FakeHost:
    """Its clock stands still until `passes`."""

    def __init__(self, root: Path) -> None:
        self.sysfs, self.procfs = root / "sys", root / "proc"
        self.kfd = self.sysfs / "class/kfd/kfd"
        self.procfs.mkdir(parents=True)
        self.sysfs.mkdir()
        self._elapsed_ns = 0
        self._trash = root / "trash"
        self.sampler = SteppedSampler()

    def finder(self) -> ProcessFinder:
        return ProcessFinder(
            self.sysfs,
            self.procfs,
            monotonic_ns=lambda: STARTED_AT_NS + self._elapsed_ns,
            wall_ns=lambda: STARTED_AT_WALL_US * 1000 + self._elapsed_ns,
            occupancy=self.sampler,
        )

    def passes(self, seconds: float) -> None:
        self._elapsed_ns += round(seconds * SECOND_NS)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def node(self, number: int, gpu_id: int, location: int = 0, **properties: int) -> None:
        directory = self.kfd / f"topology/nodes/{number}"
        said = {"location_id": location, "domain": 0, "simd_count": 1216, "simd_per_cu": 4} | properties
        self.write(directory / "gpu_id", f"{gpu_id}\n")
        self.write(directory / "properties", "".join(f"{name} {value}\n" for name, value in said.items()))
        (self.kfd / "proc").mkdir(exist_ok=True)

    def computes(
        self, pid: int, gpu_id: int, vram: int = 0, occupied: int | None = None, queues: int = 0
    ) -> None:
        """A process has KFD open. Each call replaces what it does on that GPU."""
        directory = self.kfd / f"proc/{pid}"
        self.write(directory / f"vram_{gpu_id}", f"{vram}\n")
        self.write(directory / f"sdma_{gpu_id}", "0\n")
        self.write(directory / f"stats_{gpu_id}/evicted_ms", "0\n")
        if occupied is not None:
            self.write(directory / f"stats_{gpu_id}/cu_occupancy", f"{occupied}\n")
        (directory / "queues").mkdir(exist_ok=True)
        for queue in range(queues):
            self.write(directory / f"queues/{gpu_id}{queue}/gpuid", f"{gpu_id}")

    def starts(self, pid: int, name: str = "python3", started: int = 1000) -> None:
        """A new process; one that has the pid ends."""
        directory = self.procfs / f"{pid}"
        if directory.exists():
            self.ends(pid)
        before_start = "S 1 42 42 0 -1 4194304 5 6 7 8 9 10 11 12 20 0 1 0"
        self.write(directory / "stat", f"{pid} ({name}) {before_start} {started} 1000 200\n")
        (directory / "fd").mkdir()
        (directory / "fdinfo").mkdir()

    def ends(self, pid: int) -> None:
        # Kept where it does not count, so that the file system does not give its inode to the next one.
        self._trash.mkdir(exist_ok=True)
        (self.procfs / f"{pid}").rename(self._trash / f"{len(list(self._trash.iterdir()))}")
        shutil.rmtree(self.kfd / f"proc/{pid}", ignore_errors=True)

    def opens(self, pid: int, number: int, text: str, device: str = "/dev/dri/renderD128") -> None:
        """A process has a device open, of which the driver says this. Again: it says something else now."""
        link = self.procfs / f"{pid}/fd/{number}"
        if not link.is_symlink():
            link.symlink_to(device)
        self.write(self.procfs / f"{pid}/fdinfo/{number}", text)

    def closes(self, pid: int, number: int) -> None:
        (self.procfs / f"{pid}/fd/{number}").unlink()
        (self.procfs / f"{pid}/fdinfo/{number}").unlink()

    def runs(self, pid: int, client_id: int, address: str = "0000:c1:00.0", /, **engine_ns: int) -> None:
        """A client that has spent this much time on each engine since it was opened."""
        keys = {f"drm_engine_{name}": f"{ns} ns" for name, ns in engine_ns.items()}
        keys["drm_memory_vram"] = "2048 KiB"
        self.opens(pid, 40 + client_id, fdinfo(client_id, address, **keys))
