"""Reads a bill from a store that speaks the API of Prometheus.

It asks for sums of records over pieces of the period: `sum by (...) (sum_over_time(record[piece]))` at the
end of the piece. A sample at the end of a piece belongs to it, one at its start to the piece before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gputally.commands.bill.amounts import Amounts
from gputally.commands.bill.gaps import GapFinder, Seen, quoted, read_seen
from gputally.commands.bill.model import Bill, Kind, Row
from gputally.commands.bill.period import Period
from gputally.commands.bill.records import (
    FLEET,
    GPU_COST,
    GROUPINGS,
    METER,
    MILLI,
    TIME,
    UNALLOCATED_PARTS,
    UNATTRIBUTED_PARTS,
    Grouping,
    Part,
    charged_parts,
    owner_parts,
)
from gputally.commands.bill.teams import NO_TEAM, Teams
from gputally.commands.servers import PrometheusApi, QueryRow

_ALL_HOSTS = "outside Kubernetes"
_QUERIES_AT_ONCE = 4
RowKey = tuple[Kind, str]


class NoRecords(Exception):
    """The store has nothing to bill; the text says what to check."""


class Store:
    """Sums of records over a piece of time. All methods raise RequestFailed."""

    def __init__(self, api: PrometheusApi, cluster: str) -> None:
        self._api = api
        self._cluster = cluster
        self._shift_ms: int | None = None

    def sums(self, record: str, selector: str, by: Sequence[str], piece: Period) -> list[QueryRow]:
        """The sum of a record's samples, by these labels."""
        window = self.range_of(piece.end - piece.start)
        samples = f"{self.selected(record, selector)}[{window}]"
        return self._api.rows(f"sum by ({', '.join(by)}) (sum_over_time({samples}))", piece.end)

    def rows(self, query: str, at: int) -> list[QueryRow]:
        return self._api.rows(query, at)

    def times(self, query: str, piece: Period) -> list[tuple[Mapping[str, str], list[int]]]:
        """For each minute of the piece that has a value, the time of its end."""
        return self._api.times(query, piece.start + 60, piece.end, 60)

    def selected(self, record: str, selector: str = "") -> str:
        matchers = [selector] if selector else []
        if self._cluster:
            matchers.append(f"cluster={quoted(self._cluster)}")
        return f"{{{', '.join([f'__name__={quoted(record)}', *matchers])}}}"

    def range_of(self, seconds: int) -> str:
        """A range selector's duration without its left edge, which belongs to the time before."""
        if self._shift_ms is None:
            # Prometheus before 3.0, and stores with its engine, include the left edge of a range.
            found = self._api.rows("count_over_time(vector(1)[1m:1m])", 600)
            self._shift_ms = 1 if found and found[0].value > 1 else 0
        return f"{seconds * 1000 - self._shift_ms}ms"


@dataclass(slots=True)
class _Sums:
    """What was read of a piece, or of all of them."""

    rows: dict[RowKey, Amounts] = field(default_factory=lambda: defaultdict(Amounts))
    meter_millijoules: int = 0
    time_us: dict[tuple[str, ...], int] = field(default_factory=lambda: defaultdict(int))
    """GPU time, by cluster and model."""
    priced: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def unpriced_us(self) -> int:
        return sum(time for key, time in self.time_us.items() if key not in self.priced)

    def add(self, other: "_Sums") -> None:
        for key, amounts in other.rows.items():
            self.rows[key] += amounts
        for model, time in other.time_us.items():
            self.time_us[model] += time
        self.meter_millijoules += other.meter_millijoules
        self.priced |= other.priced


