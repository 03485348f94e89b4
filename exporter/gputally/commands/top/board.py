"""The lines of the screen, as text with styles that have a meaning; colours are chosen in `screen`."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from gputally.commands.top import figures
from gputally.commands.top.page import (
    CRITICAL,
    GPUS,
    NODES,
    OK,
    OWNERS,
    WARNING,
    GpuRow,
    Graph,
    NodeRow,
    OwnerRow,
    Page,
    Problem,
    Row,
)
from gputally.commands.top.state import State, row_at
from gputally.model import Unavailable
from gputally.printable import printable

NARROWEST, SHORTEST = 60, 12
_TALL = 36
"""From this height on the graphs have several lines."""
_TALL_GRAPH = 5
_MOST_PROBLEMS = 3
_VENDOR_WORDS = {"NVIDIA", "AMD", "Instinct", "GeForce", "Radeon", "Tesla"}
_MARKS = {OK: "", WARNING: "! ", CRITICAL: "!! "}
"""Besides the colour."""
TITLE, HEADING, DIM, BAR, PLAIN, SELECTED, KEY = "title", "heading", "dim", "bar", "plain", "selected", "key"
VIEW_NAMES = {NODES: "nodes", GPUS: "GPUs", OWNERS: "pods"}


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    style: str = PLAIN


Line = list[Span]
"""Not wider than the screen."""


@dataclass(frozen=True, slots=True)
class Size:
    width: int
    height: int

    @property
    def fits(self) -> bool:
        return self.width >= NARROWEST and self.height >= SHORTEST

    @property
    def graph_height(self) -> int:
        return _TALL_GRAPH if self.height >= _TALL else 1

    @property
    def graph_points(self) -> int:
        """The columns of each of the two graphs."""
        return max(2, (self.width - 2) // 2 - 22)


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    width: int
    text: Callable[[Row], str]
    sort: str = ""
    left: bool = False
    ratio: Callable[[Row], float | None] | None = None
    """For a bar before the text."""
    rank: int = 0
    """Columns of a higher rank are left out first where the screen is narrow."""
    lead: bool = False
    """One of those that describe the row; below a GPU, the owner's name takes their place."""
    most: int = 0
    """It grows up to this width where the screen is wider."""


def board(
    state: State,
    page: Page | None,
    failure: Unavailable | None,
    size: Size,
    *,
    unicode: bool = True,
) -> list[Line]:
    """All lines of the screen."""
    if not size.fits:
        return _too_small(size)
    if state.help:
        return _cut(_help_lines(), size)
    if page is None:
        return _cut(_without_page(failure), size)
    if page.view != state.view:  # the page of the new view is on its way
        page = replace(page, view=state.view, rows=(), row_count=0)
    lines = [_title(state, page, size), *_graphs(page, size, unicode=unicode)]
    problems = _problems(state, page, failure, size.width)
    lines += problems
    if not page.totals.gpus and state.pod is None:
        lines += _no_gpus()
        return [*_cut(lines, Size(size.width, size.height - 1)), _keys(state, size)]
    columns = fitting(_columns(state.view, page), size.width - 1)
    lines.append(_heading(columns, state))
    rows = rows_of(state, page, failure, size)
    lines += [
        _row_line(row, columns, page.offset + at == state.selected, unicode)
        for at, row in enumerate(page.rows[:rows])
    ]
    if not page.rows:
        lines.append([Span(f" {_nothing(state)}", DIM)])
    lines += [[] for _ in range(size.height - 2 - len(lines))]
    return [
        _clipped(line, size.width)
        for line in [*lines[: size.height - 2], _detail(state, page, rows), _keys(state, size)]
    ]


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit, the most important ones, wider where there is room."""
    kept = list(columns)
    while sum(one.width + 1 for one in kept) > width and any(one.rank for one in kept):
        kept.remove(max(kept, key=lambda one: one.rank))
    spare = width - sum(one.width + 1 for one in kept)
    for at, column in enumerate(kept):
        more = max(0, min(spare, column.most - column.width))
        kept[at] = replace(column, width=column.width + more)
        spare -= more
    return kept


def heading_at(columns: Sequence[Column], x: int) -> str:
    """The order of the column whose heading is at this place; empty where there is none."""
    place = 1
    for column in columns:
        if place <= x < place + column.width:
            return column.sort
        place += column.width + 1
    return ""


def columns_of(state: State, page: Page, size: Size) -> list[Column]:
    return fitting(_columns(state.view, page), size.width - 1)


def heading_line(state: State, page: Page, failure: Unavailable | None, size: Size) -> int:
    """The line of the table's heading."""
    return 1 + size.graph_height + len(_problems(state, page, failure, size.width))


