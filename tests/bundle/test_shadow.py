"""Whom the dashboard of shadow use names, and as whom."""

from pathlib import Path

from dashboards.shadow import DASHBOARD
from tests.bundle.panel_cases import always, assert_answers, query

_GPU = 'cluster="c", node="n", gpu="0", uuid="U0"'
_UNASKED = "Pods that use a GPU and never asked for it"


def _pod(pod: str, requested: str, memory: float) -> dict[str, str]:
    name = f'namespace="lab", pod="{pod}"'
    info = f'cluster="c", node="n", {name}, pod_uid="{pod}", workload="", requested="{requested}"'
    return {
        f"gputally_pod_info{{{info}}}": always(1),
        f'gputally_pod_memory_used_bytes{{{_GPU}, {name}, container="one"}}': always(memory),
        f'gputally_pod_memory_used_bytes{{{_GPU}, {name}, container="other"}}': always(memory),
        f'gputally_pod_processes{{{_GPU}, {name}, container="one"}}': always(1),
        f"device:gputally_pod_held:ratio{{{_GPU}, {name}}}": always(1),
    }


def test_a_pod_that_never_asked_is_shown_beside_the_one_whose_gpu_it_is(tmp_path: Path) -> None:
    assert_answers(
        tmp_path,
        _pod("guest", "false", 5) | _pod("host", "true", 30),
        {
            query(DASHBOARD, _UNASKED): {f'{{{_GPU}, namespace="lab", pod="guest", holder="lab/host"}}': 10},
            query(DASHBOARD, "Pods unasked"): {"{}": 1},
            query(DASHBOARD, "On GPUs"): {"{}": 1},
        },
    )


def test_a_pod_on_a_gpu_of_nobody_is_shown_without_a_holder(tmp_path: Path) -> None:
    assert_answers(
        tmp_path,
        _pod("guest", "false", 5),
        {query(DASHBOARD, _UNASKED): {f'{{{_GPU}, namespace="lab", pod="guest"}}': 10}},
    )


def test_whether_a_pod_asked_may_be_unknown_and_is_then_no_accusation(tmp_path: Path) -> None:
    assert_answers(
        tmp_path,
        _pod("guest", "", 5),
        {
            query(DASHBOARD, _UNASKED): {},
            query(DASHBOARD, "Pods unasked"): {"{}": 0},
            query(DASHBOARD, "Not known"): {"{}": 1},
        },
    )


def test_an_owner_that_has_gone_is_not_there_any_more(tmp_path: Path) -> None:
    def owner(name: str, active: int) -> dict[str, str]:
        labels = f'{{{_GPU}, owner="{name}"}}'
        return {
            f"gputally_host_active{labels}": always(active),
            f"gputally_host_processes{labels}": always(2),
            f"gputally_host_memory_used_bytes{labels}": always(7),
        }

    assert_answers(
        tmp_path,
        owner("slurm/42", 1) | owner("slurm/41", 0),
        {
            query(DASHBOARD, "Not in Kubernetes"): {'{cluster="c", node="n", owner="slurm/42"}': 7},
            query(DASHBOARD, "Not in pods"): {"{}": 1},
        },
    )
