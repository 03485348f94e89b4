"""Times of which a bill has no records, and times in which no exporter observed the GPUs."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gputally.commands.bill.model import Gap
from gputally.commands.bill.period import MINUTE, Period
from gputally.commands.bill.records import METER, TIME
from gputally.commands.servers import QueryRow, RequestFailed

MADE_UP_SECONDS = 6 * 3600
"""After a gap, the rules still know the counters from before for so long."""
_REPLICA_LABELS = ("prometheus_replica", "replica", "__replica__")
_NODES_AT_ONCE = 50
_UNOBSERVED = 'state="unobserved"'
_CHOSEN = "CHOSEN"
"""The place of the matchers of nodes in a query."""

Node = tuple[str, str]
"""Cluster and name."""
Span = tuple[int, int]


class Queries(Protocol):
    def selected(self, record: str, selector: str = "") -> str: ...

    def range_of(self, seconds: int) -> str: ...

    def rows(self, query: str, at: int) -> list[QueryRow]: ...

    def times(self, query: str, piece: Period) -> list[tuple[Mapping[str, str], list[int]]]: ...


@dataclass(slots=True)
class Seen:
    """Of a piece of time: when each node had records, and when its GPUs were not observed."""

    present: dict[Node, list[Span]] = field(default_factory=lambda: defaultdict(list))
    unobserved: dict[Node, list[Span]] = field(default_factory=lambda: defaultdict(list))


def read_seen(store: Queries, piece: Period) -> Seen:
    """Raises RequestFailed, also if the store would sum several replicas."""
    seen = Seen()
    partly: list[Node] = []
    for node, minutes in _minutes(store, piece).items():
        if minutes >= piece.minutes:
            _add(seen.present[node], piece.start, piece.end)
        else:
            partly.append(node)
    minute = f"[{store.range_of(MINUTE)}]"
    records = store.selected(f"node:{METER}", _CHOSEN) + minute
    _read_times(store, piece, partly, f"max by (cluster, node) (present_over_time({records}))", seen.present)
    unobserved = "sum by (cluster, node) (sum_over_time({})) > 0".format
    times = store.selected(f"node:{TIME}", _UNOBSERVED)
    found = store.rows(unobserved(f"{times}[{store.range_of(piece.end - piece.start)}]"), piece.end)
    of_nodes = store.selected(f"node:{TIME}", f"{_UNOBSERVED}, {_CHOSEN}") + minute
    _read_times(store, piece, map(_node, found), unobserved(of_nodes), seen.unobserved)
    return seen


def _minutes(store: Queries, piece: Period) -> dict[Node, int]:
    """Of each node, the minutes that have a record."""
    window = store.range_of(piece.end - piece.start)
    counted = f"count_over_time({store.selected(f'node:{METER}')}[{window}])"
    labels = ", ".join(("cluster", "node", *_REPLICA_LABELS))
    rows = store.rows(f"max by ({labels}) ({counted})", piece.end)
    for label in _REPLICA_LABELS:
        replicas = sorted({row.labels.get(label, "") for row in rows})
        if len(replicas) > 1:
            # Each replica has the whole bill.
            raise RequestFailed(
                f"the store does not merge replicas ({label}: {', '.join(replicas)}); ask one of them, or a "
                "query that deduplicates (Thanos: --query.replica-label; Mimir: HA tracker)"
            )
    return {_node(row): round(row.value) for row in rows}


def _read_times(
    store: Queries, piece: Period, nodes: Iterable[Node], query: str, spans: dict[Node, list[Span]]
) -> None:
    """The minutes of the piece in which a query about these nodes has a result."""
    for cluster, names in _by_cluster(nodes).items():
        for begin in range(0, len(names), _NODES_AT_ONCE):
            pattern = "|".join(re.escape(name) for name in names[begin : begin + _NODES_AT_ONCE])
            chosen = f"cluster={quoted(cluster)}, node=~{quoted(pattern)}"
            for labels, times in store.times(query.replace(_CHOSEN, chosen), piece):
                for time in times:
                    _add(spans[_node(QueryRow(labels, 0))], time - MINUTE, time)


class GapFinder:
    """Takes note of what was seen in the pieces of a period, in order."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._seen = Seen()

    def note(self, seen: Seen) -> None:
        for one, all_spans in (
            (seen.present, self._seen.present),
            (seen.unobserved, self._seen.unobserved),
        ):
            for node, spans in one.items():
                for start, end in spans:
                    _add(all_spans[node], start, end)

    def found(self) -> list[Gap]:
        """All gaps, in the order of time."""
        return sorted([*self._without_data(), *self._not_observed()])

    def _without_data(self) -> Iterator[Gap]:
        everywhere: dict[str, list[Span]] = {}
        for cluster in sorted({cluster for cluster, _ in self._seen.present}):
            spans = [
                span for node, spans in self._seen.present.items() if node[0] == cluster for span in spans
            ]
            everywhere[cluster] = list(
                _between([(0, self._period.start), *spans, (self._period.end, 1 << 62)])
            )
            for start, end in everywhere[cluster]:
                yield self._gap(start, end, cluster, "")
        for (cluster, name), spans in self._seen.present.items():
            # A node may come late and leave early; of the time in between it has records.
            for start, end in _between([*spans, *everywhere[cluster]]):
                yield self._gap(start, end, cluster, name)

    def _gap(self, start: int, end: int, cluster: str, node: str) -> Gap:
        if start == self._period.start and end == self._period.end:
            text = "nothing is billed"
        elif end - start > MADE_UP_SECONDS or start == self._period.start:
            text = "not billed"
        elif end == self._period.end:
            text = f"in the next bill, if records return within {MADE_UP_SECONDS // 3600} hours"
        else:
            text = "billed with the minute after it"
        return Gap(start, end, "no data", cluster, node, text)

    def _not_observed(self) -> Iterator[Gap]:
        for (cluster, name), spans in self._seen.unobserved.items():
            for start, end in spans:
                yield Gap(start, end, "unobserved", cluster, name, "no owner is charged for its energy")


def quoted(text: str) -> str:
    """A string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _node(row: QueryRow) -> Node:
    return row.labels.get("cluster", ""), row.labels.get("node", "")


def _by_cluster(nodes: Iterable[Node]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for cluster, name in sorted(nodes):
        found[cluster].append(name)
    return found


def _add(spans: list[Span], start: int, end: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))


def _between(spans: Iterable[Span]) -> Iterator[Span]:
    """The times between the first and the last span that none of them covers."""
    reached = None
    for start, end in sorted(spans):
        if reached is not None and start > reached:
            yield reached, start
        reached = end if reached is None else max(reached, end)
