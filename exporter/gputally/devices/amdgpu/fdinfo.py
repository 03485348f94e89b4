"""Clients of the DRM driver: the processes that have a GPU open, from /proc/<pid>/fdinfo/<fd>.

An open render or card device is a client, with the time that it used each engine and the memory that it
has (the kernel's drm-usage-stats). Work in KFD's queues, which HIP uses, is not in those times; its
memory is.

A client may be open in several processes: inherited by a fork, or passed over a socket. It is counted once,
for the process that started first, which is a fork's parent. A session broker (logind opens the GPU for the
compositor) is the exception: it is counted only when no other process has the client open.

Reading every open file of every process at every sample costs too much. A process without a GPU device is
read again after 30 s, at first sooner so that not all are due at once; a process with a device, or in the
caller's list, at every sample. A reused pid is detected by the inode of /proc/<pid>, which is part of the
listing of /proc and new for every process.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gputally.devices import Errors
from gputally.devices.amdgpu.files import ProcessFiles, parse_count

ClientKey = tuple[str, int]
"""PCI address and client id, which together are unique."""

_AGAIN_SECONDS = 30
_SECOND_NS = 1_000_000_000
_BROKERS = {"systemd", "systemd-logind", "elogind-daemon", "elogind", "seatd"}
_DEVICE = re.compile(r"/(?:dri/(?:renderD(?P<minor>\d{1,9})|card\d+)|kfd)(?: \(deleted\))?\Z")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_CAPACITY = "drm-engine-capacity-"
_SIZES = ("drm-total-", "drm-memory-", "drm-resident-")  # the last one that exists is used


@dataclass(frozen=True, slots=True)
class Client:
    """The driver's values of one client."""

    pci_address: str
    client_id: int
    engine_ns: Mapping[str, int] = field(default_factory=dict)
    """Time on each engine since the client was opened; unused engines may be missing."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    """The number of engines of a kind; 1 where it is missing."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Resident memory by region: vram, gtt, cpu."""

    @property
    def key(self) -> ClientKey:
        return self.pci_address, self.client_id


@dataclass(frozen=True, slots=True)
class Task:
    """One process: a pid from one start time on."""

    pid: int
    started_ticks: int
    name: str = field(compare=False)  # a process may change it


@dataclass(frozen=True, slots=True)
class Held:
    """A client, and the process that it is counted for."""

    client: Client
    owner: Task
    holders: frozenset[Task]
    render_minor: int | None
    """The render device through which it was opened: each partition has its own."""
    fresh: bool
    """True when it was certainly not open at the last scan."""


@dataclass(frozen=True, slots=True)
class Scan:
    """All clients, each once."""

    held: tuple[Held, ...]
    tasks: Mapping[int, Task]
    """The scanned processes that have a GPU device open or are in the caller's list."""
    pids: Collection[int]
    """The pids of all processes."""
    denied: bool
    """Whether there was no permission to read some processes."""


@dataclass(slots=True)
class _Watch:
    """A process between two scans."""

    inode: int
    due_ns: int = 0
    holds: bool = False
    denied: bool = False
    scan: int = -1
    """The last scan that read it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A client in one process."""

    client: Client
    task: Task
    render_minor: int | None = None
    fresh: bool = False


class ClientScan:
    """Scans the processes for clients of the driver."""

    def __init__(self, procfs: Path, errors: Errors) -> None:
        self._procfs = str(procfs)
        self._files = ProcessFiles("fdinfo", errors)
        self._watched: dict[int, _Watch] = {}
        self._scans = 0

    def scan(self, now_ns: int, always: Collection[int]) -> Scan | None:
        """Scans once, and the processes in `always` in any case; None when no process is visible."""
        listed = self._files.numbered(self._procfs)
        if not listed:
            return None
        watched: dict[int, _Watch] = {}
        opened: list[Opened] = []
        tasks: dict[int, Task] = {}
        for pid, inode in listed:
            watch = self._watched.get(pid)
            new = watch is None or watch.inode != inode
            if watch is None or new:
                watch = _Watch(inode)
            watched[pid] = watch
            if not (watch.holds or watch.due_ns <= now_ns or pid in always):
                continue
            fresh = self._scans > 0 and (new or watch.scan == self._scans - 1)
            watch.scan = self._scans
            clients = self._look_at(pid, watch)
            # A new process is due again within 30 s, each at another second; from then on every 30 s.
            watch.due_ns = now_ns + _SECOND_NS * (pid % _AGAIN_SECONDS + 1 if new else _AGAIN_SECONDS)
            if watch.holds or pid in always:
                task = parse_task(pid, self._files.read(f"{self._procfs}/{pid}/stat") or b"")
                if task is not None:
                    tasks[pid] = task
                    opened += [Opened(client, task, minor, fresh) for client, minor in clients]
        self._watched = watched
        self._scans += 1
        denied = any(watch.denied for watch in watched.values())
        if denied:
            self._files.count_denial()
        return Scan(join_holders(opened), tasks, watched.keys(), denied)

    def _look_at(self, pid: int, watch: _Watch) -> list[tuple[Client, int | None]]:
        """The clients that one process has open."""
        directory = f"{self._procfs}/{pid}"
        clients = []
        self._files.denied = False
        links = self._files.links(f"{directory}/fd")
        if links is not None:
            watch.holds = False
        for name, target in links or ():
            device = _DEVICE.search(target) if "/dri/" in target or "/kfd" in target else None
            if device is None:
                continue
            watch.holds = True
            if "/dri/" in device[0]:
                client = parse_fdinfo(self._files.read(f"{directory}/fdinfo/{name}") or b"")
                if client is not None:
                    minor = device["minor"]
                    clients.append((client, int(minor) if minor else None))
        watch.denied = self._files.denied
        return clients


