"""Fleet, and Node and GPU: GPU problems, states and clock limits."""

from pathlib import Path

from dashboards import fleet, node
from tests.bundle.panel_cases import always, assert_results, query

GPUS = {number: f'cluster="lab", node="n1", gpu="{number}", uuid="GPU-{number}"' for number in range(5)}


def of_gpus(metric: str, values: dict[int, float], more: str = "") -> dict[str, str]:
    return {
        f"gputally_gpu_{metric}{{{GPUS[number]}{more}}}": always(value) for number, value in values.items()
    }


def test_the_fifty_most_severe_gpu_problems_are_shown(tmp_path: Path) -> None:
    labels = 'cluster="lab", node="n{}", model="H100", problem="p"'
    series = {
        f"gpu:gputally_problem:severity{{{labels.format(number)}}}": always(3 if number < 10 else 1)
        for number in range(60)
    }
    worst = query(fleet.DASHBOARD, "GPU problems")
    assert_results(tmp_path, series, {f"count({worst})": {"{}": 50}, f"count({worst} == 3)": {"{}": 10}})


def test_the_heatmap_has_a_bucket_even_without_data(tmp_path: Path) -> None:
    counted = 'model:gputally_gpus_by_utilization:count{{cluster="lab", model="{}", utilization="0.9"}}'
    series = {counted.format("H100"): always(3), counted.format("A100"): always(1)}
    expr = query(fleet.DASHBOARD, "Utilisation distribution")
    assert_results(tmp_path, series, {expr: {'{utilization="0.9"}': 4, '{utilization="0"}': 0}})
    assert_results(tmp_path, {}, {expr: {'{utilization="0"}': 0}})


def test_the_states_of_the_gpus_add_up_with_unknown_activity(tmp_path: Path) -> None:
    records = {"gpus:count": 8, "gpus_up:count": 7, "held:gpus": 6, "busy:gpus": 3, "idle:gpus": 1}
    series = {
        f'model:gputally_{name}{{cluster="lab", model="H100"}}': always(value)
        for name, value in records.items()
    }
    states = {"A": 3, "B": 1, "C": 2, "D": 1, "E": 1}
    assert sum(states.values()) == records["gpus:count"]
    expected = {query(fleet.DASHBOARD, "GPUs by state", letter): {"{}": n} for letter, n in states.items()}
    assert_results(tmp_path, series, expected)


def test_a_gpu_of_a_node_is_in_its_most_severe_state(tmp_path: Path) -> None:
    devices = {
        f"device:gputally_{name}{{{GPUS[number]}{more}}}": always(value)
        for name, more, values in (
            ("utilization:ratio", "", {1: 0.9, 2: 0.5, 3: 0.0, 4: 0.0}),
            ("held:gpus", ', model="H100"', {0: 1, 1: 1, 2: 1, 3: 1, 4: 0}),
        )
        for number, value in values.items()
    }
    series = {
        **devices,
        **of_gpus("up", {0: 0, 1: 1, 2: 1, 3: 1, 4: 1}),
        **of_gpus("throttle_active", {1: 1, 2: 0}, ', reason="hw_thermal_slowdown"'),
    }
    lost, slowed, busy, idle, free = 4, 3, 1, 2, 0
    states = {
        f'{{gpu="{number}"}}': float(code) for number, code in enumerate((lost, slowed, busy, idle, free))
    }
    assert_results(tmp_path, series, {query(node.DASHBOARD, "GPU state"): states})


def test_the_most_severe_of_several_reasons_is_shown(tmp_path: Path) -> None:
    series = {
        **of_gpus("throttle_active", {0: 1, 1: 1, 2: 0}, ', reason="sw_power_cap"'),
        **of_gpus("throttle_active", {0: 1, 1: 0, 2: 0}, ', reason="hw_thermal_slowdown"'),
        **of_gpus("throttle_active", {2: 1}, ', reason="gpu_idle"'),
    }
    expr = query(node.DASHBOARD, "Clock limits")
    assert_results(tmp_path, series, {expr: {'{gpu="0"}': 7, '{gpu="1"}': 4, '{gpu="2"}': 0}})
