"""The bill adds up to the totals, and the ledger error shows when it does not."""

from pathlib import Path

import pytest

from dashboards.energy import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query

_VISION = '{cluster="c", namespace="vision", workload="Job/a", model="A"}'
_NLP = '{cluster="c", namespace="nlp", workload="Job/b", model="A"}'
_HOST = '{cluster="c", node="n", owner="slurm/42", model="A"}'


def _per_hour(amount: float) -> str:
    """An amount of each minute."""
    return always(amount / 60)


def _watts(watts: float) -> str:
    return _per_hour(3600 * watts)


def _gpus(gpus: float) -> str:
    return _per_hour(3600 * gpus)


def _node(**labels: str) -> str:
    more = "".join(f', {name}="{value}"' for name, value in labels.items())
    return f'{{cluster="c", node="n", model="A"{more}}}'


_METER = f"node:gputally_bill_meter:joules{_node()}"
_SERIES = {
    f"workload:gputally_bill_energy:joules{_VISION}": _watts(1000),
    f"workload:gputally_bill_energy:joules{_NLP}": _watts(500),
    f"host:gputally_bill_energy:joules{_HOST}": _watts(300),
    f"node:gputally_bill_energy:joules{_node(basis='measured')}": _watts(1800),
    f"node:gputally_bill_energy:joules{_node(reason='idle')}": _watts(150),
    f"node:gputally_bill_energy:joules{_node(reason='unknown')}": _watts(50),
    _METER: _watts(2000),
    f"workload:gputally_bill_cost:money{_VISION}": _per_hour(4),
    f"workload:gputally_bill_cost:money{_NLP}": _per_hour(2),
    f"host:gputally_bill_cost:money{_HOST}": _per_hour(3),
    f"node:gputally_bill_unallocated_cost:money{_node()}": _per_hour(1),
    f"node:gputally_bill_cost:money{_node()}": _per_hour(10),
    f"workload:gputally_bill_co2:grams{_VISION}": _per_hour(400),
    f"workload:gputally_bill_co2:grams{_NLP}": _per_hour(200),
    f"host:gputally_bill_co2:grams{_HOST}": _per_hour(120),
    f"node:gputally_bill_co2:grams{_node()}": _per_hour(720),
    f"node:gputally_bill_co2:grams{_node(reason='idle')}": _per_hour(80),
    f"workload:gputally_bill_allocated:seconds{_VISION}": _gpus(3),
    f"workload:gputally_bill_allocated:seconds{_NLP}": _gpus(1.5),
    f"host:gputally_bill_allocated:seconds{_HOST}": _gpus(1),
    f"node:gputally_bill_time:seconds{_node(state='used')}": _gpus(5.5),
    f"node:gputally_bill_time:seconds{_node(state='free')}": _gpus(2.5),
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
    series = _SERIES | {_METER: _watts(watts)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Ledger error"): {"{}": difference}})


def test_the_ledger_balances_without_owners_outside_kubernetes(tmp_path: Path) -> None:
    series = {name: values for name, values in _SERIES.items() if not name.startswith("host:")}
    series |= {_METER: _watts(1700)}
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
