"""Processes on AMD GPUs and their utilisation: KFD's list joined with the clients of the DRM driver.

Usage: build one `ProcessFinder`, call `find` with the PCI addresses of the GPUs at every sample, and add
its `errors` to the report. `find` returns `FoundProcesses` for every GPU under `(address, None)`, and for
each partition of a partitioned GPU under `(address, 0)`, `(address, 1)`, ... too.

- `processes` is None when neither KFD nor the open files can be read, and empty when there is no process.
  The kinds are compute (KFD's processes, and clients that use only the compute engine) and graphics (other
  clients). Memory is the larger one of KFD's and the clients' values: a client's memory includes the memory
  allocated through KFD, so that the sum would count it twice.
- A client without time on an engine and without memory is only an open device, and no process of the GPU.
  The same holds for the clients that ROCm opens on every GPU, unless KFD lists the process on it or it has
  time on an engine.
- `samples` has the utilisation of each process since the last sample. SM time is that of the gfx and
  compute engines, or the share of compute units in use now (all that KFD reports), whichever is more. JPEG
  is counted as decoding; GPUs with one queue for all video (VCN 4 and later) count decoding as encoding.
  `memory_ratio` is None: nothing measures it. The first samples cover no time.
- `samples` is None when the utilisation of one of the processes is unknown: of clients at the first sample
  or found late, and of HIP on GPUs without `cu_occupancy` (newer than GFX9) or hidden by KFD. With samples
  of the other processes alone, these would be charged for it.
- The processes of a GPU or partition never have more than all of the time: if their sum is higher (engines
  run several rings at once), all are scaled down and ("process_samples", "clamped") is counted.

Pids: KFD's are those of the host, the pids of open files are those of the pid namespace of `procfs`. They
match only with the host's /proc. Reading the open files of other users takes CAP_SYS_PTRACE and
CAP_DAC_READ_SEARCH; without them ("fdinfo", "permission") is counted once per sample, and KFD's list
remains.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputally.devices import Errors
from gputally.devices.amdgpu.fdinfo import Client, ClientKey, ClientScan, EngineTimes, Scan
from gputally.devices.amdgpu.kfd import CardPart, ComputeUse, Kfd, Node, locate_nodes
from gputally.model import Process, ProcessSample

FILLS = frozenset(
    {
        "processes",
        "Process.name",
        "Process.memory_used_bytes",
        "Process.gpu_instance_id",
        "Process.compute_instance_id",
        "process_samples",
        "ProcessSample.sm_ratio",
        "ProcessSample.encoder_ratio",
        "ProcessSample.decoder_ratio",
    }
)
_GROUPS = {
    "gfx": "sm",
    "compute": "sm",
    "enc": "encoder",
    "enc_1": "encoder",
    "dec": "decoder",
    "jpeg": "decoder",
}
_NO_GRAPHICS = {"compute", "dma"}
_ROUNDING = 1e-9


def _idle() -> dict[str, float]:
    return dict.fromkeys(_GROUPS.values(), 0.0)


@dataclass(frozen=True, slots=True)
class FoundProcesses:
    """The processes of one GPU or partition; None where they are unknown."""

    processes: tuple[Process, ...] | None = None
    samples: tuple[ProcessSample, ...] | None = None
    render_minor: int | None = None
    """The number of its render node (renderD<n>), where KFD has it."""


@dataclass(slots=True)
class _Use:
    """The use of one GPU or partition by one process."""

    kinds: set[str] = field(default_factory=set)
    by_kfd: bool = False
    kfd_bytes: int | None = None
    client_bytes: int | None = None
    occupied: float | None = 0.0
    """Share of the compute units in use now; None when KFD does not report it."""
    ran: dict[str, float] = field(default_factory=_idle)
    """By group of engines, the share of time."""
    untold: bool = False
    """The time of one of its clients is unknown."""

    @property
    def memory_bytes(self) -> int | None:
        return max((b for b in (self.kfd_bytes, self.client_bytes) if b is not None), default=None)

    @property
    def measured(self) -> bool:
        # Work in KFD's queues is in no engine's time: only the compute units show it.
        return self.occupied is not None if self.by_kfd else not self.untold

    def ratio(self, group: str) -> float:
        return max(self.ran[group], (self.occupied or 0.0) if group == "sm" else 0.0)

    def add(self, other: "_Use", weight: float) -> None:
        """Adds the use of a partition, which is `weight` of the whole GPU."""
        self.kinds |= other.kinds
        self.by_kfd |= other.by_kfd
        self.kfd_bytes = _plus(self.kfd_bytes, other.kfd_bytes)
        self.client_bytes = _plus(self.client_bytes, other.client_bytes)
        if self.occupied is not None:
            self.occupied = None if other.occupied is None else self.occupied + other.occupied * weight
        self.add_time(other.ran, weight)
        self.untold |= other.untold

    def add_time(self, ran: Mapping[str, float], weight: float = 1.0) -> None:
        for group, ratio in ran.items():
            self.ran[group] += ratio * weight


_Uses = dict[CardPart, dict[int, _Use]]


class ProcessFinder:
    """Finds the processes on AMD GPUs. `errors` never decreases."""

    def __init__(
        self,
        sysfs: Path,
        procfs: Path,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.errors: Errors = Counter()
        self._kfd = Kfd(sysfs, self.errors)
        self._clients = ClientScan(procfs, self.errors)
        self._times = EngineTimes()
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._looked_at_ns: int | None = None

    def find(self, pci_addresses: Sequence[str]) -> Mapping[CardPart, FoundProcesses]:
        """The processes on the GPUs at these addresses ("0000:c1:00.0"), and their use."""
        now_ns, wall_us = self._monotonic_ns(), self._wall_ns() // 1000
        elapsed_ns = None if self._looked_at_ns is None else now_ns - self._looked_at_ns
        if elapsed_ns is not None and elapsed_ns <= 0:
            elapsed_ns = None
        self._looked_at_ns = now_ns
        nodes, compute = self._kfd.read()
        scan = self._clients.scan(now_ns, compute or {})
        times = self._times.advance(scan.held, scan.pids, elapsed_ns) if scan else {}
        places = locate_nodes(nodes, pci_addresses)
        whole_cards: list[CardPart] = [(address, None) for address in pci_addresses]
        uses: _Uses = {place: {} for place in (*whole_cards, *places)}
        _add_compute(uses, places, compute or {})
        if scan is not None:
            _add_clients(uses, places, compute or {}, scan, _ratios(scan, times, elapsed_ns))
            if self._kfd.hides:
                _doubt_hidden(uses, places, compute or {})
        _add_up_partitions(uses, places)
        files_tell = scan is not None and not (scan.denied and not scan.held)
        listed = {address for address, _ in places} if compute is not None else set()
        names = {pid: task.name for pid, task in scan.tasks.items()} if scan else {}
        covers_us = (elapsed_ns or 0) // 1000
        found = {}
        for place, by_pid in uses.items():
            render_minor = places[place].render_minor if place in places else None
            if not files_tell and place[0] not in listed:
                found[place] = FoundProcesses(render_minor=render_minor)
                continue
            found[place] = FoundProcesses(
                tuple(_process(pid, use, names.get(pid), place[1]) for pid, use in sorted(by_pid.items())),
                self._samples(by_pid, wall_us, covers_us),
                render_minor,
            )
        return found

    def _samples(
        self, uses: Mapping[int, _Use], timestamp_us: int, covers_us: int
    ) -> tuple[ProcessSample, ...] | None:
        if not all(use.measured for use in uses.values()):
            return None
        sm, encoder, decoder = (self._shares(uses, group) for group in ("sm", "encoder", "decoder"))
        return tuple(
            ProcessSample(
                pid=pid,
                timestamp_us=timestamp_us,
                sm_ratio=sm[pid],
                memory_ratio=None,
                encoder_ratio=encoder[pid],
                decoder_ratio=decoder[pid],
                covers_us=covers_us,
            )
            for pid in sorted(uses)
        )

    def _shares(self, uses: Mapping[int, _Use], group: str) -> dict[int, float]:
        ratios = {pid: use.ratio(group) for pid, use in uses.items()}
        total = sum(ratios.values())
        if total <= 1 + _ROUNDING:
            return {pid: min(ratio, 1.0) for pid, ratio in ratios.items()}
        self.errors["process_samples", "clamped"] += 1
        return {pid: ratio / total for pid, ratio in ratios.items()}


def _add_compute(
    uses: _Uses, places: Mapping[CardPart, Node], compute: Mapping[int, Mapping[int, ComputeUse]]
) -> None:
    nodes = {node.gpu_id: (place, node.compute_units) for place, node in places.items()}
    for pid, by_gpu in compute.items():
        for gpu_id, use in by_gpu.items():
            if use.resident and gpu_id in nodes:
                place, units = nodes[gpu_id]
                uses[place][pid] = _Use(
                    kinds={"compute"},
                    by_kfd=True,
                    kfd_bytes=use.vram_bytes,
                    occupied=_part(use.occupied_units, units),
                )


def _part(occupied: int | None, units: int | None) -> float | None:
    if occupied == 0:
        return 0.0
    return None if occupied is None or units is None else min(occupied / units, 1.0)


def _ratios(
    scan: Scan, times: Mapping[ClientKey, Mapping[str, int] | None], elapsed_ns: int | None
) -> dict[ClientKey, Mapping[str, float] | None]:
    """By client and group of engines, the share of time; None when it is unknown."""
    ratios: dict[ClientKey, Mapping[str, float] | None] = {}
    for one in scan.held:
        time_ns = times[one.client.key]
        if time_ns is None or elapsed_ns is None:
            ratios[one.client.key] = None
            continue
        ran = _idle()
        for engine, ns in time_ns.items():
            if engine in _GROUPS:
                ran[_GROUPS[engine]] += ns / elapsed_ns / one.client.capacity.get(engine, 1)
        ratios[one.client.key] = ran
    return ratios


def _add_clients(
    uses: _Uses,
    places: Mapping[CardPart, Node],
    compute: Mapping[int, object],
    scan: Scan,
    ratios: Mapping[ClientKey, Mapping[str, float] | None],
) -> None:
    by_minor = {node.render_minor: place for place, node in places.items()}
    of_kfd = {address for address, _ in places}
    for one in scan.held:
        client, pid = one.client, one.owner.pid
        place = by_minor.get(one.render_minor) if one.render_minor is not None else None
        if place is None or place[0] != client.pci_address:
            place = (client.pci_address, None)
        if place not in uses:
            continue
        runs = any(client.engine_ns.values())
        handle_of_rocm = pid in compute and client.pci_address in of_kfd
        has_memory = any(client.memory_bytes.values()) and not handle_of_rocm
        if not (runs or has_memory or pid in uses[place]):
            continue
        use = uses[place].setdefault(pid, _Use())
        use.kinds |= _kinds(client, of_kfd=pid in compute)
        use.client_bytes = _plus(use.client_bytes, client.memory_bytes.get("vram"))
        ran = ratios[client.key]
        use.untold |= ran is None
        use.add_time(ran or {})


def _doubt_hidden(uses: _Uses, places: Mapping[CardPart, Node], compute: Mapping[int, object]) -> None:
    """Marks the use of GPUs that KFD hides by KFD's processes as unknown: their engines do not show it."""
    of_kfd = {address for address, _ in places}
    for (address, _), by_pid in uses.items():
        for pid in by_pid.keys() & compute.keys() if address not in of_kfd else ():
            by_pid[pid].by_kfd, by_pid[pid].occupied = True, None


def _kinds(client: Client, *, of_kfd: bool) -> set[str]:
    used = {engine for engine, ns in client.engine_ns.items() if ns}
    if used - _NO_GRAPHICS:
        return {"graphics"}
    return {"compute" if "compute" in used or of_kfd else "graphics"}


def _add_up_partitions(uses: _Uses, places: Mapping[CardPart, Node]) -> None:
    """Adds the use of the partitions to that of the whole GPU."""
    cards: dict[str, dict[CardPart, int]] = {}
    for place, node in places.items():
        if place[1] is not None:
            cards.setdefault(place[0], {})[place] = node.compute_units or 0
    for address, units in cards.items():
        total = sum(units.values())
        for place, of_place in units.items():
            weight = of_place / total if all(units.values()) else 1 / len(units)
            for pid, use in uses[place].items():
                uses[address, None].setdefault(pid, _Use()).add(use, weight)


def _process(pid: int, use: _Use, name: str | None, partition: int | None) -> Process:
    return Process(
        pid=pid,
        kind="+".join(sorted(use.kinds)),
        name=name or None,
        memory_used_bytes=use.memory_bytes,
        gpu_instance_id=partition,
        compute_instance_id=None if partition is None else 0,
    )


def _plus(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
