"""A fleet in Prometheus: pages of recorded series, sorted and cut by Prometheus.

A query returns no more series than the screen has cells: `topk` takes the rows up to the last one of the
page, without those of the pages before. The other columns are then asked for these rows only. Power decides
between equal values; without it, a row with an equal value can be on two pages.
"""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gputally.commands.top.documents import mean, total
from gputally.commands.top.minutes import GRAPH_SECONDS, filled
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
    Query,
    Row,
    Totals,
)
from gputally.commands.verify.servers import LoginRequired, PrometheusApi, QueryRow, RequestFailed
from gputally.model import Unavailable

_NODE, _GPU, _POD = (
    ("cluster", "node"),
    ("cluster", "node", "gpu", "uuid"),
    ("cluster", "node", "namespace", "pod"),
)
_MOST_PROBLEMS = 5
_MOST_ROWS = 200
_SEVERITY = {3: CRITICAL, 2: WARNING, 1: WARNING}
_NO_RULES = (
    "no recorded series of gputally",
    "load the recording rules into Prometheus (docs/rules.md), and check --cluster",
)
Identity = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """The series of a view. In a query, % is replaced by the matchers."""

    identity: tuple[str, ...]
    """The labels of a row."""
    every: str
    """One series for each row."""
    sorts: Mapping[str, str]
    """The series by which rows are sorted, where they have it."""
    columns: Mapping[str, str]
    """Name of a series -> field of a row."""
    recorded: bool = True
    """False: the series of exporters, which have labels of the scrape as well."""


_VIEWS = {
    NODES: _View(
        _NODE,
        "node:gputally_gpus:count{%}",
        {
            "utilization": "node:gputally_utilization:ratio{%}",
            "state": "max by (cluster, node) (gpu:gputally_problem:severity{%})",
            "memory": "node:gputally_memory_used:bytes{%}",
            "power": "node:gputally_power:watts{%}",
            "idle": "node:gputally_idle:gpus{%}",
        },
        {
            "node:gputally_gpus:count": "gpus",
            "node:gputally_gpus_up:count": "gpus_up",
            "node:gputally_gpus_allocated:count": "allocated",
            "node:gputally_idle:gpus": "idle",
            "node:gputally_utilization:ratio": "utilization_ratio",
            "node:gputally_memory_used:bytes": "memory_used_bytes",
            "node:gputally_memory_total:bytes": "memory_total_bytes",
            "node:gputally_power:watts": "power_watts",
        },
    ),
    GPUS: _View(
        _GPU,
        "max by (cluster, node, gpu, uuid) (gputally_gpu_up{%})",
        {
            "utilization": "max by (cluster, node, gpu, uuid) (gputally_gpu_utilization_ratio{%})",
            "state": "max by (cluster, node, gpu, uuid) (gpu:gputally_problem:severity{%})",
            "memory": "max by (cluster, node, gpu, uuid) (gputally_gpu_memory_used_bytes{%})",
            "power": "max by (cluster, node, gpu, uuid) (gputally_gpu_power_watts{%})",
            "temperature": "max by (cluster, node, gpu, uuid) (gputally_gpu_temperature_celsius{%})",
        },
        {
            "gputally_gpu_utilization_ratio": "utilization_ratio",
            "gputally_gpu_memory_used_bytes": "memory_used_bytes",
            "gputally_gpu_memory_total_bytes": "memory_total_bytes",
            "gputally_gpu_power_watts": "power_watts",
            "gputally_gpu_power_limit_watts": "power_limit_watts",
            "gputally_gpu_temperature_celsius": "temperature_celsius",
        },
        recorded=False,
    ),
    OWNERS: _View(
        _POD,
        "sum by (cluster, node, namespace, pod) (pod:gputally_held:gpus{%})",
        {
            "utilization": "sum by (cluster, node, namespace, pod) (pod:gputally_busy:gpus{%})",
            "memory": "sum by (cluster, node, namespace, pod) (pod:gputally_memory_used:bytes{%})",
            "power": "sum by (cluster, node, namespace, pod) (pod:gputally_energy:watts{%})",
        },
        {
            "pod:gputally_held:gpus": "gpu_count",
            "pod:gputally_busy:gpus": "busy",
            "pod:gputally_memory_used:bytes": "memory_used_bytes",
            "pod:gputally_energy:watts": "power_watts",
        },
    ),
}
_TOTALS = {
    "gputally_gpus:count": "gpus",
    "gputally_gpus_up:count": "gpus_up",
    "gputally_memory_used:bytes": "memory_used_bytes",
    "gputally_memory_total:bytes": "memory_total_bytes",
    "gputally_power:watts": "power_watts",
}
"""Records of a level (cluster or node) -> field."""


