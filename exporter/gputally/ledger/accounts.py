"""The accounts of one GPU: the energy charged to each owner. The sum is the energy that the meter counted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from gputally.ledger.apportion import apportion
from gputally.ledger.meter import Meter, MeterSample
from gputally.ledger.power import PowerModel, WindowActivity
from gputally.ledger.window import (
    IDLE,
    UNKNOWN,
    Account,
    AccountUsage,
    ProcessId,
    Share,
    Window,
    account_of,
    process_id,
)
from gputally.model import (
    BASES,
    UNATTRIBUTED,
    Charge,
    GpuLedger,
    Labelled,
    Owner,
    ProcessCharge,
    Resident,
    Unknown,
)

MOST_PROCESSES = 2048
"""Processes with an account of their own, on all GPUs, with those that have ended and not yet expired."""
_OWNER_FIELDS = tuple(each.name for each in fields(Owner))
_BASIS_LABELS = tuple((basis,) for basis in BASES)
_BASIS = {basis: index for index, basis in enumerate(BASES)}


class DeviceSample(NamedTuple):
    """One sample of a whole GPU, or of one of its MIG devices."""

    uuid: str
    residents: Sequence[Resident]
    holders: Sequence[Owner]
    visible: bool
    """Whether the driver lists its processes."""
    sampled: bool
    """Whether the driver samples its processes."""
    weight: int = 1
    """Its share of the GPU's energy, relative to the other devices."""
    size: int = 1
    """Its share of the GPU's idle energy, relative to the other devices."""
    active_ratio: float | None = None
    """Its utilisation, if that is known for the whole device only."""
    active: bool | None = None
    """Whether the driver reports activity of the device as a whole; None if it does not report it."""


@dataclass(slots=True)
class _OwnerAccount:
    """What one owner used of one device."""

    owner: Owner
    seen_us: int
    active: bool = True
    millijoules: list[int] = field(default_factory=lambda: [0] * len(BASES))
    held_us: int = 0
    busy_us: int | None = None


@dataclass(slots=True)
class _ProcessAccount:
    """What one process used of one device."""

    resident: Resident
    identity: ProcessId
    account: Account
    seen_us: int
    active: bool = True
    millijoules: int = 0


