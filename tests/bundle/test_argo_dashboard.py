"""The dashboard of Argo Workflows: only workflows count, and all that a workflow has had."""

from pathlib import Path

from dashboards.argo import DASHBOARD
from tests.bundle.panel_cases import always, assert_answers, query


def _workload(record: str, name: str) -> str:
    return f'workload:gputally_{record}{{cluster="c", namespace="ml", workload="{name}"}}'


def test_what_is_no_workflow_is_left_out(tmp_path: Path) -> None:
    said = {
        _workload("cost:per_hour", "Workflow/train-1"): always(3),
        _workload("cost:per_hour", "Deployment/ranker"): always(5),
        _workload("held:gpus", "Workflow/train-1"): always(2),
        _workload("held:gpus", "Deployment/ranker"): always(1),
    }
    assert_answers(
        tmp_path,
        said,
        {query(DASHBOARD, "Cost"): {"{}": 3}, query(DASHBOARD, "Workflows now"): {"{}": 1}},
    )


def test_a_workflow_that_has_ended_still_has_its_cost(tmp_path: Path) -> None:
    half_an_hour_ago = "6x90 _x30"
    said = {_workload("cost:per_hour", "Workflow/train-1"): half_an_hour_ago}
    named = '{cluster="c", namespace="ml", workflow="train-1", workload="Workflow/train-1"}'
    assert_answers(tmp_path, said, {query(DASHBOARD, "Workflows"): {named: 3}})


def test_there_are_no_workflows_where_none_is_known(tmp_path: Path) -> None:
    said = {_workload("held:gpus", "Deployment/ranker"): always(1)}
    assert_answers(tmp_path, said, {query(DASHBOARD, "Workflows now"): {"{}": 0}})


def test_a_pod_without_a_workload_is_missing_from_the_known_ones(tmp_path: Path) -> None:
    said = {
        'gputally_pod_info{cluster="c", namespace="ml", pod="a", workload="Workflow/train-1"}': always(1),
        'gputally_pod_info{cluster="c", namespace="ml", pod="b", workload=""}': always(1),
    }
    assert_answers(tmp_path, said, {query(DASHBOARD, "Pods known"): {"{}": 0.5}})
