"""`gputally capture`: copies what reader amdgpu reads on this host, without what tells whose host it is.

A capture can be given to somebody else, who then sees the same GPUs: `sys` and `proc` in it stand for /sys
and /proc. It is for AMD GPUs only: what NVIDIA's driver says cannot be had as files.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from gputally.devices.amdgpu.discovery import find_cards
from gputally.model import Unavailable

_MOST_BYTES = 1 << 20
_DEEPEST = 6
_OF_CARD = (
    *("vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device", "uevent", "driver"),
    *("unique_id", "serial_number", "product_name", "vbios_version", "power/runtime_status"),
    *("gpu_busy_percent", "mem_busy_percent", "mem_info_*", "gpu_metrics", "pp_dpm_*", "pcie_replay_count"),
    *("current_link_*", "max_link_*", "current_compute_partition", "current_memory_partition"),
    *("ras/*_err_count", "hwmon/hwmon*/name", "hwmon/hwmon*/temp*_*", "hwmon/hwmon*/freq*_*"),
    *("hwmon/hwmon*/power1_*", "hwmon/hwmon*/fan1_*", "hwmon/hwmon*/pwm1*", "hwmon/hwmon*/in0_*"),
)
_OF_DRM = ("device", "dev")
_OF_KFD = ("topology/generation_id", "topology/nodes/*/gpu_id", "topology/nodes/*/properties")
_DRM_NAME = re.compile(r"(?:card|renderD)\d+")
_PARTITION = "amdgpu_xcp"
_DEVICE = re.compile(r"/dev/(?:dri/|kfd)")
_PRIVATE_PROPERTY = re.compile(r"^(unique_id|hive_id) (\d+)$", re.MULTILINE)
_FDINFO_LINE = re.compile(r"(?:pos|flags|pasid|amd-.*|drm-(?!client-name).*):")
_STAT_FIELDS = 52
_FIRST_FAKE_ID = 0xCAB0_0000_0000_0001
# A client that these have open belongs to somebody else, so that their names matter; and all hosts have them.
_BROKERS = {"systemd", "systemd-logind", "elogind-daemon", "elogind", "seatd"}

_README = """\
What this is
  Files of /sys and /proc as `gputally capture` found them on a host with AMD GPUs: those that GPUTally reads.

What was changed
  unique ids, hive ids and serial numbers   made up; equal ones stayed equal
  names of processes                        process-1, process-2, ...
  /proc/<pid>/stat                          only the state and the start time are true

What was kept
  everything that is measured, PCI addresses, pids, how much of the GPUs each process uses, and the versions
  of the driver, the VBIOS and the kernel

What is not here
  command lines, environments, users, names of hosts, files that a process has open other than GPUs, and PCIe
  throughput, which takes a second to read

unreadable.txt lists the files that are there and could not be read, each with the error.
Look through it before you give it away.
"""


def capture(sysfs: Path, procfs: Path, target: Path, out: TextIO) -> int:
    """Write a capture into `target` and a summary to `out`; returns the exit code."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        print(f"{target} is there and not empty: name a new folder", file=out)
        return 2
    try:
        cards = find_cards(sysfs, Counter())
    except Unavailable as failure:
        print(f"nothing captured: {failure.reason}", file=out)
        print(f"  {failure.fix}", file=out)
        print("  only AMD GPUs can be captured, from the files of the kernel's amdgpu driver", file=out)
        return 1
    fakes = _Fakes()
    system = _Copy(sysfs, target / "sys")
    for card in cards:
        for path in _matching(card.directory, _OF_CARD):
            system.add(path, fakes.change_of(path.name))
    _add_drm(system, {card.directory for card in cards})
    _add_kfd(system, fakes)
    system.add(sysfs / "module/amdgpu/version")
    processes = _Copy(procfs, target / "proc")
    processes.add(procfs / "sys/kernel/osrelease")
    holders = _add_processes(processes, fakes)
    (target / "README.txt").write_text(_README)
    unreadable = [
        f"{name}/{line}\n" for name, copy in (("sys", system), ("proc", processes)) for line in copy.failed
    ]
    (target / "unreadable.txt").write_text("".join(unreadable))
    print(
        f"captured AMD GPUs: {len(cards)}, in {system.files + processes.files} files below {target}", file=out
    )
    for card in cards:
        print(f"  {card.pci_address}  {card.model}", file=out)
    print(f"  processes that have a GPU open: {holders}", file=out)
    print(f"  files that could not be read (unreadable.txt): {len(unreadable)}", file=out)
    print("ids, serial numbers and names of processes are made up: see README.txt", file=out)
    return 0