def rows_of(state: State, page: Page | None, failure: Unavailable | None, size: Size) -> int:
    """How many rows of the table there is room for."""
    problems = len(_problems(state, page, failure, size.width)) if page else 0
    # Title, graphs, problems, heading; the reason below the table, the keys.
    return max(1, size.height - 2 - size.graph_height - problems - 2)


def _columns(view: str, page: Page) -> list[Column]:
    several = page.totals.nodes > 1
    node = Column("NODE", 14, lambda row: row.node, "name", left=True, lead=True, most=30)
    shared = [
        Column(
            "UTIL",
            12,
            lambda row: figures.percent(row.utilization_ratio),
            "utilization",
            ratio=lambda row: row.utilization_ratio,
            most=36,
        ),
        Column("MEMORY", 16, _memory, "memory", ratio=_memory_ratio, most=40),
        Column("POWER", 9, _power, "power"),
    ]
    if view == NODES:
        return [
            node,
            Column("STATE", 16, _state, "state", left=True, lead=True, most=32),
            Column("GPUS", 7, _up_of_gpus),
            Column("ALLOC", 5, lambda row: figures.number(_of_node(row).allocated), rank=1),
            Column("IDLE", 5, lambda row: figures.number(_of_node(row).idle), "idle", rank=2),
            *shared,
        ]
    energy = Column(
        "ENERGY",
        8,
        lambda row: figures.joules(row.energy_joules) if not isinstance(row, NodeRow) else "",
        "energy",
        rank=3,
    )
    if view == OWNERS:
        return [
            Column("POD OR OWNER", 20, _owner_name, "name", left=True, lead=True, most=40),
            *([node] if several else []),
            Column("GPUS", 6, _gpus_of_owner, rank=1),
            Column("ALLOC", 7, _allocated, rank=2),
            *shared,
            energy,
        ]
    return [
        *([node] if several else []),
        Column("GPU", 4, lambda row: row.index if isinstance(row, GpuRow) else "", "name", lead=True),
        Column(
            "MODEL",
            8,
            _model,
            left=True,
            lead=True,
            most=26,
            rank=4 if several else 0,
        ),
        Column("STATE", 11, _state, "state", left=True, lead=True, most=32),
        *shared,
        Column(
            "TEMP",
            5,
            lambda row: figures.celsius(row.temperature_celsius) if isinstance(row, GpuRow) else "",
            "temperature",
            rank=1,
        ),
        energy,
    ]


def _title(state: State, page: Page, size: Size) -> Line:
    totals = page.totals
    parts = [
        f"{totals.gpus_up} of {totals.gpus} GPUs up"
        if totals.gpus_up < totals.gpus
        else f"{totals.gpus} GPUs",
        *([f"{totals.nodes} nodes"] if totals.nodes > 1 else []),
        *([f"node {state.node}"] if state.node else []),
        *([f"namespace {state.namespace}"] if state.namespace else []),
        *([f"pod {'/'.join(state.pod)}"] if state.pod else []),
        *(["SIMULATED"] if page.simulated else []),
        *(["PAUSED"] if state.paused else []),
    ]
    left = f"gputally top  {printable(page.title)}  "
    right = time.strftime(" %H:%M:%S", time.localtime(page.taken_at_seconds))
    middle = printable(", ".join(parts))
    return [
        Span(left, TITLE),
        Span(
            f"{middle:<{max(0, size.width - len(left) - len(right))}}"[: size.width - len(left) - len(right)]
        ),
        Span(right, DIM),
    ]


