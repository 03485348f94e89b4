"""One window on one device: the accounts present, and the energy that each is charged. No clock, no I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeVar

from gputally.ledger.apportion import Key, apportion
from gputally.ledger.power import BY_SM_TIME, Weights
from gputally.model import Owner, ProcessSample, Resident, Unknown

Account = tuple[str, ...]
"""An owner: ("pod", namespace, pod, container), ("host", name), or one of the two below."""
IDLE: Account = ("idle",)
UNKNOWN: Account = ("unknown",)
MEASURED, SHARED, HELD = "measured", "shared", "held"
NOT_SEEN = frozenset({"exited", "pid_namespace"})
"""Reasons for an unknown owner that exclude no owner: the process could not be looked up."""

_NOT_SEEN = "not seen"
"""Appended to an account, for processes that were not seen and are assigned to it."""
_HIDDEN: Account = ("hidden",)
_ALL_FIELDS = attrgetter(*(each.name for each in fields(Owner)))

ProcessId = tuple[int, float]
"""A pid, and the start of its process: the kernel reuses pids."""


@dataclass(slots=True)
class Usage:
    """Use of the device by one process in the window."""

    window_busy_us: int = 0
    """SM time."""
    window_memory_busy_us: int = 0
    """The part of its SM time in which device memory was active."""
    memory_bytes: int = 0
    """In the last sample that has it."""
    present: bool = False
    """Whether it is still running; false too for a process that ended between the last two samples."""


@dataclass(slots=True)
class AccountUsage(Usage):
    """Use of the device by one account: all its processes.

    The object is kept from sample to sample: new ones each time would be much of the ledger's cost.
    """

    account: Account = UNKNOWN
    not_seen: bool = False
    """These processes were not seen; they are assigned to the account because it alone holds the device."""
    owner: Owner | None = None
    """None if it is unknown. If several owners are one account (a container before and after a restart), the
    one with the lowest pid."""
    lowest_pid: int = 0
    busy_us: int | None = None
    """Its SM time since the sample before; None if that is not known."""
    mediated: bool = False
    """Whether an MPS server runs work of it: then its SM time cannot be known."""
    processes: dict[ProcessId, Usage] = field(default_factory=dict)

    def take_owner(self, owner: Owner | None, pid: int) -> None:
        """Considers the owner of one more process, whose pid is no higher."""
        if pid < self.lowest_pid or (owner and self.owner and _ALL_FIELDS(owner) > _ALL_FIELDS(self.owner)):
            self.owner, self.lowest_pid = owner, pid

    def note_process(self, resident: Resident, busy_us: int, memory_busy_us: int, memory_bytes: int) -> None:
        identity = process_id(resident)
        process = self.processes.get(identity)
        if process is None:
            process = self.processes[identity] = Usage()
        process.window_busy_us += busy_us
        process.window_memory_busy_us += memory_busy_us
        process.memory_bytes = memory_bytes
        process.present = not resident.ended


AnyUsage = TypeVar("AnyUsage", bound=Usage)


@dataclass(slots=True)
class Share:
    """The part of a window's energy that one account is charged, and the part of each of its processes."""

    account: Account
    basis: str
    millijoules: int
    processes: dict[ProcessId, int]
    not_seen: bool = False
    """Its processes were not seen."""


def account_of(owner: Owner) -> Account:
    """The account of an owner. Two pods of one name, one after the other, are one account and one series."""
    if owner.kind == "pod":
        return ("pod", owner.namespace, owner.pod, owner.container)
    return ("host", owner.name)


def process_id(resident: Resident) -> ProcessId:
    return (resident.process.pid, resident.started_at_seconds or 0.0)


