"""The work of an MPS server belongs to its clients: pure functions, no clock, no I/O.

The driver samples the server, which runs the kernels of all its clients, and lists the clients as such. A
name alone never makes a process a server, since any tenant can choose it. A server is

- a process of the same pod or host owner as its clients that has the name: a false one is charged to itself;
- on a GPU in exclusive-process mode, the only process that is not a client: the driver lets no other in;
- elsewhere, a process that has the name, of a system service that is there for it: root names the services,
  and processes of users run in some of them.

Without a server the work stays with the owner of the process that has the samples.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gputally.attribution import FoundOwner
from gputally.model import Owner, ProcessSample, Reading, Resident, Unknown

# slurmd starts the daemon in a prolog, rc.local at boot.
_MPS_SERVICE = re.compile(r"service/(?:(?:.*[-_.@])?mps[-_.@]|slurmd|rc-local\.)")
_UNKNOWN = FoundOwner(Unknown("exited"))


def charge_clients(
    reading: Reading, residents: Sequence[Resident], found: Mapping[int, FoundOwner]
) -> list[Resident]:
    """The residents of one GPU, with the samples of MPS servers dealt to their clients."""
    if not any(map(_is_client, residents)):
        return list(residents)
    by_device: dict[str, list[Resident]] = defaultdict(list)
    for resident in residents:
        by_device[resident.uuid].append(resident)
    exclusive = bool((reading.compute_mode or {}).get(("exclusive_process",)))
    return [one for some in by_device.values() for one in _on_device(some, found, exclusive=exclusive)]


def _is_client(resident: Resident) -> bool:
    return "mps" in resident.process.kind


def _on_device(
    residents: Sequence[Resident], found: Mapping[int, FoundOwner], *, exclusive: bool
) -> Iterable[Resident]:
    clients = [one for one in residents if _is_client(one)]
    others = [one for one in residents if "compute" in one.process.kind and not _is_client(one)]
    named = [one for one in others if found.get(one.process.pid, _UNKNOWN).named_proxy]
    by_owner = {_owner_key(one.owner): one for one in named if isinstance(one.owner, Owner)}
    common = next((one for one in named if _is_service(one.owner)), None)
    if exclusive and len(others) == 1:
        common = others[0]
    clients_of: dict[int, list[Resident]] = defaultdict(list)
    servers: dict[int, Resident] = {}
    for client in clients:
        server = by_owner.get(_owner_key(client.owner)) or common
        if server is None:
            yield _unsampled(client)
        else:
            servers[server.process.pid] = server
            clients_of[server.process.pid].append(client)
    for pid, some in clients_of.items():
        yield from _deal(servers[pid].samples, some)
    yield from (one for one in residents if not _is_client(one) and one.process.pid not in servers)


def _owner_key(owner: Owner | Unknown) -> tuple[str, ...]:
    if isinstance(owner, Unknown):
        return ("",)
    return (owner.name, owner.namespace, owner.pod)


def _is_service(owner: Owner | Unknown) -> bool:
    return isinstance(owner, Owner) and _MPS_SERVICE.match(owner.name) is not None


def _unsampled(client: Resident) -> Resident:
    """Its server is not known. A driver that samples clients leaves nothing to guess."""
    return client if client.samples else replace(client, samples=None, mediated=client.samples is not None)


def _deal(samples: Sequence[ProcessSample] | None, clients: Sequence[Resident]) -> Iterable[Resident]:
    """The server's samples by the memory of its clients, or equally. Known, if all have one owner."""
    if samples is None:
        yield from clients
        return
    mediated = len({(*_owner_key(one.owner), getattr(one.owner, "container", "")) for one in clients}) > 1
    memory = [client.process.memory_used_bytes or 0 for client in clients]
    total = sum(memory)
    for client, used in zip(clients, memory, strict=True):
        part = used / total if total else 1 / len(clients)
        own = tuple(_scaled(sample, client.process.pid, part) for sample in samples)
        yield replace(client, samples=(*(client.samples or ()), *own), mediated=mediated)


def _scaled(sample: ProcessSample, pid: int, part: float) -> ProcessSample:
    def of(ratio: float | None) -> float | None:
        return None if ratio is None else ratio * part

    return ProcessSample(
        pid,
        sample.timestamp_us,
        sample.sm_ratio * part,
        of(sample.memory_ratio),
        of(sample.encoder_ratio),
        of(sample.decoder_ratio),
        sample.covers_us,
    )
