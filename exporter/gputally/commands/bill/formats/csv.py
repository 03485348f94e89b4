"""CSV: the rows and the total."""

import csv
import io
from collections.abc import Sequence
from decimal import Decimal

from gputally.commands.bill.amounts import ENERGY
from gputally.commands.bill.model import Bill
from gputally.commands.bill.seal import OPEN, Chain
from gputally.commands.bill.statement import Line, make_statement
from gputally.printable import printable

_COLUMNS = (
    *("from", "to", "cluster", "by", "key", "kind"),
    *("gpu_hours", "busy_gpu_hours", "idle_gpu_hours", "energy_joules", "energy_kwh"),
    *(f"energy_kwh_{basis}" for basis in ENERGY),
    *("co2_grams", "gpu_cost", "energy_cost", "cost", "currency", "share"),
)
_FORMULA = ("=", "+", "-", "@", "\t")


def write_csv(bill: Bill, chain: Chain | None) -> str:
    statement = make_statement(bill)
    head, seal = list(_COLUMNS), list[str]()
    if chain:
        head += ["previous_seal", "seal"]
        seal = [chain.previous, OPEN]
    return table([head, *([*_cells(bill, line), *seal] for line in (*statement.lines, statement.total))])


def table(rows: Sequence[Sequence[object]]) -> str:
    """The text of a CSV file. A missing value is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(one) for one in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """Names of others on one line, and never a formula of a spreadsheet."""
    if isinstance(value, Decimal):
        return f"{value:f}"  # never with an exponent
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _cells(bill: Bill, line: Line) -> list[object]:
    period = bill.period
    return [
        period.local(period.start),
        period.local(period.end),
        bill.cluster,
        bill.by,
        line.key,
        line.kind,
        line.gpu_hours,
        line.busy_gpu_hours,
        line.idle_gpu_hours,
        line.energy_joules,
        line.energy_kwh,
        *(line.kwh.get(basis) for basis in ENERGY),
        line.co2_grams,
        line.gpu_cost,
        line.energy_cost,
        line.cost,
        bill.currency,
        None if line.share is None else round(line.share, 6),
    ]