def _graphs(page: Page, size: Size, *, unicode: bool) -> list[Line]:
    totals = page.totals
    minutes = f"{page.graph_seconds / 60:.0f}m"
    half = (size.width - 2) // 2
    left = _graph(
        page.utilization_graph,
        ["utilisation", figures.percent(totals.utilization_ratio), f"last {minutes}"],
        half,
        size,
        unicode,
    )
    memory = f"mem {figures.gibibytes(totals.memory_used_bytes, totals.memory_total_bytes)}"
    right = _graph(
        page.power_graph, ["power", figures.watts(totals.power_watts), memory], half, size, unicode
    )
    return [[*one, Span("  "), *other] for one, other in zip(left, right, strict=True)]


def _graph(graph: Graph | None, words: Sequence[str], width: int, size: Size, unicode: bool) -> list[Line]:
    points = size.graph_points
    label = width - points - 1
    drawn = (
        figures.columns(graph.values[-points:], graph.top, size.graph_height, unicode=unicode)
        if graph
        else []
    )
    texts = [" ".join(words[:2])] if size.graph_height == 1 else list(words)
    return [
        [
            Span(f"{texts[at] if at < len(texts) else '':<{label}} "[: label + 1]),
            Span((drawn[at] if at < len(drawn) else "").rjust(points), BAR),
        ]
        for at in range(size.graph_height)
    ]


def _problems(state: State, page: Page, failure: Unavailable | None, width: int) -> list[Line]:
    """Those at the top: a failing source, and the first problems of the others."""
    found = [Problem(CRITICAL, "no new values", failure.reason, failure.fix)] if failure else []
    found += [one for one in page.problems if state.node in ("", one.subject.partition(":")[0])]
    lines = [line for one in found[:_MOST_PROBLEMS] for line in _problem_lines(one, width)]
    if len(found) > _MOST_PROBLEMS:
        lines.append([Span(f"   and {len(found) - _MOST_PROBLEMS} more", DIM)])
    return lines


def _problem_lines(problem: Problem, width: int) -> list[Line]:
    """One line, or two where the fix has no room in the first one."""
    line = _problem_line(problem)
    if len(line) == 1 or sum(len(span.text) for span in line) <= width:
        return [line]
    return [line[:1], [Span(f"   {line[1].text.removeprefix('. ')}", DIM)]]


def _problem_line(problem: Problem) -> Line:
    text = f"{_MARKS[problem.severity]}{printable(problem.subject)}: {printable(problem.reason)}"
    fix = [Span(f". Fix: {printable(problem.fix)}", DIM)] if problem.fix else []
    return [Span(text, problem.severity), *fix]


def _heading(columns: Sequence[Column], state: State) -> Line:
    line = [Span(" ", HEADING)]
    for column in columns:
        sorted_by = column.sort and column.sort == state.sorted_by
        title = f"{column.title}{('^' if state.reverse else 'v') if sorted_by else ''}"
        line.append(Span(f"{_fit(title, column.width, column.left)} ", HEADING))
    return line


def _row_line(row: Row, columns: Sequence[Column], selected: bool, unicode: bool) -> Line:
    line = [Span(">" if selected else " ", SELECTED if selected else PLAIN)]
    nested = isinstance(row, OwnerRow) and not row.gpu_count
    style = DIM if isinstance(row, OwnerRow) and not row.active else PLAIN
    if nested and isinstance(row, OwnerRow):
        width = sum(column.width + 1 for column in columns if column.lead)
        line.append(Span(_fit(f"  {_nested_name(row, unicode)}", width - 1, left=True) + " ", style))
    for column in columns:
        if not (nested and column.lead):
            line += _cell(row, column, style, unicode)
    return (
        [Span(span.text, SELECTED if span.style == PLAIN else span.style) for span in line]
        if selected
        else line
    )


