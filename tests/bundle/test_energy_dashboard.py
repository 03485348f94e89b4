"""The bill adds up to the totals, and the ledger error shows when it does not."""

from pathlib import Path

import pytest

from dashboards.energy import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query

_SERIES = {
    'namespace:gputally_energy:watts{cluster="c", namespace="vision"}': always(1000),
    'namespace:gputally_energy:watts{cluster="c", namespace="nlp"}': always(500),
    'host:gputally_energy:watts{cluster="c", node="n", owner="slurm/42"}': always(300),
    'cluster:gputally_unattributed:watts{cluster="c", reason="idle"}': always(150),
    'cluster:gputally_unattributed:watts{cluster="c", reason="unknown"}': always(50),
    'cluster:gputally_energy:watts{cluster="c"}': always(2000),
    'namespace:gputally_cost:per_hour{cluster="c", namespace="vision"}': always(4),
    'namespace:gputally_cost:per_hour{cluster="c", namespace="nlp"}': always(2),
    'host:gputally_cost:per_hour{cluster="c", node="n", owner="slurm/42"}': always(3),
    'cluster:gputally_unallocated_cost:per_hour{cluster="c"}': always(1),
    'cluster:gputally_cost:per_hour{cluster="c"}': always(10),
    'namespace:gputally_co2:grams_per_hour{cluster="c", namespace="vision"}': always(400),
    'namespace:gputally_co2:grams_per_hour{cluster="c", namespace="nlp"}': always(200),
    'host:gputally_co2:grams_per_hour{cluster="c", node="n", owner="slurm/42"}': always(120),
    'cluster:gputally_co2:grams_per_hour{cluster="c"}': always(800),
    'namespace:gputally_held:gpus{cluster="c", namespace="vision"}': always(3),
    'namespace:gputally_held:gpus{cluster="c", namespace="nlp"}': always(1.5),
    'host:gputally_held:gpus{cluster="c", node="n", owner="slurm/42"}': always(1),
    'cluster:gputally_held:gpus{cluster="c"}': always(5.5),
    'cluster:gputally_gpus:count{cluster="c"}': always(8),
}
_BILL = "Bill by namespace"
_LINES = ("vision", "nlp", "(outside Kubernetes)", "(unallocated)")


def _lines(*values: float) -> dict[str, float]:
    linked = {line: "All" if line.startswith("(") else line for line in _LINES}
    return {
        f'{{linked="{linked[line]}", namespace="{line}"}}': value
        for line, value in zip(_LINES, values, strict=True)
    }


def test_the_lines_of_the_bill_add_up_to_the_totals(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _SERIES,
        {
            query(DASHBOARD, "Cost"): {"{}": 10},
            query(DASHBOARD, _BILL, "A"): _lines(4, 2, 3, 1),
            query(DASHBOARD, _BILL, "B"): _lines(0.4, 0.2, 0.3, 0.1),
            query(DASHBOARD, _BILL, "C"): _lines(3, 1.5, 1, 2.5),
            query(DASHBOARD, "Energy"): {"{}": 2},
            query(DASHBOARD, _BILL, "D"): _lines(1, 0.5, 0.3, 0.2),
            query(DASHBOARD, "CO2"): {"{}": 800},
            query(DASHBOARD, _BILL, "E"): _lines(400, 200, 120, 80),
        },
    )


def test_the_cost_is_allocated_or_unallocated(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _SERIES,
        {
            query(DASHBOARD, "Allocated cost"): {"{}": 0.9},
            query(DASHBOARD, "Unallocated cost"): {"{}": 1},
        },
    )


@pytest.mark.parametrize(("watts", "difference"), [(2000, 0), (2500, 0.2), (1600, 0.25)])
def test_the_ledger_error_is_the_difference_to_the_energy_counter(
    watts: float, difference: float, tmp_path: Path
) -> None:
    series = _SERIES | {'cluster:gputally_energy:watts{cluster="c"}': always(watts)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Ledger error"): {"{}": difference}})


@pytest.mark.parametrize("panel", ["Ledger error", "Allocated cost"])
@pytest.mark.parametrize(("minutes", "is_shown"), [(5, False), (58, False), (59, True)])
def test_ratios_are_shown_only_after_an_hour(
    panel: str, minutes: int, is_shown: bool, tmp_path: Path
) -> None:
    series = {name: _last_minutes(values, minutes) for name, values in _SERIES.items()}
    answer = {"Ledger error": 0, "Allocated cost": 0.9}[panel]
    assert_results(tmp_path, series, {query(DASHBOARD, panel): {"{}": answer} if is_shown else {}})


def _last_minutes(values: str, minutes: int) -> str:
    """The same values, limited to the last minutes."""
    value, _, count = values.partition("x")
    return f"_x{int(count) + 1 - minutes} {value}x{minutes - 1}"


def test_the_ledger_balances_without_owners_outside_kubernetes(tmp_path: Path) -> None:
    series = {name: values for name, values in _SERIES.items() if not name.startswith("host:")}
    series |= {'cluster:gputally_energy:watts{cluster="c"}': always(1700)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Ledger error"): {"{}": 0}})


def test_several_clusters_are_one_bill(tmp_path: Path) -> None:
    other = {name.replace('cluster="c"', 'cluster="d"'): values for name, values in _SERIES.items()}
    assert_results(
        tmp_path,
        _SERIES | other,
        {
            query(DASHBOARD, _BILL, "A"): _lines(8, 4, 6, 2),
            query(DASHBOARD, _BILL, "B"): _lines(0.4, 0.2, 0.3, 0.1),
            query(DASHBOARD, _BILL, "E"): _lines(800, 400, 240, 160),
            query(DASHBOARD, "Ledger error"): {"{}": 0},
        },
    )
