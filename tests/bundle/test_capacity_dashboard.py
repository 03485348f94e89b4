"""Capacity: pods that wait, from records of kube-state-metrics and Kueue."""

import json
from pathlib import Path

from dashboards import capacity
from dashboards.build import text_of
from dashboards.reading import panels
from tests.bundle.panel_cases import always, assert_results, query

POD = 'cluster="lab", namespace="ml", pod="{}"'
LARGE, SMALL = POD.format("large"), POD.format("small")
GPU = 'resource="nvidia_com_gpu"'
SERIES = {
    f"pod:gputally_pending:seconds{{{LARGE}}}": always(3600),
    f"pod:gputally_pending:seconds{{{SMALL}}}": always(60),
    f'pod:gputally_pending:devices{{{LARGE}, {GPU}, reason="Unschedulable"}}': always(8),
    f'pod:gputally_pending:devices{{{SMALL}, {GPU}, node="n1", reason="Starting"}}': always(1),
    f'resource:gputally_pending:devices{{cluster="lab", {GPU}, reason="Unschedulable"}}': always(8),
    f'resource:gputally_pending:devices{{cluster="lab", {GPU}, reason="Starting"}}': always(1),
    f'resource:gputally_requested:devices{{cluster="lab", {GPU}}}': always(13),
    f'resource:gputally_allocatable:devices{{cluster="lab", {GPU}}}': always(16),
    f'node:gputally_requestable:devices{{cluster="lab", node="n1", {GPU}}}': always(3),
    f'node:gputally_requestable:devices{{cluster="lab", node="n2", {GPU}}}': always(0),
    f'node:gputally_allocatable:devices{{cluster="lab", node="n1", {GPU}}}': always(8),
}


def of(title: str, letter: str = "A") -> str:
    return query(capacity.DASHBOARD, title, letter)


def test_pods_that_wait_are_counted_and_listed(tmp_path: Path) -> None:
    expected = {
        of("Pods pending"): {"{}": 2},
        of("Pending GPUs"): {"{}": 9},
        of("Longest wait"): {"{}": 3600},
        of("Pending GPUs by reason"): {'{reason="Unschedulable"}': 8, '{reason="Starting"}': 1},
        of("Pending pods"): {f"{{{LARGE}}}": 3600, f"{{{SMALL}}}": 60},
        of("Pending pods", "B"): {
            f'{{{LARGE}, {GPU}, reason="Unschedulable"}}': 8,
            f'{{{SMALL}, {GPU}, reason="Starting"}}': 1,
        },
        of("From allocatable to busy"): {"{}": 16},
        of("From allocatable to busy", "B"): {"{}": 13},
        of("Nodes with free GPUs"): {f'{{cluster="lab", node="n1", {GPU}}}': 3},
    }
    assert_results(tmp_path, SERIES, expected)


def test_without_pending_pods_the_numbers_are_zero(tmp_path: Path) -> None:
    series = {f'resource:gputally_requested:devices{{cluster="lab", {GPU}}}': always(4)}
    numbers = {of(title): {"{}": 0} for title in ("Pods pending", "Pending GPUs", "Longest wait")}
    assert_results(tmp_path, series, numbers)


def test_without_kube_state_metrics_every_panel_that_needs_it_says_so() -> None:
    silent = {
        panel["title"]
        for panel in panels(json.loads(text_of(capacity.DASHBOARD)))
        if panel.get("targets")
        and not any(word in json.dumps(panel) for word in ("kube-state-metrics", "metrics of Kueue"))
    }
    assert silent == set()


def test_quotas_and_queues_are_shown_for_gpus_only(tmp_path: Path) -> None:
    quota = 'cluster="lab", namespace="ml", resourcequota="q"'
    queue = 'cluster="lab", cluster_queue="a", resource="nvidia.com/gpu"'
    series = {
        f'kube_resourcequota{{{quota}, resource="requests.nvidia.com/gpu", type="hard"}}': always(8),
        f'kube_resourcequota{{{quota}, resource="requests.nvidia.com/gpu", type="used"}}': always(6),
        f'kube_resourcequota{{{quota}, resource="requests.cpu", type="used"}}': always(6),
        f"queue:gputally_reserved:devices{{{queue}}}": always(3),
        f"queue:gputally_quota:devices{{{queue}}}": always(4),
        'queue:gputally_pending:workloads{cluster="lab", cluster_queue="a"}': always(2),
    }
    expected: dict[str, dict[str, float]] = {
        of("GPU quotas of namespaces"): {f'{{{quota}, resource="requests.nvidia.com/gpu"}}': 6},
        of("GPU quotas of namespaces", "C"): {f'{{{quota}, resource="requests.nvidia.com/gpu"}}': 0.75},
        of("Kueue queues"): {f"{{{queue}}}": 3},
        of("Kueue queues", "C"): {f"{{{queue}}}": 2},
    }
    assert_results(tmp_path, series, expected)