def _cell(row: Row, column: Column, style: str, unicode: bool) -> Line:
    text = column.text(row)
    if column.sort == "state" and not isinstance(row, OwnerRow) and row.severity != OK:
        shown = _fit(text, min(len(text), column.width), left=True)
        return [Span(shown, row.severity), Span(" " * (column.width - len(shown) + 1), style)]
    if column.ratio is None:
        return [Span(_fit(text, column.width, column.left) + " ", style)]
    words = max(4, min(len(text), column.width)) if column.title == "UTIL" else max(9, len(text))
    bar = figures.bar(column.ratio(row), max(0, column.width - words - 1), unicode=unicode)
    return [Span(bar, BAR), Span(_fit(text, column.width - len(bar), left=False) + " ", style)]


def _detail(state: State, page: Page, rows: int) -> Line:
    """The reason and fix of the selected row, or which rows are shown."""
    row = row_at(page, state.selected)
    shown = f"{page.offset + 1}-{page.offset + min(len(page.rows), rows)} of {page.row_count}"
    if state.typed is not None:
        return [
            Span(f" namespace: {state.typed}", KEY),
            Span("_  Enter: filter, empty: all, Esc: cancel", DIM),
        ]
    if isinstance(row, OwnerRow):
        allocated = "unrequested: it uses a GPU that it did not request" if row.allocated is False else ""
        parts = [row.name, row.container, row.reason, allocated]
        return [
            Span(f" {printable(', '.join(part for part in parts if part))}", DIM),
            Span(f"  ({shown})", DIM),
        ]
    if row is not None and row.reason:
        return [Span(" "), *_problem_line(Problem(row.severity, row.node, row.reason, row.fix))]
    return [Span(f" {VIEW_NAMES[state.view]} {shown}" if page.rows else "", DIM)]


def _keys(state: State, size: Size) -> Line:
    keys = [
        ("q", "quit"),
        ("?", "help"),
        ("Tab", VIEW_NAMES[state.views[(state.views.index(state.view) + 1) % len(state.views)]]),
        ("s", f"sort: {state.sorted_by}"),
        ("n", "namespace"),
        ("Enter", "follow"),
        ("Esc", "back"),
        ("Space", "pause"),
    ]
    line: Line = []
    for key, meaning in keys:
        line += [Span(f" {key}", KEY), Span(f" {meaning} ", DIM)]
    return _clipped(line, size.width)


def _help_lines() -> list[Line]:
    table = [
        ("Up Down, j k", "select a row; PgUp PgDn, Home End (g G)"),
        ("Tab, 1 2 3", "next view: GPUs with their pods, pods, nodes"),
        ("s, r", "next order; reverse it (or click on a heading)"),
        ("n", "only one namespace"),
        ("Enter, f", "node: its GPUs; pod: follow it; GPU: pods of its node"),
        ("Esc, u", "back: from the pod, the namespace, the node"),
        ("o", "hide or show the pods below the GPUs"),
        ("Space", "pause and continue"),
        ("?, h", "this help; any key closes it"),
        ("q, Ctrl-C", "quit"),
    ]
    lines: list[Line] = [[Span("gputally top: keys", TITLE)], []]
    lines += [[Span(f" {keys:<14}", KEY), Span(meaning)] for keys, meaning in table]
    lines += [[], [Span(" v after a heading: sorted by it, largest first; ^: reversed.", DIM)]]
    lines += [
        [Span(" ! is a warning, !! critical. - is not supported or not known. Nothing is changed.", DIM)]
    ]
    return lines


def _without_page(failure: Unavailable | None) -> list[Line]:
    if failure is None:
        return [[Span("gputally top", TITLE)], [], [Span("reading the first values ...")]]
    return [
        [Span("gputally top", TITLE)],
        [],
        [Span(f"!! {printable(failure.reason)}", CRITICAL)],
        [Span(f"Fix: {printable(failure.fix)}" if failure.fix else "")],
        [],
        [Span("It is tried again. q quits.", DIM)],
    ]


