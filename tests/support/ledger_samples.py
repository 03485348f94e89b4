"""What the ledger is fed with, in few words."""

from collections.abc import Sequence
from typing import Any

from gputally.ledger import Ledger
from gputally.model import (
    Charge,
    DeviceKey,
    Gpu,
    GpuLedger,
    MigInstance,
    MigReading,
    Owner,
    Process,
    ProcessSample,
    Reading,
    Resident,
    Unknown,
)

SECOND = 1_000_000
GIB = 1 << 30
GPU = Gpu("GPU-a", 0, "NVIDIA", "H100")
Holders = Sequence[tuple[DeviceKey, Owner]]


def pod(name: str, container: str = "main", **more: str) -> Owner:
    return Owner("pod", namespace="team", pod=name, container=container, **more)


def holds(*owners: Owner, uuid: str = GPU.uuid) -> list[tuple[DeviceKey, Owner]]:
    return [((0, uuid), owner) for owner in owners]


def resident(
    pid: int,
    owner: Owner | Unknown,
    *,
    busy: float | None = 0.0,
    memory: int | None = GIB,
    uuid: str = GPU.uuid,
    started: float | None = 1.0,
    ended: bool = False,
    name: str | None = "python",
) -> Resident:
    """`busy` is in SM seconds since the last look; None where the driver does not sample."""
    samples: tuple[ProcessSample, ...] | None = None
    if busy is not None:
        samples = (ProcessSample(pid, 0, busy / 10, busy / 40, 0.0, 0.0, 10 * SECOND),) if busy else ()
    kind = "ended" if ended else "compute"
    process = Process(pid, kind, None if ended else name, 0 if ended else memory)
    return Resident(0, uuid, process, owner, samples, started, ended)


def reading(
    joules: float | None,
    *,
    gpu: Gpu = GPU,
    watts: float | None = None,
    mig: tuple[MigReading, ...] = (),
    visible: bool = True,
    sampled: bool = True,
) -> Reading:
    return Reading(
        gpu=gpu,
        energy_millijoules=None if joules is None else round(joules * 1000),
        power_watts=watts,
        power_limit_watts=700.0,
        processes=() if visible else None,
        process_samples=() if sampled else None,
        mig=mig,
    )


def mig(number: int, *, profile: str | None = None, visible: bool = True, **more: Any) -> MigReading:
    instance = MigInstance(f"MIG-{number}", GPU.uuid, 0, number, 0, profile)
    return MigReading(instance=instance, processes=() if visible else None, **more)


def new_ledger(**more: Any) -> Ledger:
    return Ledger(**{"retention_seconds": 300, "max_window_seconds": 60, **more})


def settle(
    ledger: Ledger,
    at: float,
    readings: Reading | Sequence[Reading],
    residents: Sequence[Resident] = (),
    holders: Holders = (),
) -> None:
    """`at` is in seconds."""
    ledger.settle(
        at_us=round(at * SECOND),
        now_seconds=1e9 + at,
        readings=[readings] if isinstance(readings, Reading) else readings,
        residents=residents,
        holders=holders,
    )


def joules(ledger: Ledger, owner: Owner, *, uuid: str | None = None) -> dict[str, float]:
    """By basis, those that are not zero."""
    found: dict[str, float] = {}
    for charge in ledger.charges():
        if charge.owner == owner and uuid in (None, charge.uuid):
            for (basis,), amount in (charge.energy_millijoules or {}).items():
                if amount:
                    found[basis] = found.get(basis, 0.0) + amount / 1000
    return found


def nobodys(ledger: Ledger) -> dict[str, float]:
    """By reason, those that are not zero, of the first GPU."""
    unattributed = ledger.gpu_ledgers()[0].unattributed_millijoules
    return {reason: amount / 1000 for (reason,), amount in unattributed.items() if amount}


def charge_of(ledger: Ledger, owner: Owner, *, uuid: str = GPU.uuid) -> Charge:
    return next(one for one in ledger.charges() if (one.owner, one.uuid) == (owner, uuid))


def charged_millijoules(ledger: Ledger, gpu_index: int) -> int:
    return sum(
        int(amount)
        for charge in ledger.charges()
        if charge.gpu_index == gpu_index
        for amount in (charge.energy_millijoules or {}).values()
    )


def assert_balanced(ledger: Ledger) -> tuple[GpuLedger, ...]:
    """Owners and unattributed are what the meter says, of every GPU, to the millijoule."""
    for of_gpu in ledger.gpu_ledgers():
        rest = sum(of_gpu.unattributed_millijoules.values())
        assert charged_millijoules(ledger, of_gpu.gpu_index) + rest == of_gpu.energy_millijoules
    return ledger.gpu_ledgers()
