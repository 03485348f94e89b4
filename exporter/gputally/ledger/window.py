"""One window on one device: who was there, and who is charged for the energy used in it. No clock, no I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter

from gputally.ledger.deal import Key, deal
from gputally.model import Owner, Resident, Unknown

Account = tuple[str, ...]
"""Whose it is: ("pod", namespace, pod, container), ("host", name), or one of the two below."""
IDLE: Account = ("idle",)
UNKNOWN: Account = ("unknown",)
MEASURED, SHARED, HELD = "measured", "shared", "held"
NOT_SEEN = frozenset({"exited", "pid_namespace"})
"""Reasons why an owner is unknown that say nothing about who it is: nobody looked in time, or could."""

_ALL_FIELDS = attrgetter(*(each.name for each in fields(Owner)))

ProcessId = tuple[int, float]
"""A pid, and when its process started: the kernel gives pids away again."""
_Tenant = tuple[Account, bool]
"""An account with processes on the device; true for processes that nobody saw, and that are taken for its
own because it alone holds the device."""
_UNKNOWN: _Tenant = (UNKNOWN, False)
_HIDDEN: _Tenant = (UNKNOWN, True)


@dataclass(slots=True)
class _Work:
    """What one tenant, or one process of it, did in the window."""

    owner: Owner | None
    busy_us: int = 0
    memory_bytes: int = 0
    present: bool = False
    """Whether it is still there; false too for one that ended between the last two looks."""
    sampled: bool = False
    processes: dict[ProcessId, "_Work"] = field(default_factory=dict)


@dataclass(slots=True)
class Presence:
    """Someone on the device since the last look, as one look found it."""

    owner: Owner | None
    """None where it is unknown."""
    busy_us: int | None = None
    """Its SM time since the last look; None where that is not known."""
    present: bool = True
    """False when all that it had there has ended."""


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
        self._tenants: dict[_Tenant, _Work] = {}
        self._holders: Mapping[Account, Owner] = {}
        self._visible = True

    def look(
        self, residents: Iterable[Resident], holders: Mapping[Account, Owner], *, visible: bool
    ) -> dict[Account, Presence]:
        """Add one look, and say who is there. `visible` is false where the driver does not tell."""
        self._holders = holders
        self._visible = visible
        now: dict[_Tenant, _Work] = {}
        for resident in residents:
            owner: Owner | None
            if isinstance(resident.owner, Owner):
                owner = resident.owner
                tenant = (account_of(owner), False)
            else:
                tenant = _tenant_of(resident.owner, holders)
                owner = holders.get(tenant[0])
                if tenant is _HIDDEN:
                    self._visible = False
                    continue
            work = now.get(tenant)
            if work is None:
                work = now[tenant] = _Work(owner)
            elif work.owner is not owner:
                work.owner = _one_of(work.owner, owner)
            busy = 0.0
            if resident.samples is not None:
                for sample in resident.samples:
                    busy += sample.sm_ratio * sample.covers_us
                work.sampled = True
            busy_us, memory_bytes = round(busy), resident.process.memory_used_bytes or 0
            work.busy_us += busy_us
            work.memory_bytes += memory_bytes
            work.present |= not resident.ended
            if self._by_process:
                work.processes[process_id(resident)] = _Work(owner, busy_us, memory_bytes, not resident.ended)
        there = _presences(now)
        self._tenants = _merged(self._tenants, now)
        return there

    def close(self, millijoules: int) -> list[Share]:
        """Charge the energy, and begin the next window with those who are still there."""
        shares = self._share_out(millijoules)
        self._tenants = {tenant: work for tenant, work in self._tenants.items() if work.present}
        for work in self._tenants.values():
            work.busy_us = 0
            if work.processes:
                work.processes = {
                    key: _Work(one.owner, 0, one.memory_bytes, True)
                    for key, one in work.processes.items()
                    if one.present
                }
        return shares

    def _share_out(self, millijoules: int) -> list[Share]:
        if not self._tenants:
            if not self._holders:
                return [Share(IDLE if self._visible else UNKNOWN, "", millijoules, {})]
            parts = deal(millijoules, dict.fromkeys(self._holders, 1))
            return [Share(holder, HELD, part, {}) for holder, part in parts.items()]
        basis = MEASURED if len({account for account, _ in self._tenants}) == 1 else SHARED
        return [
            Share(
                account,
                HELD if not_seen else basis,
                part,
                _by_work(part, self._tenants[account, not_seen].processes) if self._by_process else {},
            )
            for (account, not_seen), part in _by_work(millijoules, self._tenants).items()
        ]


def _tenant_of(stranger: Unknown, holders: Mapping[Account, Owner]) -> _Tenant:
    if stranger.reason in NOT_SEEN and len(holders) == 1:
        return (next(iter(holders)), True)
    return _HIDDEN if stranger.reason == "pid_namespace" else _UNKNOWN


def _presences(works: Mapping[_Tenant, _Work]) -> dict[Account, Presence]:
    """Those works by account, as long as they are of one look."""
    there: dict[Account, Presence] = {}
    for (account, _), work in works.items():
        busy_us = work.busy_us if work.sampled else None
        before = there.get(account)
        if before is None:
            there[account] = Presence(work.owner, busy_us, work.present)
        else:  # seen and not seen
            before.owner = _one_of(before.owner, work.owner)
            before.present |= work.present
            if busy_us is not None:
                before.busy_us = (before.busy_us or 0) + busy_us
    return there


def _one_of(one: Owner | None, other: Owner | None) -> Owner | None:
    """Of two that are one account (say, a container before and after a restart), whichever came first."""
    if one == other or one is None or other is None:
        return one
    return max(one, other, key=_ALL_FIELDS)


def _by_work(millijoules: int, works: Mapping[Key, _Work]) -> dict[Key, int]:
    """By SM time; where none ran, by the memory that each holds."""
    if len(works) == 1:
        return dict.fromkeys(works, millijoules)
    weights = {key: work.busy_us for key, work in works.items()}
    if not any(weights.values()):
        weights = {key: work.memory_bytes for key, work in works.items()}
    return deal(millijoules, weights)


def _merged(before: dict[Key, _Work], now: dict[Key, _Work]) -> dict[Key, _Work]:
    """Busy time adds up over the looks of a window; of memory, what was held at the last one counts."""
    for key, work in before.items():
        again = now.get(key)
        if again is None:
            work.present = False
            now[key] = work
            for process in work.processes.values():
                process.present = False
        else:
            again.busy_us += work.busy_us
            if work.processes:
                again.processes = _merged(work.processes, again.processes)
    return now
