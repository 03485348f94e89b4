"""Idle GPUs: which pods are listed as idle, and their hints."""

from pathlib import Path

from dashboards.idle import DASHBOARD
from tests.bundle.panel_cases import always, assert_results, query

_GIB = 2**30


def _gpu(gpu: int) -> dict[str, str]:
    device = f'cluster="c", node="n", gpu="{gpu}", uuid="U{gpu}"'
    return {
        f"device:gputally_share:ratio{{{device}}}": always(1),
        f"gputally_gpu_memory_total_bytes{{{device}}}": always(80 * _GIB),
    }


def _held_by(pod: str, gpu: int) -> str:
    """The labels of a GPU and its holder."""
    return f'{{cluster="c", node="n", gpu="{gpu}", uuid="U{gpu}", namespace="lab", pod="{pod}"}}'


def _holder(pod: str, gpu: int, busy: float | None, *, memory: float = 40, since: int = 0) -> dict[str, str]:
    """A pod that holds the whole GPU, from that minute on."""
    labels = _held_by(pod, gpu)
    before = f"_x{since} " if since else ""
    records = {"held:ratio": 1, "part:ratio": 1, "memory_used:bytes": memory * _GIB}
    if busy is not None:
        records["busy:ratio"] = busy
    return _gpu(gpu) | {
        f"device:gputally_pod_{name}{labels}": before + always(value) for name, value in records.items()
    }


def _pod(pod: str, **more: str) -> str:
    labels = {"cluster": "c", "node": "n", "namespace": "lab", "pod": pod} | more
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_each_pod_has_its_hint_and_a_busy_pod_has_none(tmp_path: Path) -> None:
    series = (
        _holder("forgotten", 0, 0)
        | _holder("half", 1, 0.9)
        | _holder("half", 2, 0)
        | _holder("seldom", 3, 0.04)
        | _holder("tiny", 4, 0.3, memory=10)
        | _holder("busy", 5, 0.9)
        | _holder("small-but-busy", 6, 0.9, memory=10)
    )
    assert_results(
        tmp_path,
        series,
        {
            query(DASHBOARD, "Right-sizing hints"): {
                _pod("forgotten", hint="idle: stop it"): 1,
                _pod("half", hint="some GPUs are idle: request fewer"): 2,
                _pod("seldom", hint="rarely busy: share a GPU or use a MIG device"): 1,
                _pod("tiny", hint="small: use a MIG device or a smaller GPU"): 1,
            },
            query(DASHBOARD, "Right-sizing hints", "C"): {
                _pod("forgotten"): 0.5,
                _pod("half"): 0.5,
                _pod("seldom"): 0.5,
                _pod("tiny"): 0.125,
                _pod("busy"): 0.5,
                _pod("small-but-busy"): 0.125,
            },
        },
    )


def test_idle_gpus_of_a_pod_are_listed_even_if_its_others_are_busy(tmp_path: Path) -> None:
    series = _holder("half", 1, 0.9) | _holder("half", 2, 0) | _holder("busy", 5, 0.9)
    assert_results(tmp_path, series, {query(DASHBOARD, "Idle pods"): {_pod("half"): 1}})


def test_the_time_held_is_the_longer_of_counter_and_record(tmp_path: Path) -> None:
    three_minutes, ten_days, the_range = 180, 864_000, 3600
    counter = "gputally_pod_held_seconds_total"
    series = _holder("counted-anew", 0, 0) | _holder("for-days", 1, 0)
    series |= {
        counter + _held_by("counted-anew", 0): always(three_minutes),
        counter + _held_by("for-days", 1): always(ten_days),
    }
    known = {_pod("counted-anew"): the_range, _pod("for-days"): ten_days}
    assert_results(tmp_path, series, {query(DASHBOARD, "Idle pods", "C"): known})


def test_a_pod_younger_than_an_hour_is_not_listed(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _holder("new", 0, 0, since=80),
        {query(DASHBOARD, "Idle pods"): {}, query(DASHBOARD, "Right-sizing hints"): {}},
    )


def test_without_process_samples_the_utilisation_of_the_device_counts(tmp_path: Path) -> None:
    of_device = 'device:gputally_utilization:ratio{{cluster="c", node="n", gpu="{0}", uuid="U{0}"}}'
    series = _holder("forgotten", 0, None) | _holder("busy", 1, None)
    series |= {of_device.format(0): always(0), of_device.format(1): always(0.8)}
    assert_results(tmp_path, series, {query(DASHBOARD, "Idle pods"): {_pod("forgotten"): 1}})


def test_unknown_activity_is_not_idle(tmp_path: Path) -> None:
    assert_results(
        tmp_path,
        _holder("unknown", 0, None),
        {query(DASHBOARD, "Idle pods"): {}, query(DASHBOARD, "Right-sizing hints"): {}},
    )
