"""Shadow use: unrequested pods, unknown requests and owners outside Kubernetes."""

from pathlib import Path

from dashboards.shadow import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query

_GPU = 'cluster="c", node="n", gpu="0", uuid="U0"'
_UNREQUESTED = "Unrequested pods by GPU"


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


def test_an_unrequested_pod_is_shown_with_a_pod_to_which_the_gpu_is_allocated(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _pod("guest", "false", 5) | _pod("host", "true", 30),
        {
            query(DASHBOARD, _UNREQUESTED): {
                f'{{{_GPU}, namespace="lab", pod="guest", holder="lab/host"}}': 10
            },
            query(DASHBOARD, "Unrequested pods"): {"{}": 1},
            query(DASHBOARD, "GPUs"): {"{}": 1},
        },
    )


def test_an_unrequested_pod_on_a_free_gpu_is_shown_without_a_holder(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _pod("guest", "false", 5),
        {query(DASHBOARD, _UNREQUESTED): {f'{{{_GPU}, namespace="lab", pod="guest"}}': 10}},
    )


def test_a_pod_with_an_unknown_request_is_counted_apart(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _pod("guest", "", 5),
        {
            query(DASHBOARD, _UNREQUESTED): {},
            query(DASHBOARD, "Unrequested pods"): {"{}": 0},
            query(DASHBOARD, "Unknown"): {"{}": 1},
        },
    )


def test_an_ended_owner_is_left_out(tmp_path: Path) -> None:
    def owner(name: str, active: int) -> dict[str, str]:
        labels = f'{{{_GPU}, owner="{name}"}}'
        return {
            f"gputally_host_active{labels}": always(active),
            f"gputally_host_processes{labels}": always(2),
            f"gputally_host_memory_used_bytes{labels}": always(7),
        }

    assert_results(
        tmp_path,
        owner("slurm/42", 1) | owner("slurm/41", 0),
        {
            query(DASHBOARD, "Owners outside Kubernetes"): {'{cluster="c", node="n", owner="slurm/42"}': 7},
            query(DASHBOARD, "Host owners"): {"{}": 1},
        },
    )
