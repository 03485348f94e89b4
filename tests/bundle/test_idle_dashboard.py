"""What the dashboard of waste says about a pod, and what it keeps quiet about."""

from pathlib import Path

from dashboards.idle import DASHBOARD
from tests.bundle.panel_cases import always, assert_answers, query

_GIB = 2**30


def _gpu(gpu: int) -> dict[str, str]:
    device = f'cluster="c", node="n", gpu="{gpu}", uuid="U{gpu}"'
    return {
        f"device:gputally_share:ratio{{{device}}}": always(1),
        f"gputally_gpu_memory_total_bytes{{{device}}}": always(80 * _GIB),
    }


def _held_by(pod: str, gpu: int) -> str:
    """The labels of a GPU together with its holder."""
    return f'{{cluster="c", node="n", gpu="{gpu}", uuid="U{gpu}", namespace="lab", pod="{pod}"}}'


def _holder(pod: str, gpu: int, busy: float | None, *, memory: float = 40, since: int = 0) -> dict[str, str]:
    """A pod that has the whole GPU, from that minute on."""
    labels = _held_by(pod, gpu)
    before = f"_x{since} " if since else ""
    told = {"held:ratio": 1, "part:ratio": 1, "memory_used:bytes": memory * _GIB}
    if busy is not None:
        told["busy:ratio"] = busy
    return _gpu(gpu) | {
        f"device:gputally_pod_{name}{labels}": before + always(value) for name, value in told.items()
    }


def _pod(pod: str, **more: str) -> str:
    labels = {"cluster": "c", "node": "n", "namespace": "lab", "pod": pod} | more
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_each_pod_has_the_hint_that_fits_it_and_one_that_works_has_none(tmp_path: Path) -> None:
    series = (
        _holder("forgotten", 0, 0)
        | _holder("half", 1, 0.9)
        | _holder("half", 2, 0)
        | _holder("seldom", 3, 0.04)
        | _holder("tiny", 4, 0.3, memory=10)
        | _holder("works", 5, 0.9)
        | _holder("small-but-busy", 6, 0.9, memory=10)
    )
    assert_answers(
        tmp_path,
        series,
        {
            query(DASHBOARD, "Hints"): {
                _pod("forgotten", hint="runs nothing: stop it"): 1,
                _pod("half", hint="uses only some of its GPUs: ask for fewer"): 2,
                _pod("seldom", hint="hardly runs: share a GPU, or take a MIG device"): 1,
                _pod("tiny", hint="small: a part of a GPU, or a smaller one, would do"): 1,
            },
            query(DASHBOARD, "Hints", "C"): {
                _pod("forgotten"): 0.5,
                _pod("half"): 0.5,
                _pod("seldom"): 0.5,
                _pod("tiny"): 0.125,
                _pod("works"): 0.5,
                _pod("small-but-busy"): 0.125,
            },
        },
    )


def test_the_idle_gpus_of_a_pod_can_be_had_back_also_if_it_works_on_others(tmp_path: Path) -> None:
    series = _holder("half", 1, 0.9) | _holder("half", 2, 0) | _holder("works", 5, 0.9)
    assert_answers(tmp_path, series, {query(DASHBOARD, "Idle now"): {_pod("half"): 1}})


def test_a_pod_holds_its_gpus_since_before_the_exporter_began_to_count(tmp_path: Path) -> None:
    three_minutes, ten_days, the_range = 180, 864_000, 3600
    counter = "gputally_pod_held_seconds_total"
    series = _holder("counted-anew", 0, 0) | _holder("for-days", 1, 0)
    series |= {
        counter + _held_by("counted-anew", 0): always(three_minutes),
        counter + _held_by("for-days", 1): always(ten_days),
    }
    known = {_pod("counted-anew"): the_range, _pod("for-days"): ten_days}
    assert_answers(tmp_path, series, {query(DASHBOARD, "Idle now", "C"): known})


def test_nothing_is_said_of_a_pod_that_came_within_the_hour(tmp_path: Path) -> None:
    assert_answers(
        tmp_path,
        _holder("new", 0, 0, since=80),
        {query(DASHBOARD, "Idle now"): {}, query(DASHBOARD, "Hints"): {}},
    )


def test_where_processes_are_not_sampled_the_devices_own_utilisation_says_it(tmp_path: Path) -> None:
    of_device = 'device:gputally_utilization:ratio{{cluster="c", node="n", gpu="{0}", uuid="U{0}"}}'
    series = _holder("forgotten", 0, None) | _holder("works", 1, None)
    series |= {of_device.format(0): always(0), of_device.format(1): always(0.8)}
    assert_answers(tmp_path, series, {query(DASHBOARD, "Idle now"): {_pod("forgotten"): 1}})


def test_what_cannot_be_told_is_not_called_idle(tmp_path: Path) -> None:
    assert_answers(
        tmp_path,
        _holder("silent", 0, None),
        {query(DASHBOARD, "Idle now"): {}, query(DASHBOARD, "Hints"): {}},
    )
