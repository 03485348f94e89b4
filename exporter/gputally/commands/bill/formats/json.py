"""JSON: one row per line, so that a seal belongs to a line."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gputally.commands.bill.model import Bill, Gap
from gputally.commands.bill.seal import OPEN, Chain
from gputally.commands.bill.statement import Line, make_statement

_VERSION = 1


def write_json(bill: Bill, chain: Chain | None) -> str:
    statement, period = make_statement(bill), bill.period
    seal = {"seal": OPEN} if chain else {}
    head: dict[str, Any] = {
        "version": _VERSION,
        "from": period.local(period.start),
        "to": period.local(period.end),
        "timezone": period.zone.key,
        "by": bill.by,
        "cluster": bill.cluster or None,
        "currency": bill.currency or None,
        "source": bill.source,
        **({"previous_seal": chain.previous or None} if chain else {}),
        **({"head_seal": OPEN} if chain else {}),
    }
    rest: dict[str, Any] = {
        "rows": [_line(line, bill.currency) | seal for line in statement.lines],
        "total": _line(statement.total, bill.currency),
        "meter_joules": statement.meter_joules,
        "difference_joules": statement.difference_joules,
        "unpriced_gpu_hours": round(statement.unpriced_gpu_hours, 6),
        "gaps": [_gap(bill, gap) for gap in bill.gaps],
        **seal,
    }
    # The rows begin on the line of the last member of the head, and the end is on that of the last member: so
    # that no line is without a seal.
    return "{\n  " + _members(head) + ", " + _members(rest) + "}\n"


def _members(members: Mapping[str, Any]) -> str:
    return ",\n  ".join(f"{_text(name)}: {_member(value)}" for name, value in members.items())


def _member(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _text(value)
    return "[\n    " + ",\n    ".join(_text(one) for one in value) + "]"


def _text(value: Any) -> str:
    return json.dumps(value, default=_number, ensure_ascii=True, allow_nan=False)


def _number(value: Decimal) -> float | int:
    return int(value) if value == value.to_integral_value() else float(value)


def _line(line: Line, currency: str) -> dict[str, Any]:
    return {
        "key": line.key,
        "kind": line.kind,
        "gpu_hours": line.gpu_hours,
        "busy_gpu_hours": line.busy_gpu_hours,
        "idle_gpu_hours": line.idle_gpu_hours,
        "energy_joules": line.energy_joules,
        "energy_kwh": line.energy_kwh,
        "energy_kwh_by_basis": line.kwh,
        "co2_grams": line.co2_grams,
        "gpu_cost": line.gpu_cost,
        "energy_cost": line.energy_cost,
        "cost": line.cost,
        "currency": currency or None,
        "share": None if line.share is None else round(line.share, 6),
    }


def _gap(bill: Bill, gap: Gap) -> dict[str, Any]:
    return {
        "kind": gap.kind,
        "from": bill.period.local(gap.start),
        "to": bill.period.local(gap.end),
        "cluster": gap.cluster or None,
        "node": gap.node or None,
        "effect": gap.text,
    }
