"""What the pages of the fleet and of a node say about GPUs in trouble, by promtool's own engine."""

from pathlib import Path

from dashboards import fleet, node
from tests.bundle.panel_cases import always, assert_answers, query

CARDS = {number: f'cluster="lab", node="n1", gpu="{number}", uuid="GPU-{number}"' for number in range(5)}


def of_cards(metric: str, values: dict[int, float], more: str = "") -> dict[str, str]:
    return {
        f"gputally_gpu_{metric}{{{CARDS[number]}{more}}}": always(value) for number, value in values.items()
    }


def test_of_the_gpus_in_trouble_the_worst_fifty_are_shown(tmp_path: Path) -> None:
    labels = 'cluster="lab", node="n{}", model="H100", problem="p"'
    series = {
        f"gpu:gputally_problem:severity{{{labels.format(number)}}}": always(3 if number < 10 else 1)
        for number in range(60)
    }
    worst = query(fleet.DASHBOARD, "Worst GPUs")
    assert_answers(tmp_path, series, {f"count({worst})": {"{}": 50}, f"count({worst} == 3)": {"{}": 10}})


def test_there_is_a_column_of_the_heatmap_also_where_nothing_is_known(tmp_path: Path) -> None:
    counted = 'model:gputally_gpus_by_utilization:count{{cluster="lab", model="{}", utilization="0.9"}}'
    series = {counted.format("H100"): always(3), counted.format("A100"): always(1)}
    asked = query(fleet.DASHBOARD, "How busy the GPUs are")
    assert_answers(tmp_path, series, {asked: {'{utilization="0.9"}': 4, '{utilization="0"}': 0}})
    assert_answers(tmp_path, {}, {asked: {'{utilization="0"}': 0}})


def test_the_states_of_the_gpus_add_up_also_where_use_is_not_known(tmp_path: Path) -> None:
    records = {"gpus:count": 8, "gpus_up:count": 7, "held:gpus": 6, "busy:gpus": 3, "idle:gpus": 1}
    series = {
        f'model:gputally_{name}{{cluster="lab", model="H100"}}': always(value)
        for name, value in records.items()
    }
    states = {"A": 3, "B": 1, "C": 2, "D": 1, "E": 1}
    assert sum(states.values()) == records["gpus:count"]
    asked = {query(fleet.DASHBOARD, "What the GPUs do", letter): {"{}": n} for letter, n in states.items()}
    assert_answers(tmp_path, series, asked)


def test_a_gpu_of_a_node_is_in_its_gravest_state(tmp_path: Path) -> None:
    devices = {
        f"device:gputally_{name}{{{CARDS[number]}{more}}}": always(value)
        for name, more, values in (
            ("utilization:ratio", "", {1: 0.9, 2: 0.5, 3: 0.0, 4: 0.0}),
            ("held:gpus", ', model="H100"', {0: 1, 1: 1, 2: 1, 3: 1, 4: 0}),
        )
        for number, value in values.items()
    }
    series = {
        **devices,
        **of_cards("up", {0: 0, 1: 1, 2: 1, 3: 1, 4: 1}),
        **of_cards("throttle_active", {1: 1, 2: 0}, ', reason="hw_thermal_slowdown"'),
    }
    lost, slowed, busy, idle, free = 4, 3, 1, 2, 0
    states = {
        f'{{gpu="{number}"}}': float(code) for number, code in enumerate((lost, slowed, busy, idle, free))
    }
    assert_answers(tmp_path, series, {query(node.DASHBOARD, "What each GPU did"): states})


def test_the_gravest_of_several_reasons_is_shown(tmp_path: Path) -> None:
    series = {
        **of_cards("throttle_active", {0: 1, 1: 1, 2: 0}, ', reason="sw_power_cap"'),
        **of_cards("throttle_active", {0: 1, 1: 0, 2: 0}, ', reason="hw_thermal_slowdown"'),
        **of_cards("throttle_active", {2: 1}, ', reason="gpu_idle"'),
    }
    asked = query(node.DASHBOARD, "What holds the clocks down")
    assert_answers(tmp_path, series, {asked: {'{gpu="0"}': 7, '{gpu="1"}': 4, '{gpu="2"}': 0}})