class _Fakes:
    """Made-up names. What was equal stays equal."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._serials: dict[bytes, int] = {}
        self._names: dict[str, int] = {}

    def change_of(self, file: str) -> Callable[[bytes], bytes]:
        """What is to be done with a file of this name."""
        return {"unique_id": self._unique_id, "serial_number": self._serial}.get(file, _unchanged)

    def properties(self, content: bytes) -> bytes:
        text = content.decode("ascii", "replace")
        return _PRIVATE_PROPERTY.sub(lambda match: f"{match[1]} {self._id(int(match[2]))}", text).encode()

    def stat(self, content: bytes) -> bytes:
        head, _, tail = content.rpartition(b")")
        pid, _, name = head.decode("utf-8", "replace").partition(" (")
        fields = tail.split()
        kept = [b"0"] * (_STAT_FIELDS - 2)
        for place in (0, 19):  # state, start time
            kept[place : place + 1] = fields[place : place + 1] or [b"0"]
        return f"{pid} ({self._name(name)}) ".encode() + b" ".join(kept) + b"\n"

    def _unique_id(self, content: bytes) -> bytes:
        try:
            return f"{self._id(int(content, 16)):016x}\n".encode()
        except ValueError:
            return b"\n"

    def _id(self, number: int) -> int:
        """An id of zero is none."""
        return self._ids.setdefault(number, _FIRST_FAKE_ID + len(self._ids)) if number else 0

    def _serial(self, content: bytes) -> bytes:
        known = content.strip()
        if not known:
            return content
        return f"serial-{self._serials.setdefault(known, len(self._serials) + 1)}\n".encode()

    def _name(self, name: str) -> str:
        if name in _BROKERS:
            return name
        return f"process-{self._names.setdefault(name, len(self._names) + 1)}"


class _Copy:
    """Copies files of one tree to the same place in another. Links stay links, and lead nowhere else."""

    def __init__(self, root: Path, target: Path) -> None:
        self.root = root
        self.files = 0
        self.failed: list[str] = []
        self._real = root.resolve()
        self._target = target
        self._done: set[Path] = set()

    def add(self, path: Path, change: Callable[[bytes], bytes] | None = None) -> None:
        """Copy a file or a link, and the links on the way to it. One that is not there is left out."""
        place = self._walk(path)
        if place is None or place in self._done or not place.is_file():
            return
        self._done.add(place)
        relative = place.relative_to(self._real)
        try:
            with place.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESRCH):
                self.failed.append(f"{relative}\t{errno.errorcode.get(error.errno or 0, 'unknown')}")
            return
        self.write(relative, change(content) if change else content)

    def write(self, relative: Path, content: bytes) -> None:
        copy = self._target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        self.files += 1

    def link(self, relative: Path, to: str) -> None:
        copy = self._target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.is_symlink():
            copy.symlink_to(to)

    def _walk(self, path: Path) -> Path | None:
        """Where a path really leads; the links on the way are copied. None when it leads out of the tree."""
        here = self._real
        inside = path.relative_to(self._real if path.is_relative_to(self._real) else self.root)
        for part in inside.parts:
            there = here / part
            if there.is_symlink():
                real = there.resolve()
                if not real.is_relative_to(self._real):
                    return None
                self.link(there.relative_to(self._real), os.path.relpath(real, here))
                there = real
            here = there
        return here


def _unchanged(content: bytes) -> bytes:
    return content


def _matching(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(folder.glob(pattern))


def _add_drm(system: _Copy, cards: set[Path]) -> None:
    """The nodes of the cards and of their partitions, and the cards' places on the bus."""
    for node in sorted((system.root / "class/drm").glob("*")):
        if not _DRM_NAME.fullmatch(node.name):
            continue
        device = (node / "device").resolve()
        if device in cards or device.name.startswith(_PARTITION):
            for path in _matching(node, _OF_DRM):
                system.add(path)
            system.add(node / "device/uevent")
    for place in sorted((system.root / "bus/pci/devices").glob("*")):
        if place.resolve() in cards:
            system.add(place / "vendor")


def _add_kfd(system: _Copy, fakes: _Fakes) -> None:
    kfd = system.root / "class/kfd/kfd"
    for path in _matching(kfd, _OF_KFD):
        system.add(path, fakes.properties if path.name == "properties" else None)
    for folder, folders, files in os.walk(kfd / "proc"):
        if len(Path(folder).relative_to(kfd).parts) >= _DEEPEST:
            folders.clear()
        for file in sorted(files):
            system.add(Path(folder) / file)


def _add_processes(processes: _Copy, fakes: _Fakes) -> int:
    """The processes that have a GPU open, and how many they are."""
    holders = 0
    for folder in sorted(processes.root.glob("[0-9]*")):
        open_gpus = list(_open_gpus(folder))
        if not open_gpus:
            continue
        holders += 1
        processes.add(folder / "stat", fakes.stat)
        for number, device in open_gpus:
            processes.link(Path(folder.name, "fd", number), device)
            processes.add(folder / "fdinfo" / number, _clean_fdinfo)
    return holders


def _open_gpus(folder: Path) -> Iterator[tuple[str, str]]:
    """Numbers of the open files that are GPUs, and which; none of a process that may not be looked at."""
    try:
        numbers = sorted(os.listdir(folder / "fd"))  # noqa: PTH208 - names, not paths
    except OSError:
        return
    for number in numbers:
        try:
            device = os.readlink(folder / "fd" / number)  # noqa: PTH115 - a text, not a path
        except OSError:
            continue
        if _DEVICE.match(device):
            yield number, device


def _clean_fdinfo(content: bytes) -> bytes:
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(line for line in lines if _FDINFO_LINE.match(line)).encode()
