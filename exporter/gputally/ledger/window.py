"""One window on one device: who was there, and who is charged for the energy used in it. No clock, no I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeVar

from gputally.ledger.deal import Key, deal
from gputally.model import Owner, Resident, Unknown

Account = tuple[str, ...]
"""Whose it is: ("pod", namespace, pod, container), ("host", name), or one of the two below."""
IDLE: Account = ("idle",)
UNKNOWN: Account = ("unknown",)
MEASURED, SHARED, HELD = "measured", "shared", "held"
NOT_SEEN = frozenset({"exited", "pid_namespace"})
"""Reasons why an owner is unknown that say nothing about who it is: nobody looked in time, or could."""

_NOT_SEEN = "not seen"
"""One more word behind an account, for processes that nobody saw and that are taken for its own."""
_HIDDEN: Account = ("hidden",)
_ALL_FIELDS = attrgetter(*(each.name for each in fields(Owner)))

ProcessId = tuple[int, float]
"""A pid, and when its process started: the kernel gives pids away again."""


@dataclass(slots=True)
class Work:
    """What one process did in the window."""

    worked_us: int = 0
    memory_bytes: int = 0
    """At the last look that found it."""
    present: bool = False
    """Whether it is still there; false too for one that ended between the last two looks."""


@dataclass(slots=True)
class Tenant(Work):
    """An account with processes on the device, and what the last look that found it says of it.

    It is kept from look to look: to make all of them anew each time would be much of what the ledger costs.
    """

    account: Account = UNKNOWN
    not_seen: bool = False
    """Nobody saw these processes; they are taken for its own because it alone holds the device."""
    owner: Owner | None = None
    """None where it is unknown; of several that are one account (say, a container before and after a
    restart), that of the lowest pid."""
    lowest_pid: int = 0
    busy_us: int | None = None
    """Its SM time since the look before; None where that is not known."""
    processes: dict[ProcessId, Work] = field(default_factory=dict)

    def take_owner(self, owner: Owner | None, pid: int) -> None:
        """Of one more process, whose pid is no higher."""
        if pid < self.lowest_pid or (owner and self.owner and _ALL_FIELDS(owner) > _ALL_FIELDS(self.owner)):
            self.owner, self.lowest_pid = owner, pid

    def note_process(self, resident: Resident, busy_us: int, memory_bytes: int) -> None:
        identity = process_id(resident)
        process = self.processes.get(identity)
        if process is None:
            process = self.processes[identity] = Work()
        process.worked_us += busy_us
        process.memory_bytes = memory_bytes
        process.present = not resident.ended


AnyWork = TypeVar("AnyWork", bound=Work)


@dataclass(slots=True)
class Share:
    """What one account gets of a window's energy, and each of its processes of that."""

    account: Account
    basis: str
    millijoules: int
    processes: dict[ProcessId, int]


def account_of(owner: Owner) -> Account:
    """Two pods of one name, one after the other, are one account, as they are one series."""
    if owner.kind == "pod":
        return ("pod", owner.namespace, owner.pod, owner.container)
    return ("host", owner.name)


def process_id(resident: Resident) -> ProcessId:
    return (resident.process.pid, resident.started_at_seconds or 0.0)


