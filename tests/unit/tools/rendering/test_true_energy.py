"""The true power: a floor for those who hold the GPU, and to each workload what its work adds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.simulator.engine import Engine
from gputally.simulator.scenario import GPU_MODELS, MigLayout, Scenario, Shape, Workload
from gputally.simulator.schedule import Span
from tools.rendering.true_energy import UNATTRIBUTED, Milliwatts, TruePower

IDLE_MW = GPU_MODELS["h100"].idle_watts * 1000


def work(shape: Shape = Shape.TRAINING, **how: object) -> Workload:
    return Workload(shape=shape, gpus=(0,), **how)  # type: ignore[arg-type]


def energy(seconds: int, *workloads: Workload, **how: object) -> Milliwatts:
    """From second 100 on, in millijoules."""
    power = TruePower(Engine(Scenario(gpus=1, workloads=workloads, **how)))  # type: ignore[arg-type]
    total: Milliwatts = {}
    for second in range(100, 100 + seconds):
        for number, milliwatts in power.of_second(second).items():
            total[number] = total.get(number, 0) + milliwatts
    return total


def test_a_gpu_that_no_one_holds_is_idle_for_no_one() -> None:
    used = energy(50, work(span=Span(1000)))
    assert used.keys() == {UNATTRIBUTED}
    assert used[UNATTRIBUTED] == pytest.approx(50 * IDLE_MW, rel=0.05)


def test_who_only_holds_the_gpu_has_its_part_of_the_idle_power() -> None:
    used = energy(100, work(), work(Shape.IDLE), work(Shape.NOTEBOOK, load_percent=1))
    assert used[1,] == pytest.approx(used[2,], rel=0.01)
    assert 100 * IDLE_MW / 3 < used[1,] < 100 * IDLE_MW / 2
    assert used[0,] > 10 * used[1,]


def test_a_process_and_heat_raise_the_idle_power() -> None:
    cold = energy(20, work(Shape.IDLE))[0,]
    context = energy(20, work(Shape.NOTEBOOK, load_percent=1))[0,]
    after_work = energy(5, work(span=Span(0, 100)), work(Shape.NOTEBOOK, load_percent=1))[1,] * 4
    assert cold < context < after_work


def test_the_same_sm_time_at_less_power_is_less_energy() -> None:
    used = energy(200, work(), work(power_percent=60))
    idle = 200 * 1.3 * IDLE_MW / 2
    assert (used[1,] - idle) / (used[0,] - idle) == pytest.approx(0.6, abs=0.03)


def test_twice_the_work_is_less_than_twice_the_power() -> None:
    one, two = (sum(energy(100, *[work(load_percent=40)] * n).values()) for n in (1, 2))
    floor = 100 * IDLE_MW
    assert 1.5 < (two - floor) / (one - floor) < 1.95


def test_a_power_limit_is_never_exceeded() -> None:
    power = TruePower(Engine(Scenario(gpus=1, workloads=(work(), work()), power_limit_watts=300)))
    assert max(sum(power.of_second(second).values()) for second in range(60, 200)) == 300_000


def test_mig_devices_have_the_idle_power_by_their_size() -> None:
    layout = (MigLayout((0,), ("4g.40gb", "1g.10gb")),)
    used = energy(100, work(Shape.IDLE, instance=0), work(Shape.IDLE, instance=1), mig=layout)
    assert used[0,] / used[1,] == pytest.approx(4, rel=0.01)


@settings(max_examples=20)
@given(
    st.lists(
        st.builds(
            lambda shape, load, power, start: work(
                shape, load_percent=load, power_percent=power, span=Span(start)
            ),
            st.sampled_from(Shape),
            st.integers(1, 100),
            st.integers(1, 100),
            st.integers(0, 300),
        ),
        max_size=4,
    )
)
def test_no_part_is_negative_and_all_parts_are_of_those_who_hold_the_gpu(workloads: list[Workload]) -> None:
    power = TruePower(Engine(Scenario(gpus=1, workloads=tuple(workloads))))
    for second in range(0, 400, 37):
        parts = power.of_second(second)
        assert min(parts.values()) >= 0
        holders = {(n,) for n, one in enumerate(workloads) if one.span.began(second) is not None}
        assert parts.keys() == (holders or {UNATTRIBUTED})
