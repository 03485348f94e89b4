"""HTML: one file without scripts and external resources, to be sent to a team or printed."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from html import escape

from gputally.commands.bill.amounts import ENERGY
from gputally.commands.bill.formats.table import name, notes, times, title
from gputally.commands.bill.model import Bill
from gputally.commands.bill.seal import OPEN, Chain
from gputally.commands.bill.statement import Line, Statement, make_statement
from gputally.printable import printable

_MOST_BARS = 15
_BAR, _GAP, _NAMES, _WIDTH, _VALUES = 20, 8, 260, 560, 130

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --muted: #59636e; --line: #d1d9e0; --page: #fff;
  --card: #f6f8fa; --gpu: #2a6fdb; --energy: #e08a00; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --muted: #9198a1; --line: #3d444d;
  --page: #0d1117; --card: #151b23; --gpu: #5a9bff; --energy: #f0a93b; } }
@media print { :root { color-scheme: light; --text: #000; --muted: #444; --line: #bbb; --page: #fff;
  --card: #fff; --gpu: #2a6fdb; --energy: #e08a00; } @page { size: A4 landscape; margin: 12mm; }
body { padding: 0; } .scroll { overflow: visible; }
  tr, figure, .totals div { break-inside: avoid; } thead { display: table-header-group; } }
* { box-sizing: border-box; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 0 auto;
  padding: 2rem; max-width: 80rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .muted { color: var(--muted); }
.totals { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0; }
.totals div { flex: 1 1 9rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem 1rem; }
.totals b { display: block; font-size: 1.15rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 0; } svg { width: 100%; max-width: 60rem; height: auto; }
svg text { fill: var(--text); font-size: 13px; }
.gpu { fill: var(--gpu); } .energy { fill: var(--energy); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .8rem; }
th, td { text-align: right; padding: .3rem .45rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
td:first-child, th[rowspan] { text-align: left; white-space: normal; overflow-wrap: anywhere;
  min-width: 8rem; }
th[colspan] { text-align: center; border-left: 1px solid var(--line); }
thead th { color: var(--muted); font-weight: 600; } tfoot td { font-weight: 700; border-bottom: 0; }
@media print { table { font-size: 6.5pt; } th, td { padding: .15rem .25rem; } }
"""
_METHOD = (
    "Each joule of the energy counters of the GPUs is in exactly one row. Energy is measured if one owner "
    "used a GPU, shared if several did, and held if the GPU was allocated but not in use.",
    "GPU-hours are the time for which a GPU was allocated or in use; a GPU that several owners held at once "
    "is divided among them. Idle is allocated time without work; it is not known for every GPU.",
    "Costs are sums over minutes. Each minute has the prices, the power usage effectiveness (PUE) and the "
    "CO2 per kWh that were set then.",
    "Unallocated is the time of GPUs that no owner held. Unattributed is energy of no owner.",
    "Numbers are rounded so that rows and columns add up to the totals.",
)
_NO_RESOURCES = "default-src 'none'; style-src 'unsafe-inline'"


def write_html(bill: Bill, chain: Chain | None) -> str:
    statement = make_statement(bill, hour_digits=2, kwh_digits=2)
    seal = f" <!-- {OPEN} -->" if chain else ""
    body = [
        f"<h1>{_safe(title(bill))}</h1>",
        f'<p class="muted">{_safe(times(bill))}</p>',
        *_totals(statement),
        *_chart(statement),
        *_table(statement, seal),
        "<h2>Meter and gaps</h2>",
        *(f"<p>{_safe(note)}</p>" for note in notes(statement)),
        "<h2>How it was computed</h2>",
        *(f"<p>{text}</p>" for text in _METHOD),
        f'<p class="muted">Source: {_safe(bill.source)}.</p>',
        *([f'<p class="muted">Continues the bill {chain.previous}.</p>'] if chain and chain.previous else []),
    ]
    head = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_RESOURCES}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_safe(title(bill))}, {_safe(times(bill))}</title>",
        f"<style>{_STYLE}</style></head><body>",
    ]
    return "\n".join([*head, *body, f"</body></html>{seal}", ""])


def _safe(text: str) -> str:
    return escape(printable(text))


def _totals(statement: Statement) -> Iterator[str]:
    total, currency = statement.total, statement.bill.currency
    yield '<div class="totals">'
    for label, value in (
        ("Cost", f"{total.cost:,.2f} {currency}"),
        ("of it GPUs", f"{total.gpu_cost:,.2f} {currency}"),
        ("of it energy", f"{total.energy_cost:,.2f} {currency}"),
        ("Energy", f"{total.energy_kwh:,.1f} kWh"),
        ("GPU time", f"{total.gpu_hours:,.1f} h"),
        ("CO2", f"{total.co2_grams / 1000:,.1f} kg"),
    ):
        yield f'<div><span class="muted">{label}</span><b>{_safe(value.strip())}</b></div>'
    yield "</div>"