class Fleet:
    """The GPUs that a Prometheus knows."""

    views: tuple[str, ...] = (NODES, OWNERS, GPUS)

    def __init__(self, prometheus: PrometheusApi, clock: Callable[[], float] = time.time) -> None:
        self._prometheus = prometheus
        self._clock = clock

    def refresh(self) -> None:
        """Nothing: a page is always asked for."""

    def close(self) -> None:
        """Nothing is open."""

    def page(self, query: Query) -> Page:
        try:
            return self._page(query)
        except LoginRequired as error:
            fix = "give a directory with the files username and password: --login"
            raise Unavailable(f"{self._prometheus.server.url}: {error}", fix) from None
        except RequestFailed as error:
            raise Unavailable(
                f"{self._prometheus.server.url}: {error}", "check the address of Prometheus"
            ) from None

    def _page(self, query: Query) -> Page:
        totals = self._totals(query)
        view = _VIEWS[query.view]
        where = self._matchers(query)
        count = round(self._prometheus.number(f"count({_filled(view.every, where)})") or 0)
        if not count and not totals.gpus:
            raise Unavailable(f"{self._prometheus.server.url}: {_NO_RULES[0]}", _NO_RULES[1])
        limit = min(query.limit, _MOST_ROWS)
        offset = max(0, min(query.offset, count - limit))
        rows = self._rows(view, query, where, offset, min(limit, count - offset))
        if query.pod is not None:
            totals = _of_pod([row for row in rows if isinstance(row, OwnerRow)])
        utilization, power = self._graphs(query)
        return Page(
            title=self._prometheus.server.url,
            view=query.view,
            taken_at_seconds=self._clock(),
            totals=totals,
            rows=tuple(rows),
            row_count=count,
            offset=offset,
            problems=self._problems(query),
            utilization_graph=utilization,
            power_graph=power,
            graph_seconds=GRAPH_SECONDS,
        )

    def _matchers(self, query: Query) -> str:
        given = {"cluster": self._prometheus.cluster, "node": query.node}
        if query.view == OWNERS:
            given["namespace"] = query.namespace
            if query.pod is not None:
                given["namespace"], given["pod"] = query.pod
        return ",".join(f"{label}={_quoted(value)}" for label, value in given.items() if value)

    def _rows(self, view: _View, query: Query, where: str, offset: int, limit: int) -> list[Row]:
        if limit < 1:
            return []
        order = _filled(_order(view, query), where)
        first = "bottomk" if query.reverse else "topk"
        before = f" unless {first}({offset}, {order})" if offset else ""
        found = self._prometheus.rows(f"{first}({offset + limit}, {order}){before}")[:limit]
        shown = [_identity(one, view.identity) for one in found]
        columns = self._columns(view, shown)
        severities = self._severities(query.view, view, shown)
        models = self._models(shown) if query.view == GPUS else {}
        values = {_identity(one, view.identity): one.value for one in found}
        ordered = sorted(shown, key=lambda one: (values[one], one) if query.reverse else (-values[one], one))
        return [
            _row(query.view, one, columns.get(one, {}), severities.get(one), models.get(one, ""))
            for one in ordered
        ]

    def _columns(self, view: _View, shown: Sequence[Identity]) -> dict[Identity, dict[str, Any]]:
        names = "|".join(view.columns)
        one_of = f'__name__=~"{names}",{_is_one_of(view.identity, shown)}'
        labels = ", ".join(("__name__", *view.identity))
        found: dict[Identity, dict[str, Any]] = {}
        for one in self._prometheus.rows(f"max by ({labels}) ({{{one_of}}})"):
            if not math.isnan(one.value):
                field = view.columns[one.labels["__name__"]]
                found.setdefault(_identity(one, view.identity), {})[field] = one.value
        return found

    def _severities(self, name: str, view: _View, shown: Sequence[Identity]) -> dict[Identity, QueryRow]:
        """The worst problem of each row."""
        if name == OWNERS:
            return {}
        labels = ", ".join(view.identity)
        series = f"gpu:gputally_problem:severity{{{_is_one_of(view.identity, shown)}}}"
        worst: dict[Identity, QueryRow] = {}
        for one in self._prometheus.rows(f"topk by ({labels}) (1, {series})"):
            worst[_identity(one, view.identity)] = one
        return worst

    def _models(self, shown: Sequence[Identity]) -> dict[Identity, str]:
        labels = ", ".join((*_GPU, "model"))
        infos = self._prometheus.rows(f"max by ({labels}) (gputally_gpu_info{{{_is_one_of(_GPU, shown)}}})")
        return {_identity(one, _GPU): one.labels.get("model", "") for one in infos}

    def _totals(self, query: Query) -> Totals:
        """Of the node of the query, or of all."""
        where = self._matchers(Query(view=NODES, node=query.node))
        level = "node" if query.node else "cluster"
        names = "|".join(f"{level}:{name}" for name in _TOTALS)
        found = {
            _TOTALS[one.labels["__name__"].partition(":")[2]]: one.value
            for one in self._prometheus.rows(f'sum by (__name__) ({{__name__=~"{names}",{where}}})')
        }
        return Totals(
            nodes=round(self._prometheus.number(f"count(node:gputally_gpus:count{{{where}}})") or 0),
            gpus=round(found.get("gpus", 0)),
            gpus_up=round(found.get("gpus_up", 0)),
            utilization_ratio=self._prometheus.number(
                _filled(_NODE_UTILIZATION if query.node else _MEAN_UTILIZATION, where)
            ),
            memory_used_bytes=found.get("memory_used_bytes"),
            memory_total_bytes=found.get("memory_total_bytes"),
            power_watts=found.get("power_watts"),
        )

    def _problems(self, query: Query) -> tuple[Problem, ...]:
        where = self._matchers(replace(query, view=NODES, pod=None))
        worst = self._prometheus.rows(f"topk({_MOST_PROBLEMS}, gpu:gputally_problem:severity{{{where}}})")
        return tuple(
            Problem(
                _SEVERITY.get(round(one.value), WARNING),
                f"{one.labels.get('node', '?')}: GPU {one.labels.get('gpu', '?')}",
                one.labels.get("problem", ""),
            )
            for one in sorted(worst, key=lambda one: (-one.value, one.labels.get("node", "")))
        )

    def _graphs(self, query: Query) -> tuple[Graph, Graph]:
        where = self._matchers(query) if query.pod or query.node else self._matchers(Query(view=NODES))
        if query.pod:
            utilization = "sum(pod:gputally_busy:gpus{%}) / sum(pod:gputally_held:gpus{%})"
            power = "sum(pod:gputally_energy:watts{%})"
        elif query.node:
            utilization, power = _NODE_UTILIZATION, "sum(node:gputally_power:watts{%})"
        else:
            utilization, power = _MEAN_UTILIZATION, "sum(cluster:gputally_power:watts{%})"
        watts = self._minutes(_filled(power, where), query.points)
        return (
            Graph("utilisation", self._minutes(_filled(utilization, where), query.points), 1.0),
            Graph("power", watts, max((value or 0 for value in watts), default=0) or 1.0),
        )

    def _minutes(self, expression: str, points: int) -> tuple[float | None, ...]:
        """One value for each of the steps of the last minutes."""
        if points < 2:
            return ()
        step = GRAPH_SECONDS / (points - 1)
        end = self._clock()
        values: list[float | None] = [None] * points
        for at, value in self._prometheus.range(expression, end - GRAPH_SECONDS, end, step):
            place = round((at - end + GRAPH_SECONDS) / step)
            if 0 <= place < points and not math.isnan(value):
                values[place] = value
        return filled(values)


