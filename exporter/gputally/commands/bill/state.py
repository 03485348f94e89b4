"""A bill from the state file of a host's exporter, without a store: totals since its ledger began."""

import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gputally.commands.bill.amounts import UNATTRIBUTED, Amounts
from gputally.commands.bill.model import Bill, Kind, Row
from gputally.commands.bill.period import MINUTE, Period
from gputally.commands.bill.records import NANO
from gputally.commands.bill.teams import NO_TEAM, Teams
from gputally.ledger.state_file import StateFile
from gputally.model import BASES, Owner, Unavailable

GROUPINGS = ("namespace", "team", "node", "pod")
_US_PER_HOUR, _MJ_PER_KWH = 3_600_000_000, 3_600_000_000


def read_state(
    path: Path,
    *,
    by: str,
    zone: ZoneInfo,
    currency: str,
    gpu_hour_price: float,
    kwh_price: float,
    teams: Teams | None = None,
) -> Bill:
    """Raises Unavailable, and Rejected if the file is not usable."""
    saved = StateFile(path).peek()
    if saved is None:
        raise Unavailable(f"--state-file {path} does not exist", "set it to the exporter's --state-file")
    gpus: Mapping[str, Any] = saved.state["gpus"]
    prices = round(gpu_hour_price * NANO), round(kwh_price * NANO)
    sums: dict[tuple[Kind, str], Amounts] = defaultdict(Amounts)
    for uuid, gpu in gpus.items():
        for kind, key, amounts in _entries(uuid, gpu, by, teams, saved.saved_at_seconds):
            sums[kind, key] += _priced(amounts, *prices)
    start = min((gpu["began_at"] for gpu in gpus.values()), default=saved.saved_at_seconds)
    period = Period(int(start) // MINUTE * MINUTE, -int(-saved.saved_at_seconds // MINUTE) * MINUTE, zone)
    kinds = list(Kind)
    keys = sorted(sums, key=lambda key: (max(kinds.index(key[0]), 1), -sums[key].millijoules, key[1]))
    return Bill(
        period,
        by,
        "",
        currency,
        f"the ledger of {socket.gethostname()}, {path}",
        [Row(key, kind, sums[kind, key]) for kind, key in keys],
        sum(gpu["meter"]["total"] for gpu in gpus.values()),
        0,
        (),
    )


def _entries(
    uuid: str, gpu: Mapping[str, Any], by: str, teams: Teams | None, saved_at: float
) -> Iterator[tuple[Kind, str, Amounts]]:
    held_us = 0
    for account in gpu["owners"]:
        held, busy = account["held_us"], account["busy_us"]
        held_us += held
        kind, key = _key(Owner(**account["owner"]), by, teams)
        yield (
            kind,
            key,
            Amounts(
                held,
                busy,
                None if busy is None else max(0, held - busy),
                {basis: mj for basis, mj in zip(BASES, account["millijoules"], strict=True) if mj},
            ),
        )
    for reason, millijoules in gpu["unattributed"].items():
        if millijoules:
            yield Kind.UNATTRIBUTED, reason, Amounts(energy_millijoules={UNATTRIBUTED: millijoules})
    if all(account["device"] == uuid for account in gpu["owners"]):
        # Of a GPU in MIG mode the free time is not known: the file does not have the size of its devices.
        wall_us = round((saved_at - gpu["began_at"]) * 1_000_000)
        yield Kind.UNALLOCATED, "free", Amounts(allocated_us=max(0, wall_us - held_us))


def _key(owner: Owner, by: str, teams: Teams | None) -> tuple[Kind, str]:
    if by == "node":
        return Kind.OWNER, socket.gethostname()
    if owner.kind != "pod":
        return Kind.HOST, owner.name or owner.kind
    if teams is not None:
        return Kind.OWNER, teams.team_of(owner.namespace, {}) or NO_TEAM
    return Kind.OWNER, f"{owner.namespace}/{owner.pod}" if by == "pod" else owner.namespace


def _priced(amounts: Amounts, gpu_hour: int, kwh: int) -> Amounts:
    return amounts + Amounts(
        gpu_cost_nano=amounts.allocated_us * gpu_hour // _US_PER_HOUR,
        energy_cost_nano=amounts.millijoules * kwh // _MJ_PER_KWH,
    )