def join_holders(opened: Iterable[Opened]) -> tuple[Held, ...]:
    """Every client once, however many processes have it open."""
    by_client: dict[ClientKey, list[Opened]] = {}
    for one in opened:
        by_client.setdefault(one.client.key, []).append(one)
    held = []
    for some in by_client.values():
        first = min(some, key=lambda one: (one.task.name in _BROKERS, one.task.started_ticks, one.task.pid))
        held.append(
            Held(
                client=first.client,
                owner=first.task,
                holders=frozenset(one.task for one in some),
                render_minor=next((one.render_minor for one in some if one.render_minor is not None), None),
                fresh=all(one.fresh for one in some),
            )
        )
    return tuple(held)


def parse_task(pid: int, stat: bytes) -> Task | None:
    """The process of a /proc/<pid>/stat; None when the text is malformed."""
    # The name may hold spaces, parentheses and line breaks: it ends at the last parenthesis.
    head, _, tail = stat.rpartition(b")")
    _, opening, name = head.partition(b"(")
    fields = tail.split()
    started = parse_count(fields[19].decode("ascii", "replace")) if len(fields) > 19 else -1
    if not opening or started < 0:
        return None
    return Task(pid, started, name.decode("utf-8", "replace"))


def parse_fdinfo(text: bytes) -> Client | None:
    """The client of one fdinfo file; None when it is no amdgpu client, or has no id."""
    pairs = {}
    engine_ns: dict[str, int] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        engine = key.removeprefix("drm-engine-")
        if engine != key and not engine.startswith("capacity-"):
            # Two generations of one block have the same name, which may occur twice.
            engine_ns[engine] = engine_ns.get(engine, 0) + (_quantity(value, {"ns": 1}) or 0)
        else:
            pairs[key] = value.strip()
    address = pairs.get("drm-pdev", "")
    client_id = parse_count(pairs.get("drm-client-id", ""))
    if pairs.get("drm-driver") != "amdgpu" or client_id < 0 or not _PCI_ADDRESS.fullmatch(address):
        return None
    memory_bytes: dict[str, int] = {}
    for size in _SIZES:
        memory_bytes |= _quantities(pairs, size, _BYTES)
    return Client(
        pci_address=address,
        client_id=client_id,
        engine_ns=engine_ns,
        capacity={name: many for name, many in _quantities(pairs, _CAPACITY, {"": 1}).items() if many},
        memory_bytes=memory_bytes,
    )


def _quantities(pairs: Mapping[str, str], prefix: str, units: Mapping[str, int]) -> dict[str, int]:
    return {
        key.removeprefix(prefix): quantity
        for key, value in pairs.items()
        if key.startswith(prefix) and (quantity := _quantity(value, units)) is not None
    }


def _quantity(value: str, units: Mapping[str, int]) -> int | None:
    """A number and its unit."""
    number, _, unit = value.strip().partition(" ")
    count, size = parse_count(number), units.get(unit.strip())
    return None if count < 0 or size is None else count * size


@dataclass(frozen=True, slots=True)
class _KnownClient:
    """A client that an earlier scan found."""

    engine_ns: Mapping[str, int]
    holders: frozenset[Task]


class EngineTimes:
    """Remembers the counters of the last sample."""

    def __init__(self) -> None:
        self._known: dict[ClientKey, _KnownClient] = {}

    def advance(
        self, held: Iterable[Held], pids: Collection[int], elapsed_ns: int | None
    ) -> dict[ClientKey, Mapping[str, int] | None]:
        """By client and engine, the time since the last sample; None when it is unknown.

        `elapsed_ns` is None at the first sample. `pids` are the existing processes: a client is remembered
        until the last of its holders ends, since its file may be unreadable only for a while.
        """
        times: dict[ClientKey, Mapping[str, int] | None] = {}
        known = {
            key: one for key, one in self._known.items() if any(task.pid in pids for task in one.holders)
        }
        for one in held:
            before = self._known.get(one.client.key)
            if before is not None and _other_client(before, one):
                before = None
            times[one.client.key] = _time_since(before, one, elapsed_ns)
            known[one.client.key] = _KnownClient(_highest(before, one), one.holders)
        self._known = known
        return times


def _other_client(before: _KnownClient, one: Held) -> bool:
    """Whether a reloaded driver has reused the id: less time than before, and other holders."""
    now = one.client.engine_ns
    return before.holders.isdisjoint(one.holders) and any(
        now.get(engine, 0) < ns for engine, ns in before.engine_ns.items()
    )


def _time_since(before: _KnownClient | None, one: Held, elapsed_ns: int | None) -> dict[str, int] | None:
    if elapsed_ns is None:
        return None
    most = {engine: elapsed_ns * one.client.capacity.get(engine, 1) for engine in one.client.engine_ns}
    if before is not None:
        return {
            engine: min(max(ns - before.engine_ns.get(engine, 0), 0), most[engine])
            for engine, ns in one.client.engine_ns.items()
        }
    # A client with more time than has passed was open before the last sample.
    if one.fresh and all(ns <= most[engine] for engine, ns in one.client.engine_ns.items()):
        return dict(one.client.engine_ns)
    return None


def _highest(before: _KnownClient | None, one: Held) -> dict[str, int]:
    """Counters may step back for a while; the larger value is kept until they have caught up."""
    highest = dict(before.engine_ns) if before is not None else {}
    for engine, ns in one.client.engine_ns.items():
        highest[engine] = max(ns, highest.get(engine, 0))
    return highest
