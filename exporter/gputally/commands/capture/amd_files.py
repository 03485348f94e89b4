"""The files that reader amdgpu reads on this host, without identifying data.

They reproduce the same GPUs on another machine: the directories `sys` and `proc` replace /sys and /proc.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from gputally.commands.capture.archive import Archive
from gputally.devices.amdgpu.discovery import find_cards

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
# A client that these have open belongs to another process, so their names matter; all hosts have them.
_BROKERS = {"systemd", "systemd-logind", "elogind-daemon", "elogind", "seatd"}

README = """\
sys, proc: the files that GPUTally reads on a host with AMD GPUs
  replaced: unique ids, hive ids and serial numbers (equal ones stay equal); names of processes, as process-1,
    process-2, ...; in /proc/<pid>/stat everything but the state and the start time
  unchanged: measured values, PCI addresses, pids, the GPU use of each process, and the versions of the
    driver, the VBIOS and the kernel
  not included: open files other than GPUs, and PCIe throughput, which takes a second to read
  unreadable.txt lists the files that exist and could not be read, each with the error.
"""


def capture_amd(sysfs: Path, procfs: Path, archive: Archive) -> list[str]:
    """Adds the files of all AMD GPUs; returns a summary, line by line. Raises Unavailable without a GPU."""
    cards = find_cards(sysfs, Counter())
    fakes = _Fakes()
    system = _Copy(sysfs, "sys", archive)
    for card in cards:
        for path in _matching(card.directory, _OF_CARD):
            system.add(path, fakes.change_of(path.name))
    _add_drm(system, {card.directory for card in cards})
    _add_kfd(system, fakes)
    system.add(sysfs / "module/amdgpu/version")
    processes = _Copy(procfs, "proc", archive)
    processes.add(procfs / "sys/kernel/osrelease")
    holders = _add_processes(processes, fakes)
    unreadable = [
        f"{name}/{line}\n" for name, copy in (("sys", system), ("proc", processes)) for line in copy.failed
    ]
    archive.add("unreadable.txt", "".join(unreadable).encode())
    return [
        f"captured AMD GPUs: {len(cards)}, in {system.files + processes.files} files",
        *(f"  {card.pci_address}  {card.model}" for card in cards),
        f"  processes that have a GPU open: {holders}",
        f"  files that could not be read (unreadable.txt): {len(unreadable)}",
    ]


class _Fakes:
    """Replacements of names and ids. Equal ones stay equal."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}
        self._serials: dict[bytes, int] = {}
        self._names: dict[str, int] = {}

    def change_of(self, file: str) -> Callable[[bytes], bytes]:
        """The change to a file of this name."""
        return {"unique_id": self._unique_id, "serial_number": self._serial}.get(file, _unchanged)

    def properties(self, content: bytes) -> bytes:
        text = content.decode("ascii", "replace")
        return _PRIVATE_PROPERTY.sub(lambda match: f"{match[1]} {self._id(int(match[2]))}", text).encode()

    def stat(self, content: bytes) -> bytes:
        head, _, tail = content.rpartition(b")")
        pid, _, name = head.decode("utf-8", "replace").partition(" (")
        fields = tail.split()
        kept = [b"0"] * (_STAT_FIELDS - 2)
        for index in (0, 19):  # state, start time
            kept[index : index + 1] = fields[index : index + 1] or [b"0"]
        return f"{pid} ({self._name(name)}) ".encode() + b" ".join(kept) + b"\n"

    def _unique_id(self, content: bytes) -> bytes:
        try:
            return f"{self._id(int(content, 16)):016x}\n".encode()
        except ValueError:
            return b"\n"

    def _id(self, number: int) -> int:
        """Zero means that there is no id."""
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
    """Copies files of one tree to the same path in the archive. Links stay links, within the tree."""

    def __init__(self, root: Path, name: str, archive: Archive) -> None:
        self.root = root
        self.files = 0
        self.failed: list[str] = []
        self._real = root.resolve()
        self._name = name
        self._archive = archive
        self._done: set[Path] = set()

    def add(self, path: Path, change: Callable[[bytes], bytes] | None = None) -> None:
        """Copies a file or a link, and the links in its path. A missing one is skipped."""
        resolved = self._walk(path)
        if resolved is None or resolved in self._done or not resolved.is_file():
            return
        self._done.add(resolved)
        relative = resolved.relative_to(self._real)
        try:
            with resolved.open("rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESRCH):
                self.failed.append(f"{relative}\t{errno.errorcode.get(error.errno or 0, 'unknown')}")
            return
        self.write(relative, change(content) if change else content)

    def write(self, relative: Path, content: bytes) -> None:
        self._archive.add(f"{self._name}/{relative}", content)
        self.files += 1

    def link(self, relative: Path, to: str) -> None:
        self._archive.link(f"{self._name}/{relative}", to)

    def _walk(self, path: Path) -> Path | None:
        """The resolved path; the links in it are copied. None if it leaves the tree."""
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


def _matching(directory: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(directory.glob(pattern))


def _add_drm(system: _Copy, cards: set[Path]) -> None:
    """The DRM nodes of the GPUs and of their partitions, and the GPUs' PCI devices."""
    for node in sorted((system.root / "class/drm").glob("*")):
        if not _DRM_NAME.fullmatch(node.name):
            continue
        device = (node / "device").resolve()
        if device in cards or device.name.startswith(_PARTITION):
            for path in _matching(node, _OF_DRM):
                system.add(path)
            system.add(node / "device/uevent")
    for pci_device in sorted((system.root / "bus/pci/devices").glob("*")):
        if pci_device.resolve() in cards:
            system.add(pci_device / "vendor")


def _add_kfd(system: _Copy, fakes: _Fakes) -> None:
    kfd = system.root / "class/kfd/kfd"
    for path in _matching(kfd, _OF_KFD):
        system.add(path, fakes.properties if path.name == "properties" else None)
    for directory, directories, files in os.walk(kfd / "proc"):
        if len(Path(directory).relative_to(kfd).parts) >= _DEEPEST:
            directories.clear()
        for file in sorted(files):
            system.add(Path(directory) / file)


def _add_processes(processes: _Copy, fakes: _Fakes) -> int:
    """Adds the processes that have a GPU open; returns their number."""
    holders = 0
    for directory in sorted(processes.root.glob("[0-9]*")):
        open_gpus = list(_open_gpus(directory))
        if not open_gpus:
            continue
        holders += 1
        processes.add(directory / "stat", fakes.stat)
        for number, device in open_gpus:
            processes.link(Path(directory.name, "fd", number), device)
            processes.add(directory / "fdinfo" / number, _clean_fdinfo)
    return holders


def _open_gpus(directory: Path) -> Iterator[tuple[str, str]]:
    """Descriptors of open GPU devices, and their paths; none for a process that may not be read."""
    try:
        numbers = sorted(os.listdir(directory / "fd"))  # noqa: PTH208 - names, not paths
    except OSError:
        return
    for number in numbers:
        try:
            device = os.readlink(directory / "fd" / number)  # noqa: PTH115 - a text, not a path
        except OSError:
            continue
        if _DEVICE.match(device):
            yield number, device


def _clean_fdinfo(content: bytes) -> bytes:
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(line for line in lines if _FDINFO_LINE.match(line)).encode()