def _chart(statement: Statement) -> Iterator[str]:
    """One bar per row: what its GPUs and its energy cost, or its energy if nothing has a price."""
    priced = bool(statement.total.cost)
    lines = sorted(statement.lines, key=lambda line: -_bar(line, priced=priced))[:_MOST_BARS]
    most = max((_bar(line, priced=priced) for line in lines), default=Decimal())
    if not most:
        return
    unit = (
        f"Cost{f' in {statement.bill.currency}' if statement.bill.currency else ''}"
        if priced
        else "Energy in kWh"
    )
    height = len(lines) * (_BAR + _GAP)
    more = (
        f", the {_MOST_BARS} largest of {len(statement.lines)} rows"
        if len(statement.lines) > _MOST_BARS
        else ""
    )
    yield f"<h2>{_safe(unit)}{more}</h2>"
    if priced:
        yield (
            '<p class="muted"><svg width="12" height="12" style="width:12px" aria-hidden="true">'
            '<rect class="gpu" width="12" height="12"/></svg> GPUs &nbsp; '
            '<svg width="12" height="12" style="width:12px" aria-hidden="true">'
            '<rect class="energy" width="12" height="12"/></svg> energy</p>'
        )
    box = f"0 0 {_NAMES + _WIDTH + _VALUES} {height}"
    yield f'<figure><svg viewBox="{box}" role="img" aria-label="{_safe(unit)}">'
    for number, line in enumerate(lines):
        top = number * (_BAR + _GAP)
        baseline = top + _BAR - 5
        yield f'<text x="{_NAMES - 8}" y="{baseline}" text-anchor="end">{_safe(_short(name(line)))}</text>'
        left = float(_NAMES)
        for style, value in _segments(line, priced=priced):
            width = float(value / most) * _WIDTH
            if width:
                yield f'<rect class="{style}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}"/>'
            left += width
        yield f'<text x="{left + 6:.1f}" y="{baseline}">{_bar(line, priced=priced):,.2f}</text>'
    yield "</svg></figure>"


def _bar(line: Line, *, priced: bool) -> Decimal:
    return line.cost if priced else line.energy_kwh


def _segments(line: Line, *, priced: bool) -> Sequence[tuple[str, Decimal]]:
    return (
        (("gpu", line.gpu_cost), ("energy", line.energy_cost)) if priced else (("energy", line.energy_kwh),)
    )


def _short(text: str, most: int = 36) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _table(statement: Statement, seal: str) -> Iterator[str]:
    currency = f" ({statement.bill.currency})" if statement.bill.currency else ""
    bases = [basis for basis in ENERGY if basis in statement.total.kwh]
    groups = (
        (f"Cost{currency}", ("total", "GPUs", "energy", "share")),
        ("GPU-hours", ("total", "busy", "idle")),
        ("kWh", ("total", *bases)),
        ("CO2", ("kg",)),
    )
    yield '<h2>Rows</h2><div class="scroll"><table><thead>'
    heads = "".join(f'<th colspan="{len(names)}">{_safe(group)}</th>' for group, names in groups)
    yield f'<tr><th rowspan="2">{_safe(statement.bill.by)}</th>{heads}</tr>'
    heads = "".join(f"<th>{_safe(name)}</th>" for _, names in groups for name in names)
    yield f"<tr>{heads}</tr></thead><tbody>{seal}"
    for line in statement.lines:
        yield f"<tr>{_tds(line, bases)}</tr>{seal}"
    yield f"</tbody><tfoot><tr>{_tds(statement.total, bases)}</tr></tfoot></table></div>{seal}"


def _tds(line: Line, bases: Sequence[str]) -> str:
    cells = (
        name(line),
        _number(line.cost),
        _number(line.gpu_cost),
        _number(line.energy_cost),
        "" if line.share is None else f"{line.share:.1%}",
        _number(line.gpu_hours),
        _number(line.busy_gpu_hours),
        _number(line.idle_gpu_hours),
        _number(line.energy_kwh),
        *(_number(line.kwh.get(basis)) for basis in bases),
        _number(line.co2_grams / 1000),
    )
    return "".join(f"<td>{_safe(cell)}</td>" for cell in cells)


def _number(value: Decimal | None) -> str:
    return "" if value is None else f"{value:,.2f}"
