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
- `activity` becomes the samples of the processes with the busy time of the GPU, which the caller knows:
  see `process_activity`. JPEG is counted as decoding; GPUs with one queue for all video (VCN 4 and later)
  count decoding as encoding. Nothing measures `memory_ratio`. The first samples cover no time.
- `activity` is None when the use by one of the processes is unknown: of clients at the first sample or found
  late, and of HIP on GPUs that KFD hides. With samples of the other processes alone, these would be charged
  for it. It is None for a partitioned GPU as a whole, too: its partitions have it.
- The clients of a GPU or partition never have more than all of the time: if their sum is higher (engines
  run several rings at once), all are scaled down and ("process_samples", "clamped") is counted.

Pids: KFD's are those of the host, the pids of open files are those of the pid namespace of `procfs`. They
match only with the host's /proc. Reading the open files of other users takes CAP_SYS_PTRACE and
CAP_DAC_READ_SEARCH; without them ("fdinfo", "permission") is counted once per sample, and KFD's list
remains.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputally.devices import Errors
from gputally.devices.amdgpu.fdinfo import Client, ClientKey, ClientScan, EngineTimes, Scan
from gputally.devices.amdgpu.kfd import CardPart, ComputeUse, Kfd, KfdNode, locate_nodes
from gputally.devices.amdgpu.occupancy import NodeProcess, OccupancySampler, Watched, counts_every_die
from gputally.devices.amdgpu.process_activity import GROUPS, ProcessActivity, divide
from gputally.model import Process, ProcessSample

log = logging.getLogger(__name__)

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
    return dict.fromkeys(GROUPS, 0.0)


@dataclass(frozen=True, slots=True)
class FoundProcesses:
    """The processes of one GPU or partition; None where they are unknown."""

    processes: tuple[Process, ...] | None = None
    activity: ProcessActivity | None = None
    render_minor: int | None = None
    """The number of its render node (renderD<n>), where KFD has it."""

    def samples(self, busy_ratio: float | None) -> tuple[ProcessSample, ...] | None:
        return None if self.activity is None else self.activity.samples(busy_ratio)


@dataclass(slots=True)
class _ProcessUse:
    """The use of one GPU or partition by one process."""

    kinds: set[str] = field(default_factory=set)
    by_kfd: bool = False
    occupancy: tuple[str, ...] = ()
    """The directories of its `cu_occupancy`: it may have queues of KFD."""
    kfd_bytes: int | None = None
    client_bytes: int | None = None
    ran: dict[str, float] = field(default_factory=_idle)
    """By group of engines, the share of time."""
    unknown: bool = False
    """The time of one of its clients is unknown, or KFD hides the GPU."""

    @property
    def memory_bytes(self) -> int | None:
        return max((b for b in (self.kfd_bytes, self.client_bytes) if b is not None), default=None)

    def add(self, other: "_ProcessUse") -> None:
        """Adds the use of a partition."""
        self.kinds |= other.kinds
        self.kfd_bytes = _plus(self.kfd_bytes, other.kfd_bytes)
        self.client_bytes = _plus(self.client_bytes, other.client_bytes)


_Uses = dict[CardPart, dict[int, _ProcessUse]]


