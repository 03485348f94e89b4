"""What the pages of the fleet and of a node say about GPUs in trouble, by promtool's own engine."""

from pathlib import Path

from dashboards import fleet, node
from tests.bundle.panel_cases import always, assert_answers, query

CARDS = {number: f'cluster="lab", node="n1", gpu="{number}", uuid="GPU-{number}"' for number in range(5)}


def of_cards(metric: str, values: dict[int, float], more: str = "") -> dict[str, str]:
    return {
        f"gputally_gpu_{metric}{{{CARDS[number]}{more}}}": always(value) for number, value in values.items()
    }


def test_the_worst_gpus_come_with_their_problem_and_the_well_ones_not_at_all(tmp_path: Path) -> None:
    every = dict.fromkeys(CARDS, 1.0)
    series = {
        **of_cards("info", every, ', model="H100"'),
        **of_cards("up", {**every, 0: 0}),
        **of_cards("recovery_action", {**every, 1: 0}, ', action="none"'),
        **of_cards("throttle_active", {2: 1, 3: 0}, ', reason="hw_thermal_slowdown"'),
        **of_cards("utilization_ratio", {3: 1, 4: 1}),
        **of_cards("power_watts", {3: 100, 4: 650}),
        **of_cards("power_limit_watts", {3: 700, 4: 700}),
    }
    found = {
        (0, "lost: answers no more"): 3,
        (1, "driver asks for recovery"): 3,
        (2, "slowed down, too hot"): 2,
        (3, "busy at idle power: hangs?"): 1,
    }
    answers = {
        f'{{{CARDS[number]}, model="H100", problem="{problem}"}}': float(badness)
        for (number, problem), badness in found.items()
    }
    assert_answers(tmp_path, series, {query(fleet.DASHBOARD, "Worst GPUs"): answers})


def test_the_states_of_the_gpus_add_up_also_where_use_is_not_known(tmp_path: Path) -> None:
    records = {"gpus:count": 8, "gpus_up:count": 7, "held:gpus": 6, "busy:gpus": 3, "wasted:gpus": 1}
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