class Window:
    """What is seen on one device until the energy that was used meanwhile is known."""

    def __init__(self, *, by_process: bool) -> None:
        self._by_process = by_process
        self._tenants: dict[Account, Tenant] = {}
        """By account; by one more word for the processes that nobody saw."""
        self._holders: Mapping[Account, Owner] = {}
        self._visible = True

    def look(
        self, residents: Iterable[Resident], holders: Mapping[Account, Owner], *, visible: bool
    ) -> dict[Account, Tenant]:
        """Add one look, and say who is there: to be read before the next one.

        `visible` is false where the driver does not tell.
        """
        self._holders = holders
        self._visible = visible
        _leave(self._tenants.values())
        there: dict[Account, Tenant] = {}
        for resident in residents:
            process = resident.process
            if isinstance(resident.owner, Owner):
                owner: Owner | None = resident.owner
                key = account_of(resident.owner)
            else:
                key = _taken_for(resident.owner, holders)
                if key is _HIDDEN:
                    self._visible = False
                    continue
                owner = holders.get(key[:-1])  # none for those of nobody
            tenant = there.get(key)
            if tenant is None:
                tenant = there[key] = self._tenants.get(key) or self._open(key, resident.owner)
                tenant.owner, tenant.lowest_pid = owner, process.pid
                tenant.busy_us, tenant.memory_bytes = None, 0
            elif process.pid <= tenant.lowest_pid:
                tenant.take_owner(owner, process.pid)
            busy_us, memory_bytes = 0, process.memory_used_bytes or 0
            if resident.samples is not None:
                busy = 0.0
                for sample in resident.samples:
                    busy += sample.sm_ratio * sample.covers_us
                busy_us = round(busy)
                tenant.busy_us = busy_us + (tenant.busy_us or 0)
                tenant.worked_us += busy_us
            tenant.memory_bytes += memory_bytes
            if not resident.ended:
                tenant.present = True
            if self._by_process:
                tenant.note_process(resident, busy_us, memory_bytes)
        # Those that nobody saw are taken for someone's own only where one alone holds the device.
        return _by_account(there) if len(holders) == 1 else there

    def close(self, millijoules: int) -> list[Share]:
        """Charge the energy, and begin the next window with those who are still there."""
        shares = self._share_out(millijoules)
        _begin_window(self._tenants)
        if self._by_process:
            for tenant in self._tenants.values():
                _begin_window(tenant.processes)
        return shares

    def _open(self, key: Account, whose: Owner | Unknown) -> Tenant:
        not_seen = isinstance(whose, Unknown) and key is not UNKNOWN
        tenant = self._tenants[key] = Tenant(account=key[:-1] if not_seen else key, not_seen=not_seen)
        return tenant

    def _share_out(self, millijoules: int) -> list[Share]:
        if not self._tenants:
            if not self._holders:
                return [Share(IDLE if self._visible else UNKNOWN, "", millijoules, {})]
            parts = deal(millijoules, dict.fromkeys(self._holders, 1))
            return [Share(holder, HELD, part, {}) for holder, part in parts.items()]
        parts = _by_work(millijoules, self._tenants)
        basis = MEASURED if len({tenant.account for tenant in self._tenants.values()}) == 1 else SHARED
        shares = [
            Share(tenant.account, HELD if tenant.not_seen else basis, part, {})
            for tenant, part in zip(self._tenants.values(), parts.values(), strict=True)
        ]
        if self._by_process:
            for share, tenant in zip(shares, self._tenants.values(), strict=True):
                share.processes = _by_work(share.millijoules, tenant.processes)
        return shares


def _taken_for(stranger: Unknown, holders: Mapping[Account, Owner]) -> Account:
    if stranger.reason in NOT_SEEN and len(holders) == 1:
        return (*next(iter(holders)), _NOT_SEEN)
    return _HIDDEN if stranger.reason == "pid_namespace" else UNKNOWN


def _leave(tenants: Iterable[Tenant]) -> None:
    """Nobody is there, as long as no look says so."""
    for tenant in tenants:
        tenant.present = False
        for process in tenant.processes.values():
            process.present = False


def _by_account(there: dict[Account, Tenant]) -> dict[Account, Tenant]:
    """What was seen of an account and what was not, as one."""
    not_seen = [key for key, tenant in there.items() if tenant.not_seen]
    for key in not_seen:
        hidden = there.pop(key)
        seen = there.get(hidden.account)
        there[hidden.account] = hidden if seen is None else _both(seen, hidden)
    return there


def _both(seen: Tenant, hidden: Tenant) -> Tenant:
    known = [one.busy_us for one in (seen, hidden) if one.busy_us is not None]
    return Tenant(
        present=seen.present or hidden.present,
        account=seen.account,
        owner=seen.owner,
        busy_us=sum(known) if known else None,
    )


def _by_work(millijoules: int, works: Mapping[Key, Work]) -> dict[Key, int]:
    """By SM time; where none ran, by the memory that each holds."""
    weights = {key: work.worked_us for key, work in works.items()}
    if not any(weights.values()):
        weights = {key: work.memory_bytes for key, work in works.items()}
    return deal(millijoules, weights)


def _begin_window(works: dict[Key, AnyWork]) -> None:
    """With those who are still there; nobody has done anything in it yet."""
    for key in [key for key, work in works.items() if not work.present]:
        del works[key]
    for work in works.values():
        work.worked_us = 0