class GpuAccounts:
    """The accounts of one GPU. They begin with the first sample."""

    def __init__(self, uuid: str, now_seconds: float, max_window_us: int, *, process_accounts: bool) -> None:
        self.uuid = uuid
        self.index = 0
        self.meter = Meter(max_window_us)
        self._power = PowerModel()
        self._began_at_seconds = now_seconds
        self._max_window_us = max_window_us
        self._process_accounts = process_accounts
        self._sampled_us: int | None = None
        self._windows: dict[str, Window] = {}
        self._owners: dict[str, dict[Account, _OwnerAccount]] = {}  # by device
        self._processes: dict[tuple[str, int], _ProcessAccount] = {}
        self.room_for_processes = MOST_PROCESSES
        self.processes_left_out = 0
        self._unattributed = dict.fromkeys(UNATTRIBUTED, 0)
        self._room = 0
        self._refused: set[Account] = set()  # in this window
        self.refused = 0
        """How often an owner got no account."""

    def settle(self, sample: MeterSample, devices: Sequence[DeviceSample], room: int) -> int:
        """Takes in one sample, and charges the energy used since the last one.

        Of `room` accounts that can be opened, it returns those that are left.
        """
        self._room = room
        self._settle(sample, devices)
        return self._room

    def _settle(self, sample: MeterSample, devices: Sequence[DeviceSample]) -> None:
        length_us = 0 if self._sampled_us is None else sample.at_us - self._sampled_us
        self._sampled_us = sample.at_us
        if not 0 <= length_us <= self._max_window_us:
            length_us = 0  # nothing was observed: no owner is charged for this time
        self.mark_inactive()
        self._windows = {
            device.uuid: self._windows.get(device.uuid) or Window(by_process=self._process_accounts)
            for device in devices
        }
        for device in devices:
            self._note_time(device, sample.at_us, length_us)
            if self._process_accounts:
                self._note_processes(device, sample.at_us)
        if self.meter.source is None:
            if self.meter.begin(sample):
                self._unattributed["initial"] = self.meter.total_millijoules
            for window in self._windows.values():
                window.close(0)  # the ledger begins here: earlier activity does not count
            return
        opened_us = self.meter.closed_us
        measured = self.meter.measure(sample)
        if measured is None:
            return
        if not measured.observed:
            self._unattributed["unobserved"] += measured.millijoules
            for window in self._windows.values():
                window.close(0)
            return
        activity = self._activity(opened_us, sample.at_us, measured.millijoules, devices)
        self._power.learn(activity)
        floor = self._power.floor_millijoules(activity)
        floors = apportion(floor, {(device.uuid,): device.size for device in devices})
        dynamic = apportion(
            measured.millijoules - floor, {(device.uuid,): device.weight for device in devices}
        )
        for key, part in floors.items():
            shares = self._windows[key[0]].close(part + dynamic[key], part, self._power.weights)
            self._charge(key[0], shares)
        self._refused.clear()

    def _activity(
        self, opened_us: int, at_us: int, millijoules: int, devices: Sequence[DeviceSample]
    ) -> WindowActivity:
        """The use of the whole GPU in the window, as far as it is known."""
        busy_us: int | None = 0
        resident = False
        for device in devices:
            window = self._windows[device.uuid]
            resident = resident or window.resident
            used_us = window.busy_us
            if used_us is None and device.active is False:
                used_us = 0
            elif used_us == 0 and device.active:
                used_us = None  # work of a process that is not sampled
            busy_us = None if busy_us is None or used_us is None else busy_us + used_us
        memory_busy_us = self._windows[devices[0].uuid].memory_busy_us if len(devices) == 1 else None
        return WindowActivity(at_us, at_us - opened_us, millijoules, resident, busy_us, memory_busy_us)

    def mark_inactive(self) -> None:
        """Marks all owners and processes as absent, until a sample shows them."""
        for owners in self._owners.values():
            for account in owners.values():
                account.active = False
        for process in self._processes.values():
            process.active = False

    @property
    def process_count(self) -> int:
        return len(self._processes)

    @property
    def owner_count(self) -> int:
        return sum(map(len, self._owners.values()))

    def gone_since_us(self) -> Iterable[int]:
        """When the owners that are gone were seen last."""
        return (account.seen_us for _, account in self._owner_accounts() if not account.active)

    def expire_before(self, at_us: int) -> int:
        """Closes the accounts of owners and processes that were seen last before that time."""
        closed = 0
        for uuid, owners in list(self._owners.items()):
            for key, account in list(owners.items()):
                if not account.active and account.seen_us < at_us:
                    self._unattributed["expired"] += sum(account.millijoules)
                    del owners[key]
                    closed += 1
            if not owners:
                del self._owners[uuid]
        for process_key, process in list(self._processes.items()):
            if not process.active and process.seen_us < at_us:
                del self._processes[process_key]
        return closed

    def _note_time(self, device: DeviceSample, at_us: int, length_us: int) -> None:
        holders = {account_of(holder): holder for holder in device.holders}
        present = self._windows[device.uuid].observe(device.residents, holders, visible=device.visible)
        if device.active_ratio is not None and len(present) == 1:
            for usage in present.values():
                usage.mediated = False
                usage.busy_us = round(device.active_ratio * length_us)
        for account, holder in holders.items():
            # Its pod may be present in a container that is not known.
            if account not in present and (*account[:3], "") not in present:
                present[account] = AccountUsage(owner=holder, busy_us=0 if device.sampled else None)
        owners = self._owners.setdefault(device.uuid, {})
        for account, usage in present.items():
            owner, busy_us = usage.owner, usage.busy_us
            if owner is None:
                continue
            owner_account = owners.get(account)
            if owner_account is None:
                if self._room <= 0:
                    self._refused.add(account)
                    self.refused += 1
                    continue
                self._room -= 1
                owner_account = owners[account] = _OwnerAccount(owner, at_us)
            owner_account.owner = owner
            owner_account.seen_us = at_us
            owner_account.active = usage.present or account in holders
            owner_account.held_us += length_us
            if usage.mediated:
                # A time that stands still while it works would look idle.
                owner_account.busy_us = None
            elif busy_us is not None:
                # Activity before the first sample of this GPU does not count.
                owner_account.busy_us = (owner_account.busy_us or 0) + (busy_us if length_us else 0)

    def _note_processes(self, device: DeviceSample, at_us: int) -> None:
        residents = device.residents
        if len({resident.process.pid for resident in residents}) < len(residents):
            # Of two processes with one pid, the one that runs now, or ran last, has the series.
            residents = sorted(residents, key=lambda one: (not one.ended, process_id(one)))
        for resident in residents:
            key = (device.uuid, resident.process.pid)
            identity, owner = process_id(resident), _series(resident.owner)
            account = self._processes.get(key)
            if account is None and len(self._processes) >= self.room_for_processes:
                self.processes_left_out += 1
                continue
            # Another process, or one whose owner has become known since: a new account.
            if account is None or account.identity != identity or account.account != owner:
                account = self._processes[key] = _ProcessAccount(resident, identity, owner, at_us)
            elif not resident.ended:  # the samples of a process that ended have no name
                account.resident = resident
            account.seen_us, account.active = at_us, not resident.ended

    def _charge(self, uuid: str, shares: Iterable[Share]) -> None:
        owners = self._owners.get(uuid, {})
        for share in shares:
            owner = owners.get(share.account)
            if owner is not None:
                owner.millijoules[_BASIS[share.basis]] += share.millijoules
            elif share.account in (IDLE, UNKNOWN):
                self._unattributed[share.account[0]] += share.millijoules
            elif share.account in self._refused:
                self._unattributed["unknown"] += share.millijoules
            else:  # its account expired before its last window was closed
                self._unattributed["expired"] += share.millijoules
            for identity, millijoules in share.processes.items():
                process = self._processes.get((uuid, identity[0]))
                if process is None or process.identity != identity:
                    continue
                if process.account == share.account or (process.account == UNKNOWN and share.not_seen):
                    process.millijoules += millijoules

    def gpu_ledger(self) -> GpuLedger | None:
        """The energy of the GPU; None while it cannot be measured."""
        if self.meter.source is None:
            return None
        return GpuLedger(
            gpu_index=self.index,
            uuid=self.uuid,
            began_at_seconds=self._began_at_seconds,
            energy_source=self.meter.source,
            energy_millijoules=self.meter.total_millijoules,
            unattributed_millijoules={(reason,): amount for reason, amount in self._unattributed.items()},
        )

    def charges(self) -> Iterable[Charge]:
        for uuid, account in self._owner_accounts():
            yield Charge(
                gpu_index=self.index,
                uuid=uuid,
                owner=account.owner,
                active=account.active,
                energy_millijoules=self._by_basis(account),
                held_microseconds=account.held_us,
                busy_microseconds=account.busy_us,
            )

    def _owner_accounts(self) -> Iterable[tuple[str, _OwnerAccount]]:
        return ((uuid, account) for uuid, owners in self._owners.items() for account in owners.values())

    def _by_basis(self, account: _OwnerAccount) -> Labelled | None:
        if self.meter.source is None:
            return None
        return dict(zip(_BASIS_LABELS, account.millijoules, strict=True))

    def process_charges(self) -> Iterable[ProcessCharge]:
        for (uuid, pid), account in self._processes.items():
            resident, active = account.resident, account.active
            yield ProcessCharge(
                gpu_index=self.index,
                uuid=uuid,
                pid=pid,
                name=resident.process.name or "",
                owner=resident.owner,
                active=active,
                started_at_seconds=resident.started_at_seconds,
                memory_used_bytes=resident.process.memory_used_bytes if active else None,
                sm_ratio=resident.mean_ratio("sm_ratio") if active else None,
                memory_ratio=resident.mean_ratio("memory_ratio") if active else None,
                energy_millijoules=None if self.meter.source is None else account.millijoules,
            )

    def state(self) -> dict[str, Any]:
        """The state to resume from, for JSON."""
        return {
            "index": self.index,
            "began_at": self._began_at_seconds,
            "meter": self.meter.state(),
            "power": self._power.state(self._sampled_us or 0),
            "unattributed": dict(self._unattributed),
            "owners": [
                {
                    "device": uuid,
                    "owner": {
                        name: value for name in _OWNER_FIELDS if (value := getattr(account.owner, name))
                    },
                    "millijoules": list(account.millijoules),
                    "held_us": account.held_us,
                    "busy_us": account.busy_us,
                    "unseen_us": max(0, (self._sampled_us or 0) - account.seen_us),
                }
                for uuid, account in self._owner_accounts()
            ],
        }

    def resume(self, state: Mapping[str, Any], sample: MeterSample) -> None:
        """Continues the accounts of an earlier exporter, if this sample follows them."""
        unobserved = self.meter.resume(state["meter"], sample)
        if unobserved is None:
            return
        self._power.resume(state["power"], sample.at_us)
        self._began_at_seconds = state["began_at"]
        self._unattributed |= {reason: int(state["unattributed"][reason]) for reason in UNATTRIBUTED}
        self._unattributed["unobserved"] += unobserved
        for entry in state["owners"]:
            owner = Owner(**entry["owner"])
            account = self._owners.setdefault(entry["device"], {}).setdefault(
                account_of(owner), _OwnerAccount(owner, sample.at_us - entry["unseen_us"], False)
            )
            account.millijoules = list(entry["millijoules"])
            account.held_us += entry["held_us"]
            if entry["busy_us"] is not None:
                account.busy_us = (account.busy_us or 0) + entry["busy_us"]


def _series(owner: Owner | Unknown) -> Account:
    return UNKNOWN if isinstance(owner, Unknown) else account_of(owner)
