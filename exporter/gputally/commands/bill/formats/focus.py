"""CSV with the columns of the FinOps Open Cost and Usage Specification (FOCUS) 1.2.

https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification: all mandatory columns,
and those that apply to what is billed here. A row of the bill is two charges, for GPU time and for energy.
There are no unit prices: each minute has the price that applied to it.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from gputally.commands.bill.formats.csv import table
from gputally.commands.bill.model import Bill
from gputally.commands.bill.seal import OPEN, Chain
from gputally.commands.bill.statement import Line, make_statement

VERSION = "1.2"
_PROVIDER = "GPUTally"
_ACCOUNT = "gputally"
_CUSTOM = "x_"

Charge = dict[str, object]


def write_focus(bill: Bill, chain: Chain | None) -> str:
    seal = {"x_PreviousSeal": chain.previous, "x_Seal": OPEN} if chain else {}
    charges = [charge | seal for charge in _charges(bill)]
    columns = sorted({name for charge in charges for name in charge}, key=_order)
    return table([columns, *([charge.get(name) for name in columns] for charge in charges)])


def _order(column: str) -> tuple[bool, bool, str]:
    """Custom columns after all others, and the seal at the end of the line."""
    return column.startswith(_CUSTOM), column == "x_Seal", column


def _charges(bill: Bill) -> Iterator[Charge]:
    for line in make_statement(bill).lines:
        common = _common(bill, line)
        if line.gpu_hours or line.gpu_cost:
            yield common | _gpu_time(line)
        if line.energy_joules or line.energy_cost:
            yield common | _energy(line)


def _common(bill: Bill, line: Line) -> Charge:
    owned, scope = line.kind in ("owner", "host"), bill.by if line.kind == "owner" else line.kind
    start, end = _utc(bill.period.start), _utc(bill.period.end)
    return {
        "BillingAccountId": bill.cluster or _ACCOUNT,
        "BillingAccountName": bill.cluster or None,
        "BillingCurrency": bill.currency,
        "BillingPeriodStart": start,
        "BillingPeriodEnd": end,
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "InvoiceIssuerName": _PROVIDER,
        "ProviderName": _PROVIDER,
        "PublisherName": _PROVIDER,
        "SubAccountId": f"{scope}/{line.key}" if owned else None,
        "SubAccountName": line.key if owned else None,
        "SubAccountType": scope if owned else None,
        "Tags": json.dumps({f"gputally/{scope}": line.key}),
        "x_Kind": line.kind,
    }


def _gpu_time(line: Line) -> Charge:
    return {
        **_costs(line.gpu_cost),
        "ChargeDescription": f"GPU time, {line.kind}: {line.key}",
        "ConsumedQuantity": line.gpu_hours,
        "ConsumedUnit": "GPU-Hours",
        "PricingQuantity": line.gpu_hours,
        "PricingUnit": "GPU-Hours",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU time",
        "ServiceSubcategory": "Other (Compute)",
        "x_BusyGpuHours": line.busy_gpu_hours,
        "x_IdleGpuHours": line.idle_gpu_hours,
    }


def _energy(line: Line) -> Charge:
    return {
        **_costs(line.energy_cost),
        "ChargeDescription": f"GPU energy, {line.kind}: {line.key}",
        "ConsumedQuantity": line.energy_kwh,
        "ConsumedUnit": "Kilowatt-Hours",
        "PricingQuantity": line.energy_kwh,
        "PricingUnit": "Kilowatt-Hours",
        "ServiceCategory": "Other",
        "ServiceName": "GPU energy",
        "ServiceSubcategory": "Other (Other)",
        "x_CarbonDioxideGrams": line.co2_grams,
        "x_EnergyJoules": line.energy_joules,
    }


def _costs(cost: object) -> Charge:
    """There are no discounts, commitments or prepaid purchases."""
    return {"BilledCost": cost, "ContractedCost": cost, "EffectiveCost": cost, "ListCost": cost}


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