_NODE_UTILIZATION = "avg(node:gputally_utilization:ratio{%})"
_MEAN_UTILIZATION = (
    "sum(cluster:gputally_utilization:ratio{%} * cluster:gputally_gpus_up:count{%})"
    " / sum(cluster:gputally_gpus_up:count{%})"
)


def _of_pod(parts: Sequence[OwnerRow]) -> Totals:
    """Of what a pod holds on its nodes."""
    gpus = round(total(part.gpu_count for part in parts) or 0)
    return Totals(
        nodes=len(parts),
        gpus=gpus,
        gpus_up=gpus,
        utilization_ratio=mean(part.utilization_ratio for part in parts),
        memory_used_bytes=total(part.memory_used_bytes for part in parts),
        power_watts=total(part.power_watts for part in parts),
    )


def _filled(expression: str, matchers: str) -> str:
    return expression.replace("%", matchers)


def _order(view: _View, query: Query) -> str:
    """The value of each row by which it is sorted; rows without it come last."""
    by = view.sorts.get(query.sort) or next(iter(view.sorts.values()))
    # Less than any value that is measured.
    unknown = f"{view.every} * 0 - 1"
    return f"(({by} or {unknown}) + 1e-9 * ({view.sorts['power']} or {unknown}))"


def _quoted(text: str) -> str:
    """A string of PromQL, whose escapes are those of Go."""
    return json.dumps(text, ensure_ascii=False)