class Window:
    """The use of one device until the energy of that time is known."""

    def __init__(self, *, by_process: bool) -> None:
        self._by_process = by_process
        self._usages: dict[Account, AccountUsage] = {}
        """By account; with one more element for processes that were not seen."""
        self._holders: Mapping[Account, Owner] = {}
        self._visible = True
        self._sampled = True
        """Whether the SM time of every process is known, or estimated."""
        self._memory_sampled = True
        """Whether the memory activity of every process is known too."""

    def observe(
        self, residents: Iterable[Resident], holders: Mapping[Account, Owner], *, visible: bool
    ) -> dict[Account, AccountUsage]:
        """Adds one sample; returns the accounts in it, valid until the next sample.

        `visible` is false if the driver does not list processes.
        """
        self._holders = holders
        self._visible = visible
        _mark_absent(self._usages.values())
        present: dict[Account, AccountUsage] = {}
        for resident in residents:
            process = resident.process
            if isinstance(resident.owner, Owner):
                owner: Owner | None = resident.owner
                key = account_of(resident.owner)
            else:
                key = _account_of_unknown(resident.owner, holders)
                if key is _HIDDEN:
                    self._visible = False
                    continue
                owner = holders.get(key[:-1])  # none if the owner is unknown
            usage = present.get(key)
            if usage is None:
                usage = present[key] = self._usages.get(key) or self._open(key, resident.owner)
                usage.owner, usage.lowest_pid = owner, process.pid
                usage.busy_us, usage.memory_bytes, usage.mediated = None, 0, False
            elif process.pid <= usage.lowest_pid:
                usage.take_owner(owner, process.pid)
            busy_us, memory_busy_us, memory_bytes = 0, 0, process.memory_used_bytes or 0
            if resident.samples is None:
                self._sampled = False
            else:
                busy_us, known_us = _busy_times(resident.samples)
                if known_us is None:
                    self._memory_sampled = False
                else:
                    memory_busy_us = known_us
                usage.busy_us = busy_us + (usage.busy_us or 0)
                usage.window_busy_us += busy_us
                usage.window_memory_busy_us += memory_busy_us
            usage.memory_bytes += memory_bytes
            usage.mediated |= resident.mediated
            usage.present |= not resident.ended
            if self._by_process:
                usage.note_process(resident, busy_us, memory_busy_us, memory_bytes)
        # Processes that were not seen are assigned to an account only if it alone holds the device.
        return _by_account(present) if len(holders) == 1 else present

    @property
    def resident(self) -> bool:
        """Whether a process was on the device."""
        return bool(self._usages)

    @property
    def busy_us(self) -> int | None:
        """SM time of all processes; None if that of any is not known."""
        if not (self._sampled and self._visible):
            return None
        return sum(usage.window_busy_us for usage in self._usages.values())

    @property
    def memory_busy_us(self) -> int | None:
        """The part of it with memory activity."""
        if not self._memory_sampled:
            return None
        return sum(usage.window_memory_busy_us for usage in self._usages.values())

    def close(self, millijoules: int, floor: int = 0, weights: Weights = BY_SM_TIME) -> list[Share]:
        """Divides the energy, and begins the next window with the accounts that are still present.

        `floor` is the part of the energy that the idle device would have used too.
        """
        shares = self._divide(millijoules, floor, weights if self._memory_sampled else BY_SM_TIME)
        self._sampled = self._memory_sampled = True
        _begin_window(self._usages)
        if self._by_process:
            for usage in self._usages.values():
                _begin_window(usage.processes)
        return shares

    def _open(self, key: Account, whose: Owner | Unknown) -> AccountUsage:
        not_seen = isinstance(whose, Unknown) and key is not UNKNOWN
        usage = self._usages[key] = AccountUsage(account=key[:-1] if not_seen else key, not_seen=not_seen)
        return usage

    def _divide(self, millijoules: int, floor: int, weights: Weights) -> list[Share]:
        if not self._usages:
            if not self._holders:
                return [Share(IDLE if self._visible else UNKNOWN, "", millijoules, {})]
            parts = apportion(millijoules, dict.fromkeys(self._holders, 1))
            return [Share(holder, HELD, part, {}) for holder, part in parts.items()]
        residents = dict.fromkeys(usage.account for usage in self._usages.values())
        # Its pod may be present in a container that is not known.
        waiting = [one for one in self._holders if one not in residents and (*one[:3], "") not in residents]
        if len(residents) + len(waiting) == 1:
            return self._by_activity(millijoules, MEASURED, weights)
        if self.busy_us == 0:
            floor = millijoules
        shares = self._equally(floor, [*residents, *waiting]) if floor else []
        if floor < millijoules:
            basis = MEASURED if len(residents) == 1 else SHARED
            shares += self._by_activity(millijoules - floor, basis, weights)
        return shares

    def _equally(self, millijoules: int, accounts: Iterable[Account]) -> list[Share]:
        """The energy of holding the device, which does not depend on activity."""
        shares = []
        usages_of: dict[Account, dict[Account, AccountUsage]] = {}
        for key, usage in self._usages.items():
            usages_of.setdefault(usage.account, {})[key] = usage
        for account, part in apportion(millijoules, dict.fromkeys(accounts, 1)).items():
            usages = usages_of.get(account, {})
            if not usages:
                shares.append(Share(account, HELD, part, {}))
            for key, own in apportion(part, dict.fromkeys(usages, 1)).items():
                share = Share(account, HELD, own, {}, usages[key].not_seen)
                if self._by_process:
                    share.processes = apportion(own, dict.fromkeys(usages[key].processes, 1))
                shares.append(share)
        return shares

    def _by_activity(self, millijoules: int, basis: str, weights: Weights) -> list[Share]:
        parts = _by_activity(millijoules, self._usages, weights)
        shares = [
            Share(usage.account, HELD if usage.not_seen else basis, part, {}, usage.not_seen)
            for usage, part in zip(self._usages.values(), parts.values(), strict=True)
        ]
        if self._by_process:
            for share, usage in zip(shares, self._usages.values(), strict=True):
                share.processes = _by_activity(share.millijoules, usage.processes, weights)
        return shares


