"""Compute processes as KFD, the kernel's part of ROCm, lists them in /sys/class/kfd/kfd.

`topology/nodes/<n>` has the GPUs: KFD's own id (which changes between boots), the PCI location and the
version of the graphics core. A partitioned GPU (DPX, QPX, CPX) has a node for each partition. `proc/<pid>`
has the processes; the pid is that of the host's pid namespace.

A process that opens KFD has files for every GPU that it may use. It uses those on which it has memory or
queues. `sdma_*`, `evicted_ms` and `pasid` (0 on new kernels) are not read: they do not show use, and the
kernel starts a worker for each read of `sdma_*`. `cu_occupancy` is left to `occupancy`: each read stops other
users of the GPU's registers.

In a container the kernel hides (EPERM) the nodes of GPUs whose render device the container may not open.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gputally.devices import Errors
from gputally.devices.amdgpu.files import ProcessFiles, parse_count

CardPart = tuple[str, int | None]
"""PCI address of a GPU, and number of its partition; None is the whole GPU."""

_HIGHEST_PID = 2**22
_CONTEXT = re.compile(r"context_\d{1,10}")


@dataclass(frozen=True, slots=True)
class KfdNode:
    """One GPU, or one partition of it."""

    number: int
    gpu_id: int
    domain: int
    location_id: int
    render_minor: int | None = None
    gfx_version: int = 0
    """The kernel's `gfx_target_version`: 90402 is gfx942; 0 on kernels that do not have it."""

    @property
    def addresses(self) -> tuple[str, str]:
        """The PCI address, and the GPU's address where the function is a partition's number."""
        bus, device, function = (
            self.location_id >> 8 & 0xFF,
            self.location_id >> 3 & 0x1F,
            self.location_id & 7,
        )
        slot = f"{self.domain:04x}:{bus:02x}:{device:02x}"
        return f"{slot}.{function}", f"{slot}.0"


@dataclass(frozen=True, slots=True)
class ComputeUse:
    """The use of one node by one process."""

    vram_bytes: int | None
    queues: bool | None
    """Whether it has queues on the node; None on kernels that do not list them."""
    directories: tuple[str, ...] = field(default=(), compare=False)
    """Where its `cu_occupancy` is, if it may have queues."""

    @property
    def resident(self) -> bool:
        return bool(self.vram_bytes or self.queues)