def read_bill(
    store: Store,
    period: Period,
    *,
    by: str,
    cluster: str,
    currency: str,
    source: str,
    piece_hours: int,
    teams: Teams | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Bill:
    """Raises RequestFailed and NoRecords."""
    pieces = list(period.pieces(piece_hours))
    sums, gaps = _Sums(), GapFinder(period)
    store.range_of(0)  # once, before the threads
    with ThreadPoolExecutor(_QUERIES_AT_ONCE) as threads:
        progress(0, len(pieces))
        reading = [threads.submit(_read_piece, store, piece, by, teams) for piece in pieces]
        try:
            for number, one in enumerate(reading, 1):
                found, seen = one.result()
                sums.add(found)
                gaps.note(seen)
                progress(number, len(pieces))
        finally:
            threads.shutdown(cancel_futures=True)
    if not sums.rows:
        raise NoRecords(_why_empty(period, cluster))
    rows = {key: amounts for key, amounts in sums.rows.items() if amounts}
    return Bill(
        period,
        by,
        cluster,
        currency,
        source,
        [Row(key, kind, rows[kind, key]) for kind, key in sorted(rows, key=_order(rows))],
        sums.meter_millijoules,
        sums.unpriced_us,
        gaps.found(),
    )


def _read_piece(store: Store, piece: Period, by: str, teams: Teams | None) -> tuple[_Sums, Seen]:
    seen, sums = read_seen(store, piece), _Sums()
    for key, amounts in _rows_of(store, piece, by, teams):
        sums.rows[key] += amounts
    _read_meter(store, piece, sums)
    return sums, seen


def _order(rows: Mapping[RowKey, Amounts]) -> Callable[[RowKey], tuple[int, int, int, str]]:
    """Owners by cost, then by energy; what is not allocated or attributed comes last."""
    kinds = list(Kind)

    def order(key: RowKey) -> tuple[int, int, int, str]:
        amounts = rows[key]
        cost = amounts.gpu_cost_nano + amounts.energy_cost_nano
        return max(kinds.index(key[0]), 1), -cost, -amounts.millijoules, key[1]

    return order


def _rows_of(store: Store, piece: Period, by: str, teams: Teams | None) -> Iterator[tuple[RowKey, Amounts]]:
    grouping = GROUPINGS[by]
    if teams is not None:
        yield from _team_rows(store, piece, teams)
    elif grouping.level in ("node", FLEET):
        yield from _rows(store, piece, charged_parts(grouping.level), grouping.labels, Kind.OWNER)
    else:
        yield from _rows(store, piece, owner_parts(grouping.level), grouping.labels, Kind.OWNER)
    if grouping.level not in ("node", FLEET):
        yield from _host_rows(store, piece, grouping)
    yield from _rows(store, piece, UNALLOCATED_PARTS, ("state",), Kind.UNALLOCATED)
    yield from _rows(store, piece, UNATTRIBUTED_PARTS, ("reason",), Kind.UNATTRIBUTED)


def _rows(
    store: Store, piece: Period, parts: Iterable[Part], labels: Sequence[str], kind: Kind
) -> Iterator[tuple[RowKey, Amounts]]:
    for part in parts:
        for row in store.sums(part.record, part.selector, _union(labels, part.by), piece):
            key = "/".join(row.labels.get(label) or f"(no {label})" for label in labels)
            yield (kind, key), part.amounts(row.value, row.labels)


def _host_rows(store: Store, piece: Period, grouping: Grouping) -> Iterator[tuple[RowKey, Amounts]]:
    labels = (grouping.host_label,) if grouping.host_label else ()
    for (kind, key), amounts in _rows(store, piece, owner_parts("host"), labels, Kind.HOST):
        yield (kind, key or _ALL_HOSTS), amounts


def _team_rows(store: Store, piece: Period, teams: Teams) -> Iterator[tuple[RowKey, Amounts]]:
    by_pod = bool(teams.labels)
    labels = ("cluster", "namespace", *(("pod",) if by_pod else ()))
    labels_of = _pod_labels(store, piece, teams) if by_pod else {}
    for part in owner_parts("pod" if by_pod else "namespace"):
        for row in store.sums(part.record, part.selector, _union(labels, part.by), piece):
            pod = tuple(row.labels.get(label, "") for label in labels)
            team = teams.team_of(row.labels.get("namespace", ""), labels_of.get(pod, {}))
            yield (Kind.OWNER, team or NO_TEAM), part.amounts(row.value, row.labels)


def _pod_labels(store: Store, piece: Period, teams: Teams) -> dict[tuple[str, ...], Mapping[str, str]]:
    info = f"last_over_time({store.selected('gputally_pod_info')}[{store.range_of(piece.end - piece.start)}])"
    query = f"max by (cluster, namespace, pod, {', '.join(teams.labels)}) ({info})"
    keys = ("cluster", "namespace", "pod")
    return {
        tuple(row.labels.get(key, "") for key in keys): row.labels for row in store.rows(query, piece.end)
    }


def _read_meter(store: Store, piece: Period, sums: _Sums) -> None:
    for row in store.sums(f"{FLEET}:{METER}", "", (), piece):
        sums.meter_millijoules += round(row.value * MILLI)
    labels = ("cluster", "model")
    for row in store.sums(f"{FLEET}:{TIME}", "", labels, piece):
        sums.time_us[_values(row, labels)] += round(row.value * 10**6)
    for row in store.sums(f"{FLEET}:{GPU_COST}", "", labels, piece):
        sums.priced.add(_values(row, labels))


def _values(row: QueryRow, labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(row.labels.get(label, "") for label in labels)


def _union(*labels: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(label for some in labels for label in some))


def _why_empty(period: Period, cluster: str) -> str:
    during = f"from {period.local(period.start)} to {period.local(period.end)}"
    if cluster:
        return f"no records of cluster {cluster} {during}: check the name, or leave --cluster out"
    return (
        f"no records with gputally_bill {during}: install the rules (prometheusRule.enabled, "
        "docs/billing.md), and check that this store has this time"
    )