def _identity(row: QueryRow, labels: Sequence[str]) -> Identity:
    return tuple(row.labels.get(label, "") for label in labels)


def _is_one_of(labels: Sequence[str], shown: Sequence[Identity]) -> str:
    """Matchers of these rows: a regular expression for each label."""
    return ",".join(
        f"{label}=~{_quoted('|'.join(sorted({re.escape(one[at]) for one in shown})))}"
        for at, label in enumerate(labels)
    )


def _row(
    view: str, identity: Identity, values: Mapping[str, Any], problem: QueryRow | None, model: str
) -> Row:
    severity = _SEVERITY.get(round(problem.value), WARNING) if problem else OK
    state = problem.labels.get("problem", "problem") if problem else OK
    cluster, node = identity[:2]
    if view == NODES:
        reason = f"GPU {problem.labels.get('gpu', '?')}: {state}" if problem else ""
        empty = NodeRow(node=node, cluster=cluster, severity=severity, state=state, reason=reason)
        counts = {name: round(values[name]) for name in ("gpus", "gpus_up") if name in values}
        return replace(empty, **{**values, **counts})
    if view == GPUS:
        _, _, index, uuid = identity
        gpu = GpuRow(
            node=node, cluster=cluster, index=index, uuid=uuid, model=model, severity=severity, state=state
        )
        return replace(gpu, reason=state if problem else "", **values)
    _, _, namespace, pod = identity
    held, busy = values.get("gpu_count"), values.get("busy")
    rest = {name: value for name, value in values.items() if name != "busy"}
    owner = OwnerRow(node=node, cluster=cluster, name=f"{namespace}/{pod}", namespace=namespace, pod=pod)
    return replace(owner, utilization_ratio=busy / held if held and busy is not None else None, **rest)