class ProcessFinder:
    """Finds the processes on AMD GPUs. `errors` never decreases."""

    def __init__(
        self,
        sysfs: Path,
        procfs: Path,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        occupancy: OccupancySampler | None = None,
    ) -> None:
        self.errors: Errors = Counter()
        self._kfd = Kfd(sysfs, self.errors)
        self._clients = ClientScan(procfs, self.errors)
        self._times = EngineTimes()
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._looked_at_ns: int | None = None
        self._occupancy = occupancy or OccupancySampler()
        self._occupied: Mapping[int, Mapping[int, int]] = {}
        """By node and pid, the occupancy when it was last above 0: a sample may miss short kernels."""
        self._not_counted: set[str] = set()

    def close(self) -> None:
        self._occupancy.close()

    def find(
        self, pci_addresses: Sequence[str], driver_version: str | None = None
    ) -> Mapping[CardPart, FoundProcesses]:
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
        occupied = {**self._occupied, **self._occupancy.take(self.errors)}
        watched = self._to_watch(uses, places, driver_version)
        self._occupancy.watch(watched)
        shared = {gpu_id for of_card in watched.values() for gpu_id, _ in of_card}
        self._occupied = {gpu_id: units for gpu_id, units in occupied.items() if gpu_id in shared}
        partitioned: set[CardPart] = {(address, None) for address, part in places if part is not None}
        found = {}
        for place, by_pid in uses.items():
            render_minor = places[place].render_minor if place in places else None
            if not files_tell and place[0] not in listed:
                found[place] = FoundProcesses(render_minor=render_minor)
                continue
            units = self._occupied.get(places[place].gpu_id, {}) if place in places else {}
            found[place] = FoundProcesses(
                tuple(_process(pid, use, names.get(pid), place[1]) for pid, use in sorted(by_pid.items())),
                None if place in partitioned else self._activity(by_pid, units, wall_us, covers_us),
                render_minor,
            )
        return found

    def _activity(
        self,
        uses: Mapping[int, _ProcessUse],
        occupied: Mapping[int, int],
        timestamp_us: int,
        covers_us: int,
    ) -> ProcessActivity | None:
        if any(use.unknown for use in uses.values()):
            return None
        queued = {pid: use for pid, use in uses.items() if use.occupancy}
        return ProcessActivity(
            timestamp_us=timestamp_us,
            covers_us=covers_us,
            engines=self._within_time(uses),
            queue_shares=divide(
                {pid: occupied.get(pid, 0) for pid in queued},
                {pid: use.kfd_bytes or 0 for pid, use in queued.items()},
                dict.fromkeys(queued, 1),
            ),
        )

    def _within_time(self, uses: Mapping[int, _ProcessUse]) -> dict[int, dict[str, float]]:
        ran = {pid: dict(use.ran) for pid, use in uses.items()}
        for group in GROUPS:
            total = sum(one[group] for one in ran.values())
            if total > 1 + _ROUNDING:
                self.errors["process_samples", "clamped"] += 1
            for one in ran.values():
                one[group] /= max(total, 1.0)
        return ran

    def _to_watch(
        self, uses: _Uses, places: Mapping[CardPart, KfdNode], driver_version: str | None
    ) -> Mapping[str, Watched]:
        """The processes whose occupancy is to be sampled: where several on one node have queues."""
        watched: dict[str, dict[NodeProcess, tuple[str, ...]]] = {}
        for place, node in places.items():
            queued = {pid: use.occupancy for pid, use in uses[place].items() if use.occupancy}
            if len(queued) < 2:
                continue
            if counts_every_die(node.gfx_version, driver_version):
                of_card = watched.setdefault(place[0], {})
                of_card |= {(node.gpu_id, pid): directories for pid, directories in queued.items()}
            elif place[0] not in self._not_counted:
                self._not_counted.add(place[0])
                log.warning(
                    "GPU %s: driver %s (before 6.12) reads cu_occupancy from one die only: busy time of "
                    "several processes is divided by their memory",
                    place[0],
                    driver_version or "unknown",
                )
        return watched


def _add_compute(
    uses: _Uses, places: Mapping[CardPart, KfdNode], compute: Mapping[int, Mapping[int, ComputeUse]]
) -> None:
    nodes = {node.gpu_id: place for place, node in places.items()}
    for pid, by_gpu in compute.items():
        for gpu_id, use in by_gpu.items():
            if use.resident and gpu_id in nodes:
                uses[nodes[gpu_id]][pid] = _ProcessUse(
                    kinds={"compute"}, by_kfd=True, occupancy=use.directories, kfd_bytes=use.vram_bytes
                )


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
    places: Mapping[CardPart, KfdNode],
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
        use = uses[place].setdefault(pid, _ProcessUse())
        use.kinds |= _kinds(client, of_kfd=pid in compute)
        use.client_bytes = _plus(use.client_bytes, client.memory_bytes.get("vram"))
        ran = ratios[client.key]
        # ROCm opens clients that it does not use.
        use.unknown |= ran is None and not use.by_kfd
        for group, ratio in (ran or {}).items():
            use.ran[group] += ratio


def _doubt_hidden(uses: _Uses, places: Mapping[CardPart, KfdNode], compute: Mapping[int, object]) -> None:
    """Marks the use of GPUs that KFD hides by KFD's processes as unknown: their engines do not show it."""
    of_kfd = {address for address, _ in places}
    for (address, _), by_pid in uses.items():
        for pid in by_pid.keys() & compute.keys() if address not in of_kfd else ():
            by_pid[pid].unknown = True


def _kinds(client: Client, *, of_kfd: bool) -> set[str]:
    used = {engine for engine, ns in client.engine_ns.items() if ns}
    if used - _NO_GRAPHICS:
        return {"graphics"}
    return {"compute" if "compute" in used or of_kfd else "graphics"}


def _add_up_partitions(uses: _Uses, places: Iterable[CardPart]) -> None:
    """Adds the use of the partitions to that of the whole GPU."""
    for address, part in places:
        if part is not None:
            for pid, use in uses[address, part].items():
                uses[address, None].setdefault(pid, _ProcessUse()).add(use)


def _process(pid: int, use: _ProcessUse, name: str | None, partition: int | None) -> Process:
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
