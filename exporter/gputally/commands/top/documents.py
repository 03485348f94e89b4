"""Nodes as exporters describe them (the document of /api/v1/snapshot), and pages of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from gputally.commands.top.page import (
    CRITICAL,
    GPUS,
    NODES,
    OK,
    SEVERITIES,
    WARNING,
    GpuRow,
    NodeRow,
    OwnerRow,
    Page,
    Problem,
    Query,
    Row,
    Totals,
    in_order,
)

_POD = "pod"
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and its owners."""

    gpu: GpuRow
    owners: tuple[OwnerRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    taken_at_seconds: float
    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()
    severity: str = OK
    summary: str = ""
    simulated: bool = False

    @property
    def gpus(self) -> list[GpuRow]:
        return [device.gpu for device in self.devices]


def read_document(document: Mapping[str, Any], name: str = "") -> Node:
    """`name` replaces the host name. Raises KeyError and TypeError for what is no document of version 1."""
    name = name or document["exporter"]["hostname"]
    return Node(
        name=name,
        taken_at_seconds=document["taken_at_seconds"],
        devices=tuple(_device(name, gpu) for gpu in document["gpus"]),
        problems=tuple(
            Problem(WARNING, f"{name}: {source['name']}", source["reason"], source["fix"])
            for source in document["sources"]
            if not source["up"]
        ),
        severity=document["severity"] if document["severity"] in SEVERITIES else OK,
        summary=document["summary"],
        simulated=document["exporter"]["simulated"],
    )


def _device(node: str, gpu: Mapping[str, Any]) -> Device:
    worst = gpu["faults"][0] if gpu["faults"] else {"name": OK, "reason": "", "fix": ""}
    row = GpuRow(
        node=node,
        index=str(gpu["index"]),
        uuid=gpu["uuid"],
        model=gpu["model"],
        severity=gpu["severity"],
        state=worst["name"].replace("_", " ") if gpu["up"] else "lost",
        reason=worst["reason"],
        fix=worst["fix"],
        utilization_ratio=gpu["utilization_ratio"],
        memory_used_bytes=gpu["memory_used_bytes"],
        memory_total_bytes=gpu["memory_total_bytes"],
        power_watts=gpu["power_watts"],
        power_limit_watts=gpu["power_limit_watts"],
        temperature_celsius=gpu["temperature_celsius"],
        energy_joules=gpu["energy_joules"],
    )
    return Device(row, tuple(_owner(node, one) for one in gpu["owners"]))


def _owner(node: str, owner: Mapping[str, Any]) -> OwnerRow:
    name = owner["owner"]
    if owner["kind"] == _POD:
        name = f"{owner['namespace']}/{owner['pod']}"
    return OwnerRow(
        node=node,
        name=name or _UNKNOWN,
        container=owner["container"],
        namespace=owner["namespace"],
        pod=owner["pod"],
        active=owner["active"],
        allocated=owner["allocated"],
        reason=owner["reason"],
        processes=owner["processes"],
        utilization_ratio=owner["sm_utilization_ratio"],
        memory_used_bytes=owner["memory_used_bytes"],
        power_watts=owner["power_watts"],
        energy_joules=owner["energy_joules"],
    )


def page_of(nodes: Sequence[Node], query: Query, title: str) -> Page:
    """The rows of the query; the graphs are not known here."""
    shown = [_selected(node, query) for node in nodes if query.node in ("", node.name)]
    rows = _rows(shown, query)
    faults = [
        Problem(gpu.severity, f"{gpu.node}: GPU {gpu.index}", gpu.reason or gpu.state, gpu.fix)
        for node in nodes
        for gpu in node.gpus
        if gpu.severity != OK
    ]
    problems = [*(problem for node in nodes for problem in node.problems), *faults]
    offset = max(0, min(query.offset, len(rows) - query.limit))
    return Page(
        title=title,
        view=query.view,
        taken_at_seconds=max((node.taken_at_seconds for node in nodes), default=0),
        totals=totals_of(nodes),
        rows=tuple(rows[offset : offset + query.limit]),
        row_count=len(rows),
        offset=offset,
        problems=tuple(sorted(problems, key=lambda one: -SEVERITIES.index(one.severity))),
        simulated=any(node.simulated for node in nodes),
    )


def totals_of(nodes: Iterable[Node]) -> Totals:
    nodes = list(nodes)
    gpus = [gpu for node in nodes for gpu in node.gpus]
    return Totals(
        nodes=len(nodes),
        gpus=len(gpus),
        gpus_up=sum(gpu.state != "lost" for gpu in gpus),
        utilization_ratio=mean(gpu.utilization_ratio for gpu in gpus),
        memory_used_bytes=total(gpu.memory_used_bytes for gpu in gpus),
        memory_total_bytes=total(gpu.memory_total_bytes for gpu in gpus),
        power_watts=total(gpu.power_watts for gpu in gpus),
    )


def followed(nodes: Iterable[Node], pod: tuple[str, str]) -> list[OwnerRow]:
    """What a pod uses on each of its GPUs."""
    return [
        owner
        for node in nodes
        for device in node.devices
        for owner in device.owners
        if (owner.namespace, owner.pod) == pod and owner.active
    ]


def _selected(node: Node, query: Query) -> Node:
    """The node with the GPUs and owners of the namespace or pod."""
    if not query.namespace and query.pod is None:
        return node

    def wanted(owner: OwnerRow) -> bool:
        if query.pod is not None:
            return (owner.namespace, owner.pod) == query.pod
        return owner.namespace == query.namespace

    narrowed = (Device(one.gpu, tuple(filter(wanted, one.owners))) for one in node.devices)
    return replace(node, devices=tuple(device for device in narrowed if device.owners))


def _rows(nodes: Sequence[Node], query: Query) -> list[Row]:
    if query.view == NODES:
        return in_order([_node_row(node) for node in nodes], query)
    if query.view == GPUS:
        owners = {device.gpu: device.owners for node in nodes for device in node.devices}
        rows = in_order(list(owners), query)
        return _with_owners(rows, owners) if query.owners else rows
    return in_order([row for node in nodes for row in _owner_rows(node)], query)


def _with_owners(gpus: Sequence[Row], owners: Mapping[GpuRow, Sequence[OwnerRow]]) -> list[Row]:
    rows: list[Row] = []
    for gpu in gpus:
        rows.append(gpu)
        if isinstance(gpu, GpuRow):
            rows += owners[gpu]
    return rows


def _node_row(node: Node) -> NodeRow:
    totals = totals_of([node])
    allocated = [one for one in node.devices if any(owner.active for owner in one.owners)]
    row = NodeRow(
        node=node.name,
        severity=node.severity,
        state=node.summary,
        gpus=totals.gpus,
        gpus_up=totals.gpus_up,
        allocated=len(allocated),
        idle=sum(one.gpu.utilization_ratio == 0 for one in allocated),
        utilization_ratio=totals.utilization_ratio,
        memory_used_bytes=totals.memory_used_bytes,
        memory_total_bytes=totals.memory_total_bytes,
        power_watts=totals.power_watts,
    )
    worst = max(node.gpus, key=lambda gpu: SEVERITIES.index(gpu.severity), default=None)
    if worst is not None and worst.severity != OK:
        lost = totals.gpus - totals.gpus_up
        state = f"{lost} lost" if lost else worst.state
        reason = f"GPU {worst.index}: {worst.reason or worst.state}"
        return replace(row, severity=worst.severity, state=state, reason=reason, fix=worst.fix)
    for problem in node.problems[:1]:
        return replace(row, severity=problem.severity, reason=problem.reason, fix=problem.fix)
    return row


def _owner_rows(node: Node) -> list[Row]:
    """One row for each owner with anything on a GPU, the sum over its GPUs."""
    found = [(owner, device.gpu.index) for device in node.devices for owner in device.owners if owner.active]

    def key(one: tuple[OwnerRow, str]) -> tuple[str, str]:
        return one[0].name, one[0].container

    rows: list[Row] = []
    for _, group in groupby(sorted(found, key=key), key=key):
        parts = list(group)
        owners = [owner for owner, _ in parts]
        indexes = tuple(dict.fromkeys(index for _, index in parts))
        rows.append(
            replace(
                owners[0],
                gpus=indexes,
                gpu_count=len(indexes),
                allocated=_all(owner.allocated for owner in owners),
                processes=sum(owner.processes or 0 for owner in owners),
                utilization_ratio=mean(owner.utilization_ratio for owner in owners),
                memory_used_bytes=total(owner.memory_used_bytes for owner in owners),
                power_watts=total(owner.power_watts for owner in owners),
                energy_joules=total(owner.energy_joules for owner in owners),
            )
        )
    return rows


def _all(values: Iterable[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return all(known) if known else None


def total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def unreachable(name: str, reason: str, fix: str) -> Node:
    """A node whose exporter does not respond."""
    return Node(
        name=name,
        taken_at_seconds=0,
        problems=(Problem(CRITICAL, name, reason, fix),),
        severity=CRITICAL,
        summary="no response",
    )
