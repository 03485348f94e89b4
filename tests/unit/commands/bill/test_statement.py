"""The written numbers add up, in every column and row, and are less than a unit away from the exact ones."""

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gputally.commands.bill.amounts import ENERGY, Amounts, rounded, total
from gputally.commands.bill.model import Kind, Row
from gputally.commands.bill.statement import make_statement
from tests.support.bills import example_bill

AMOUNTS = st.builds(
    Amounts,
    allocated_us=st.integers(0, 10**16),
    busy_us=st.none() | st.integers(0, 10**16),
    idle_us=st.none() | st.integers(0, 10**16),
    energy_millijoules=st.dictionaries(st.sampled_from(ENERGY), st.integers(0, 10**16)),
    co2_micrograms=st.integers(0, 10**15),
    gpu_cost_nano=st.integers(0, 10**16),
    energy_cost_nano=st.integers(0, 10**16),
)


@given(st.lists(AMOUNTS, min_size=1, max_size=12))
def test_rows_add_up_to_the_total_and_the_total_is_the_exact_one_rounded(amounts: list[Amounts]) -> None:
    rows = [Row(str(number), Kind.OWNER, one) for number, one in enumerate(amounts)]
    bill = replace(example_bill(), rows=rows)
    statement, exact = make_statement(bill), total(amounts)
    assert sum(line.cost for line in statement.lines) == statement.total.cost
    cost = Decimal(exact.gpu_cost_nano + exact.energy_cost_nano).scaleb(-9)
    assert abs(statement.total.cost - cost) <= Decimal("0.005")
    assert sum(line.energy_kwh for line in statement.lines) == statement.total.energy_kwh
    assert statement.total.energy_joules * 1000 == exact.millijoules
    assert bill.difference_millijoules == bill.meter_millijoules - exact.millijoules
    for line, one in zip(statement.lines, amounts, strict=True):
        assert abs(line.gpu_cost - Decimal(one.gpu_cost_nano).scaleb(-9)) < Decimal("0.02")
        assert (line.busy_gpu_hours is None) == (one.busy_us is None)


@given(st.dictionaries(st.tuples(st.integers()), st.integers(0, 10**12), min_size=1), st.integers(1, 10**7))
def test_a_rounded_column_adds_up(values: dict[tuple[int], int], unit: int) -> None:
    parts = rounded(values, unit)
    assert abs(sum(parts.values()) * unit - sum(values.values())) * 2 <= unit


@given(st.lists(AMOUNTS, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_sum_does_not_matter(amounts: list[Amounts], random: object) -> None:
    shuffled = list(amounts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert total(shuffled) == total(amounts)