def _account_of_unknown(owner: Unknown, holders: Mapping[Account, Owner]) -> Account:
    if owner.reason in NOT_SEEN and len(holders) == 1:
        return (*next(iter(holders)), _NOT_SEEN)
    return _HIDDEN if owner.reason == "pid_namespace" else UNKNOWN


def _busy_times(samples: Iterable[ProcessSample]) -> tuple[int, int | None]:
    """SM time, and the part of it with memory activity, which may not be known."""
    busy = memory_busy = 0.0
    known = True
    for sample in samples:
        covers_us, memory_ratio = sample.covers_us, sample.memory_ratio
        busy += sample.sm_ratio * covers_us
        if memory_ratio is None:
            known = False
        else:
            memory_busy += memory_ratio * covers_us
    busy_us = round(busy)
    if not known:
        return busy_us, None
    return busy_us, round(memory_busy) if memory_busy < busy else busy_us


def _mark_absent(usages: Iterable[AccountUsage]) -> None:
    """Marks all processes as absent, until a sample shows them."""
    for usage in usages:
        usage.present = False
        for process in usage.processes.values():
            process.present = False


def _by_account(present: dict[Account, AccountUsage]) -> dict[Account, AccountUsage]:
    """Merges the seen and the unseen processes of each account."""
    not_seen = [key for key, usage in present.items() if usage.not_seen]
    for key in not_seen:
        hidden = present.pop(key)
        seen = present.get(hidden.account)
        present[hidden.account] = hidden if seen is None else _both(seen, hidden)
    return present


def _both(seen: AccountUsage, hidden: AccountUsage) -> AccountUsage:
    known = [one.busy_us for one in (seen, hidden) if one.busy_us is not None]
    return AccountUsage(
        present=seen.present or hidden.present,
        account=seen.account,
        owner=seen.owner,
        busy_us=sum(known) if known else None,
        mediated=seen.mediated or hidden.mediated,
    )


def _by_activity(millijoules: int, usages: Mapping[Key, Usage], weights: Weights) -> dict[Key, int]:
    """Divides by SM time, weighted by its kind; if none of them ran, by memory."""
    compute, less = weights.compute, weights.compute - weights.memory
    activity = {
        key: compute * usage.window_busy_us - less * usage.window_memory_busy_us
        for key, usage in usages.items()
    }
    if not any(activity.values()):
        activity = {key: usage.memory_bytes for key, usage in usages.items()}
    return apportion(millijoules, activity)


def _begin_window(usages: dict[Key, AnyUsage]) -> None:
    """Keeps those that are still present, with no SM time yet."""
    for key in [key for key, usage in usages.items() if not usage.present]:
        del usages[key]
    for usage in usages.values():
        usage.window_busy_us = usage.window_memory_busy_us = 0
