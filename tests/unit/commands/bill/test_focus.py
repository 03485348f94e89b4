"""FOCUS: the requirements of version 1.2 that apply to a file without discounts, commitments and taxes.

Each rule is one of https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification
(columns/ and attributes/). The published validators know versions up to 1.0 only.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import pytest

from gputally.commands.bill.formats import FORMATS
from gputally.commands.bill.seal import Chain, close
from tests.support.bills import example_bill

Row = Mapping[str, str]

NEVER_NULL = {
    *("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart"),
    *("ChargeCategory", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost"),
    *("InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
}
MANDATORY = {
    *NEVER_NULL,
    *("BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit"),
}
"""Feature level Mandatory in columns/*.md; all others are conditional or recommended."""
OTHERS = {
    *("ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "ServiceSubcategory"),
    *("SubAccountId", "SubAccountName", "SubAccountType", "Tags"),
}
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
NUMBERS = (*COSTS, "ConsumedQuantity", "PricingQuantity")
TIMES = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
SUBCATEGORIES = {"Other (Compute)": "Compute", "Other (Other)": "Other"}
NUMERIC_FORMAT = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")
UNIT_FORMAT = re.compile(r"([A-Z][A-Za-z]*-)?(Hours|[A-Z][a-z]*s)")

RULES: Mapping[str, Callable[[Row], bool]] = {
    "null_handling: no placeholder": lambda row: (
        not {"N/A", "null", "None", "Not Applicable"} & set(row.values())
    ),
    "not null": lambda row: all(row[name].strip() for name in NEVER_NULL),
    "numeric_format": lambda row: all(NUMERIC_FORMAT.fullmatch(row[name]) for name in NUMBERS),
    "datetime_format": lambda row: all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]) for name in TIMES
    ),
    "currency_format": lambda row: bool(re.fullmatch("[A-Z]{3}", row["BillingCurrency"])),
    "unit_format": lambda row: all(
        UNIT_FORMAT.fullmatch(row[name]) for name in ("PricingUnit", "ConsumedUnit")
    ),
    "key_value_format": lambda row: all(
        isinstance(value, str | int | float | bool) or value is None
        for value in json.loads(row["Tags"]).values()
    ),
    "chargecategory": lambda row: (
        row["ChargeCategory"] in {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
    ),
    "chargeclass: null, as it corrects no earlier period": lambda row: row["ChargeClass"] == "",
    "chargefrequency": lambda row: row["ChargeFrequency"] in {"One-Time", "Recurring", "Usage-Based"},
    "chargeperiodstart before chargeperiodend": lambda row: row["ChargePeriodStart"] < row["ChargePeriodEnd"],
    "charge period within billing period": lambda row: (
        row["BillingPeriodStart"]
        <= row["ChargePeriodStart"]
        < row["ChargePeriodEnd"]
        <= row["BillingPeriodEnd"]
    ),
    "contractedcost, listcost: as BilledCost without unit prices": lambda row: (
        len({row[name] for name in COSTS}) == 1
    ),
    "pricingquantity, consumedquantity: not null for Usage": lambda row: bool(
        row["PricingQuantity"] and row["ConsumedQuantity"]
    ),
    "pricingunit, consumedunit: null as their quantity": lambda row: bool(
        row["PricingUnit"] and row["ConsumedUnit"]
    ),
    "servicesubcategory: of its category": lambda row: (
        SUBCATEGORIES[row["ServiceSubcategory"]] == row["ServiceCategory"]
    ),
    "subaccountname, subaccounttype: null as SubAccountId": lambda row: (
        bool(row["SubAccountId"]) == bool(row["SubAccountName"]) == bool(row["SubAccountType"])
    ),
    "tags: keys of the provider have its prefix": lambda row: all(
        key.startswith("gputally/") for key in json.loads(row["Tags"])
    ),
}


def read(text: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(text)))


ROWS = read(FORMATS["focus"](example_bill(), None))


@pytest.mark.parametrize("rule", RULES)
def test_every_charge_keeps_the_rule(rule: str) -> None:
    assert [row for row in ROWS if not RULES[rule](row)] == []


def test_the_columns_are_those_of_the_specification_and_custom_ones_come_last() -> None:
    columns = list(ROWS[0])
    ours = [name for name in columns if name.startswith("x_")]
    assert set(columns) - set(ours) == MANDATORY | OTHERS
    assert columns[-len(ours) :] == ours
    assert all(re.fullmatch(r"(x_)?[A-Z][A-Za-z]{1,49}", name) for name in columns)


def test_the_seal_is_custom_columns() -> None:
    sealed = read(close(FORMATS["focus"](example_bill(), Chain())))
    assert set(sealed[0]) - set(ROWS[0]) == {"x_PreviousSeal", "x_Seal"}


def test_one_service_has_one_category() -> None:
    assert len({(row["ServiceName"], row["ServiceCategory"]) for row in ROWS}) == len(
        {row["ServiceName"] for row in ROWS}
    )


def test_the_charges_add_up_to_the_bill() -> None:
    assert sum(Decimal(row["BilledCost"]) for row in ROWS) == Decimal("2772.87")
