"""A small fleet as records of the bill, and a bill that is always the same."""

from zoneinfo import ZoneInfo

from gputally.commands.bill.amounts import Amounts
from gputally.commands.bill.model import Bill, Gap, Kind, Row
from gputally.commands.bill.period import Period
from tests.support.bill_store import BillStore

START = 1_790_812_800  # 2026-10-01T00:00:00Z
MINUTE, HOUR, DAY = 60, 3600, 86400
_OFFSET = 7.25
"""Seconds after the minute at which the rules are evaluated."""


def add_minute(
    store: BillStore, minute: int, *, cluster: str = "", node: str = "gpu-1", pods: int = 2
) -> None:
    """One evaluation: a node with four GPUs; each pod holds one, and uses it for half of the time."""
    at = START + minute * MINUTE + _OFFSET

    def add(level: str, record: str, value: float, **labels: str) -> None:
        store.add(
            f"{level}:gputally_bill_{record}", at, value, **{"cluster": cluster, "model": "H100"}, **labels
        )

    for number in range(pods):
        owner = {"namespace": f"team-{number}", "workload": f"train-{number}"}
        for level, labels in (
            ("pod", {**owner, "pod": f"train-{number}-0", "node": node}),
            ("workload", owner),
            ("namespace", {"namespace": owner["namespace"]}),
        ):
            add(level, "energy:joules", 12_000.001, basis="measured", **labels)
            add(level, "energy:joules", 600.002, basis="held", **labels)
            add(level, "allocated:seconds", 60, **labels)
            add(level, "busy:seconds", 30, **labels)
            add(level, "idle:seconds", 30, **labels)
            add(level, "gpu_cost:money", 0.015, **labels)
            add(level, "energy_cost:money", 0.0005, **labels)
            add(level, "co2:grams", 1.5, **labels)
    free = 4 - pods
    for level, labels in (("node", {"node": node}), ("model", {})):
        add(level, "meter:joules", pods * 12_600.003 + free * 3000, **labels)
        add(level, "energy:joules", pods * 12_000.001, basis="measured", **labels)
        add(level, "energy:joules", pods * 600.002, basis="held", **labels)
        add(level, "energy:joules", free * 3000, reason="idle", **labels)
        add(level, "time:seconds", pods * 30, state="used", **labels)
        add(level, "time:seconds", pods * 30, state="idle", **labels)
        add(level, "time:seconds", free * 60, state="free", **labels)
        add(level, "gpu_cost:money", pods * 0.015, state="allocated", **labels)
        add(level, "gpu_cost:money", free * 0.015, state="free", **labels)
        add(level, "energy_cost:money", pods * 0.0005, **labels)
        add(level, "energy_cost:money", free * 0.000125, reason="idle", **labels)
        add(level, "co2:grams", pods * 1.5, **labels)
        add(level, "co2:grams", free * 0.3, reason="idle", **labels)


def example_bill() -> Bill:
    """With a foreign name, a share that does not round, unknown busy time, and gaps."""
    hour = 3_600_000_000

    def row(
        key: str, kind: Kind, hours: int, busy: int | None, joules: dict[str, int], cost: tuple[int, int]
    ) -> Row:
        idle = None if busy is None else (hours - busy) * hour
        amounts = Amounts(
            hours * hour,
            None if busy is None else busy * hour,
            idle,
            {basis: amount * 1000 + 1 for basis, amount in joules.items()},
            sum(joules.values()) * 120,
            *(part * 1_000_000 for part in cost),
        )
        return Row(key, kind, amounts)

    rows = [
        row(
            "vision",
            Kind.OWNER,
            1488,
            1102,
            {"measured": 2_000_000_000, "held": 90_000_000},
            (1339_205, 87_083),
        ),
        row("nlp", Kind.OWNER, 744, None, {"shared": 700_000_000}, (669_605, 29_166)),
        row('<b>&"=cmd|\u202e', Kind.OWNER, 1, 1, {"measured": 1_111_111}, (335, 46)),
        row("slurm/42", Kind.HOST, 12, 6, {"measured": 9_000_000}, (10_800, 375)),
        row("free", Kind.UNALLOCATED, 700, None, {}, (630_000, 0)),
        row("idle", Kind.UNATTRIBUTED, 0, None, {"unattributed": 150_000_000}, (0, 6_250)),
        row("unobserved", Kind.UNATTRIBUTED, 0, None, {"unattributed": 3_600}, (0, 1)),
    ]
    period = Period(START, START + 31 * DAY, ZoneInfo("Europe/Berlin"))
    gaps = [
        Gap(START + HOUR, START + 2 * HOUR, "no data", "west", "", "billed with the minute after it"),
        Gap(
            START + 9 * HOUR,
            START + 9 * HOUR + MINUTE,
            "unobserved",
            "west",
            "gpu-<7>",
            "no owner is charged",
        ),
    ]
    meter = sum(one.amounts.millijoules for one in rows) + 25
    return Bill(
        period, "namespace", "west", "EUR", "records in http://prometheus:9090", rows, meter, hour // 2, gaps
    )
