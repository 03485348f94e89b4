"""A table for the terminal, with the totals, the meter and the gaps below it."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from gputally.commands.bill.amounts import ENERGY
from gputally.commands.bill.model import Bill
from gputally.commands.bill.seal import Chain
from gputally.commands.bill.statement import Line, Statement, make_statement
from gputally.printable import printable

MOST_GAPS = 20
_HEAD = (
    *("GPU-h", "busy", "idle", "kWh", "measured", "shared", "held", "CO2 kg"),
    *("GPUs", "energy", "cost", "share"),
)


def write_table(bill: Bill, chain: Chain | None) -> str:  # noqa: ARG001  # a table has no seal
    statement = make_statement(bill, hour_digits=2, kwh_digits=2)
    return "\n".join([*_head(bill), "", *_rows(statement), "", *notes(statement), ""])


def notes(statement: Statement) -> Iterator[str]:
    """What the rows do not say: the meter, GPUs without a price, gaps."""
    bill = statement.bill
    meter, rows = statement.meter_joules, statement.total.energy_joules
    difference = f"{statement.difference_joules:,} J"
    part = f" ({statement.difference_joules / meter:.4%})" if meter else ""
    yield f"Meter: {meter:,} J. Rows: {rows:,} J. Difference: {difference}{part}."
    if bill.unpriced_us:
        hours = f"{statement.unpriced_gpu_hours:,.2f}"
        yield f"Without a price: {hours} GPU-hours. Set rules.tables.gpuHourPrices."
    if not bill.gaps:
        yield "Gaps: none."
        return
    yield f"Gaps: {len(bill.gaps)}."
    for gap in bill.gaps[:MOST_GAPS]:
        where = "/".join(printable(name) for name in (gap.cluster, gap.node or "all nodes") if name)
        times = f"{bill.period.local(gap.start)} to {bill.period.local(gap.end)}"
        yield f"  {gap.kind}: {times}, {where}: {gap.text}"
    if len(bill.gaps) > MOST_GAPS:
        yield f"  and {len(bill.gaps) - MOST_GAPS} more: --format json has all"


def title(bill: Bill) -> str:
    of = f" of cluster {printable(bill.cluster)}" if bill.cluster else ""
    return f"GPU bill by {bill.by}{of}"


def times(bill: Bill) -> str:
    period = bill.period
    return f"{period.local(period.start)} to {period.local(period.end)} ({period.zone.key})"


def _head(bill: Bill) -> Iterator[str]:
    yield title(bill)
    yield times(bill)
    if bill.currency:
        yield f"Costs in {bill.currency}"


def _rows(statement: Statement) -> Iterator[str]:
    rows = [_cells(line) for line in (*statement.lines, statement.total)]
    cells = [(statement.bill.by, *_HEAD), *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for number, row in enumerate(cells):
        if number in (1, len(cells) - 1):
            yield "-" * (sum(widths) + 2 * (len(widths) - 1))
        name, *values = (
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([name, *values])


def _cells(line: Line) -> Sequence[str]:
    return (
        name(line),
        _number(line.gpu_hours),
        _number(line.busy_gpu_hours),
        _number(line.idle_gpu_hours),
        _number(line.energy_kwh),
        *(_number(line.kwh.get(basis)) for basis in ENERGY[:3]),
        _number(line.co2_grams / 1000),
        _number(line.gpu_cost),
        _number(line.energy_cost),
        _number(line.cost),
        "" if line.share is None else f"{line.share:.1%}",
    )


def name(line: Line) -> str:
    """The key; of rows without an owner with what it is the key of."""
    own = line.kind in ("owner", "total")
    return printable(line.key) if own else f"{line.kind}: {printable(line.key)}"


def _number(value: Decimal | None) -> str:
    return "" if value is None else f"{value:,.2f}"
