"""Nodes as their exporters describe them."""

import copy
from typing import Any

from gputally.commands.top.documents import page_of, read_document, unreachable
from gputally.commands.top.nodes import summed
from gputally.commands.top.page import CRITICAL, GPUS, NODES, OWNERS, SORTS, GpuRow, NodeRow, OwnerRow, Query
from tests.support.documents import responses, with_lost_gpu

EIGHT = read_document(responses(8)["/api/v1/snapshot"])


def changed(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(responses(8)["/api/v1/snapshot"]), **fields}


def test_every_gpu_is_followed_by_its_owners() -> None:
    rows = page_of([EIGHT], Query(limit=100), "").rows
    gpus = [row for row in rows if isinstance(row, GpuRow)]
    assert [gpu.index for gpu in gpus] == [str(index) for index in range(8)]
    assert len(rows) - len(gpus) == sum(
        len(gpu["owners"]) for gpu in responses(8)["/api/v1/snapshot"]["gpus"]
    )
    assert page_of([EIGHT], Query(owners=False), "").row_count == 8


def test_an_owner_is_one_row_for_all_of_its_gpus() -> None:
    rows = page_of([EIGHT], Query(view=OWNERS, sort="memory"), "").rows
    train = rows[0]
    assert isinstance(train, OwnerRow)
    assert (train.name, train.gpus) == ("nlp/pretrain-0", ("0", "1"))
    parts = [
        owner
        for gpu in responses(8)["/api/v1/snapshot"]["gpus"]
        for owner in gpu["owners"]
        if owner["pod"] == "pretrain-0"
    ]
    assert train.memory_used_bytes == sum(part["memory_used_bytes"] for part in parts)


def test_a_lost_gpu_is_counted_and_its_values_are_unknown() -> None:
    node = read_document(with_lost_gpu()["/api/v1/snapshot"])
    page = page_of([node], Query(view=GPUS, owners=False), "")
    lost = page.rows[1]
    assert isinstance(lost, GpuRow)
    assert (lost.severity, lost.state, lost.power_watts) == (CRITICAL, "lost", None)
    assert lost.reason
    assert (page.totals.gpus, page.totals.gpus_up) == (2, 1)
    (row,) = page_of([node], Query(view=NODES), "").rows
    assert isinstance(row, NodeRow)
    assert (row.severity, row.state, row.gpus_up) == (CRITICAL, "1 lost", 1)


def test_every_order_of_every_view_is_known_values_first() -> None:
    node = read_document(with_lost_gpu()["/api/v1/snapshot"])
    for view, sorts in SORTS.items():
        for sort in sorts:
            query = Query(view=view, sort=sort, limit=100)
            rows = page_of([EIGHT, node], query, "").rows
            assert len(rows) == page_of([EIGHT, node], query, "").row_count
    hottest = page_of([EIGHT, node], Query(sort="temperature", owners=False), "").rows
    values = [row.temperature_celsius for row in hottest if isinstance(row, GpuRow)]
    assert values[-1] is None
    assert values[:-1] == sorted(values[:-1], key=lambda value: -(value or 0))


def test_a_source_that_is_down_and_an_exporter_that_is_away_are_problems() -> None:
    source = {
        **responses(8)["/api/v1/snapshot"]["sources"][0],
        "up": False,
        "reason": "denied",
        "fix": "root",
    }
    page = page_of(
        [read_document(changed(sources=[source])), unreachable("n2:9400", "refused", "curl")], Query(), ""
    )
    assert [(one.severity, one.reason, one.fix) for one in page.problems] == [
        (CRITICAL, "refused", "curl"),
        ("warning", "denied", "root"),
    ]
    assert page.totals.gpus == 8


def test_unknown_keys_and_severities_of_newer_exporters_are_ignored() -> None:
    node = read_document(changed(severity="unheard-of", new_key=1))
    assert (node.severity, len(node.devices)) == ("ok", 8)


def test_histories_are_joined_and_the_step_that_is_filling_is_left_out() -> None:
    def history(*ratios: float | None) -> dict[str, Any]:
        gpu = {"utilization_ratio": list(ratios), "power_watts": [100.0] * len(ratios)}
        return {"step_seconds": 10, "until_seconds": 1000.0, "gpus": [gpu]}

    joined = summed([history(0.2, 0.4, 1.0), history(None, 0.8, 1.0)])
    assert joined == [(975.0, 0.2, 200.0), (985.0, 0.6000000000000001, 200.0)]
    assert summed([]) == []