def _no_gpus() -> list[Line]:
    return [
        [],
        [Span("No GPU is found.", WARNING)],
        [Span("`gputally check` names the reason and the fix. Without a GPU: `gputally top --simulate`.")],
    ]


def _nothing(state: State) -> str:
    if state.pod is not None:
        return f"{printable('/'.join(state.pod))} uses no GPU now. Esc: back"
    if state.namespace:
        return f"no pod of the namespace {printable(state.namespace)} uses a GPU. Esc: all namespaces"
    return "nothing uses a GPU" if state.view == OWNERS else "nothing to show"


def _too_small(size: Size) -> list[Line]:
    needs = f"gputally top needs a terminal of {NARROWEST}x{SHORTEST}"
    text = f"{needs}; this one has {size.width}x{size.height}. q quits"
    chunks = [text[at : at + size.width] for at in range(0, len(text), max(1, size.width))]
    return [[Span(chunk, WARNING)] for chunk in chunks[: max(0, size.height)]]


def _cut(lines: list[Line], size: Size) -> list[Line]:
    padded = [*lines, *([] for _ in range(size.height))]
    return [_clipped(line, size.width) for line in padded[: size.height]]


def _clipped(line: Line, width: int) -> Line:
    return [*_clip(line, width)]


def _clip(line: Line, width: int) -> Iterator[Span]:
    left = width
    for span in line:
        if left <= 0:
            return
        yield Span(span.text[:left], span.style)
        left -= len(span.text)


def _fit(text: str, width: int, left: bool) -> str:
    """Exactly as wide as `width`; text that is cut ends in ~."""
    text = printable(text)
    if len(text) > width:
        text = text[: max(0, width - 1)] + "~"
    return text.ljust(width) if left else text.rjust(width)


def _of_node(row: Row) -> NodeRow:
    return cast(NodeRow, row)


def _of_owner(row: Row) -> OwnerRow:
    return cast(OwnerRow, row)


def _up_of_gpus(row: Row) -> str:
    node = _of_node(row)
    if node.gpus is None:
        return figures.UNKNOWN
    return str(node.gpus) if node.gpus_up in (None, node.gpus) else f"{node.gpus_up}/{node.gpus}"


def _state(row: Row) -> str:
    return "" if isinstance(row, OwnerRow) else f"{_MARKS[row.severity]}{row.state}"


def _memory(row: Row) -> str:
    return figures.gibibytes(row.memory_used_bytes, row.memory_total_bytes)


def _memory_ratio(row: Row) -> float | None:
    return (
        row.memory_used_bytes / row.memory_total_bytes
        if row.memory_total_bytes and row.memory_used_bytes is not None
        else None
    )


def _power(row: Row) -> str:
    limit = row.power_limit_watts if isinstance(row, GpuRow) else None
    return figures.watts(row.power_watts, limit)


def _model(row: Row) -> str:
    """Without the words that every model of a vendor has."""
    words = row.model.split() if isinstance(row, GpuRow) else []
    return " ".join(word for word in words if word not in _VENDOR_WORDS)


def _owner_name(row: Row) -> str:
    owner = _of_owner(row)
    return f"{owner.name} ({owner.container})" if owner.container else owner.name


def _nested_name(row: OwnerRow, unicode: bool) -> str:
    mark = "" if row.active else " (ended)"
    mark = " (unrequested)" if row.active and row.allocated is False else mark
    mark = " (allocated, no process)" if row.active and row.processes == 0 else mark
    return f"{'└ ' if unicode else '- '}{row.name}{mark}"


def _gpus_of_owner(row: Row) -> str:
    owner = _of_owner(row)
    text = ",".join(owner.gpus)
    return text if text and len(text) <= 6 else figures.number(owner.gpu_count)


def _allocated(row: Row) -> str:
    return {True: "yes", False: "NO", None: figures.UNKNOWN}[_of_owner(row).allocated]