class Kfd:
    """Reads KFD; without it (no ROCm-capable GPU, module not loaded) there are no nodes."""

    def __init__(self, sysfs: Path, errors: Errors) -> None:
        self._root = f"{sysfs}/class/kfd/kfd"
        self._files = ProcessFiles("kfd", errors)
        self._generation: bytes | None = None
        self._nodes: tuple[KfdNode, ...] = ()

    @property
    def hides(self) -> bool:
        """Whether the kernel hid a node or a process in the last sample."""
        return self._files.denied

    def read(self) -> tuple[tuple[KfdNode, ...], Mapping[int, Mapping[int, ComputeUse]] | None]:
        """The nodes, and the use by pid and KFD's GPU id; None when KFD lists no processes."""
        self._files.denied = False
        generation = self._files.read(f"{self._root}/topology/generation_id")
        if not self._nodes or generation != self._generation:
            self._read_nodes()
        self._generation = generation
        processes = self._processes()
        known = {node.gpu_id for node in self._nodes}
        if any(not known.issuperset(uses) for uses in (processes or {}).values()):
            self._read_nodes()
        if self._files.denied:
            self._files.count_denial()
        return self._nodes, processes

    def _processes(self) -> dict[int, dict[int, ComputeUse]] | None:
        pids = self._files.numbered(f"{self._root}/proc")
        if pids is None:
            return None
        return {pid: self._process(f"{self._root}/proc/{pid}") for pid, _ in pids if pid <= _HIGHEST_PID}

    def _read_nodes(self) -> None:
        found = []
        for name in self._files.names(f"{self._root}/topology/nodes") or ():
            number = parse_count(name)
            node = f"{self._root}/topology/nodes/{name}"
            gpu_id = self._number(f"{node}/gpu_id") if number >= 0 else None
            if gpu_id:  # 0 is a CPU
                properties = parse_properties(self._files.read(f"{node}/properties") or b"")
                found.append(_make_node(number, gpu_id, properties))
        self._nodes = tuple(sorted((node for node in found if node), key=lambda node: node.number))

    def _process(self, directory: str) -> dict[int, ComputeUse]:
        """One process, with its further contexts (newer kernels) in subdirectories."""
        uses: dict[int, ComputeUse] = {}
        names = self._files.names(directory) or ()
        queues = self._queues(f"{directory}/queues")
        for name in names:
            if _CONTEXT.fullmatch(name):
                for gpu_id, more in self._process(f"{directory}/{name}").items():
                    uses[gpu_id] = _add(uses.get(gpu_id), more)
                continue
            head, _, tail = name.partition("_")
            gpu_id = parse_count(tail)
            if head == "vram" and gpu_id > 0:
                more = self._use(directory, gpu_id, queues)
                uses[gpu_id] = _add(uses.get(gpu_id), more)
        return uses

    def _use(self, directory: str, gpu_id: int, queues: Collection[int] | None) -> ComputeUse:
        vram_bytes = self._number(f"{directory}/vram_{gpu_id}")
        if queues is not None and gpu_id not in queues:
            return ComputeUse(vram_bytes, False)
        return ComputeUse(vram_bytes, None if queues is None else True, (f"{directory}/stats_{gpu_id}",))

    def _queues(self, directory: str) -> Collection[int] | None:
        """KFD's ids of the GPUs on which a process has queues."""
        names = self._files.names(directory)
        if names is None:
            return None
        return {self._number(f"{directory}/{name}/gpuid") or 0 for name in names}

    def _number(self, path: str) -> int | None:
        text = self._files.read(path)
        if text is None:
            return None
        number = parse_count(text.decode("ascii", "replace").strip())
        return None if number < 0 else number


def parse_properties(text: bytes) -> dict[str, int]:
    """Lines of a name and a number; other lines are left out."""
    pairs = (line.split() for line in text.decode("ascii", "replace").splitlines())
    return {pair[0]: number for pair in pairs if len(pair) == 2 and (number := parse_count(pair[1])) >= 0}


def locate_nodes(nodes: Iterable[KfdNode], pci_addresses: Collection[str]) -> dict[CardPart, KfdNode]:
    """The node of each GPU and partition, of the GPUs at these addresses.

    The number of a partition is in the four highest bits of `location_id` or, on other kernels, in the bits
    of the PCI function. Partitions are sorted by both, then by the node's number.
    """
    cards: dict[str, list[KfdNode]] = {}
    for node in nodes:
        address = next((address for address in node.addresses if address in pci_addresses), None)
        if address is not None:
            cards.setdefault(address, []).append(node)
    places: dict[CardPart, KfdNode] = {}
    for address, parts in cards.items():
        parts.sort(key=lambda node: (node.location_id >> 28, node.location_id & 7, node.number))
        for partition, node in enumerate(parts):
            places[address, partition if len(parts) > 1 else None] = node
    return places


def _make_node(number: int, gpu_id: int, properties: Mapping[str, int]) -> KfdNode | None:
    location_id = properties.get("location_id")
    if location_id is None:
        return None
    return KfdNode(
        number=number,
        gpu_id=gpu_id,
        domain=properties.get("domain", 0),  # missing on older kernels
        location_id=location_id,
        render_minor=properties.get("drm_render_minor") or None,
        gfx_version=properties.get("gfx_target_version", 0),
    )


def _add(known: ComputeUse | None, more: ComputeUse) -> ComputeUse:
    if known is None:
        return more
    return ComputeUse(
        vram_bytes=_sum(known.vram_bytes, more.vram_bytes),
        queues=known.queues or more.queues,
        directories=known.directories + more.directories,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
