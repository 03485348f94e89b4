"""Argo Workflows: only workflows count, including ended ones."""

from pathlib import Path

from dashboards.argo import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query


def _workload(record: str, name: str) -> str:
    return f'workload:gputally_{record}{{cluster="c", namespace="ml", workload="{name}"}}'


def test_other_workloads_are_left_out(tmp_path: Path) -> None:
    series = {
        _workload("bill_cost:money", "Workflow/train-1"): always(3 / 60),
        _workload("bill_cost:money", "Deployment/ranker"): always(5 / 60),
        _workload("held:gpus", "Workflow/train-1"): always(2),
        _workload("held:gpus", "Deployment/ranker"): always(1),
    }
    assert_results(
        tmp_path,
        series,
        {query(DASHBOARD, "Cost"): {"{}": 3}, query(DASHBOARD, "Active workflows"): {"{}": 1}},
    )


def test_a_workflow_that_has_ended_still_has_its_cost(tmp_path: Path) -> None:
    half_an_hour_ago = "0.1x90 _x30"
    series = {_workload("bill_cost:money", "Workflow/train-1"): half_an_hour_ago}
    named = '{cluster="c", namespace="ml", workflow="train-1", workload="Workflow/train-1"}'
    assert_results(tmp_path, series, {query(DASHBOARD, "Workflows"): {named: 3}})


def test_the_number_of_workflows_is_0_without_any(tmp_path: Path) -> None:
    series = {_workload("held:gpus", "Deployment/ranker"): always(1)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Active workflows"): {"{}": 0}})


def test_a_pod_without_a_workload_lowers_the_share(tmp_path: Path) -> None:
    series = {
        'gputally_pod_info{cluster="c", namespace="ml", pod="a", workload="Workflow/train-1"}': always(1),
        'gputally_pod_info{cluster="c", namespace="ml", pod="b", workload=""}': always(1),
    }
    assert_results(tmp_path, series, {query(DASHBOARD, "Known workloads"): {"{}": 0.5}})
