"""The true energy: all of what the GPU drew, and to each workload what its work added."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputally.simulator import MODEL_NAMES
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import GPU_MODELS, Fault, FaultKind, MigLayout, Scenario, Shape, Workload
from gputally.simulator.schedule import Span
from tools.rendering.true_energy import TrueEnergy, true_energy

IDLE_MJ = GPU_MODELS["h100"].idle_watts * 1000


def work(shape: Shape = Shape.TRAINING, **how: object) -> Workload:
    return Workload(shape=shape, gpus=(0,), **how)  # type: ignore[arg-type]


def truth(elapsed: float, *workloads: Workload, **how: object) -> TrueEnergy:
    (energy,) = true_energy(Engine(Scenario(gpus=1, workloads=workloads, **how)), elapsed)  # type: ignore[arg-type]
    return energy


@settings(max_examples=15)
@given(
    st.integers(0, 20),
    st.sampled_from([model for model in MODEL_NAMES if GPU_MODELS[model].energy_counter]),
    st.sampled_from([1, 2, 8]),
    st.floats(0, 2000),
)
@example(3, "h100", 8, 1475.678)
def test_it_equals_the_increase_of_the_counter(seed: int, model: str, gpus: int, elapsed: float) -> None:
    engine = Engine(default_scenario(gpus, model, seed))
    before, after = engine.readings(0), engine.readings(elapsed)
    for one, other, energy in zip(before, after, true_energy(engine, elapsed), strict=True):
        assert one.energy_millijoules is not None
        assert other.energy_millijoules is not None
        assert sum(energy.values()) == other.energy_millijoules - one.energy_millijoules
        assert min(energy.values()) >= 0


def test_it_is_exact_in_mig_mode_and_with_throttling() -> None:
    engine = Engine(
        Scenario(
            gpus=1,
            workloads=(work(instance=0), work(Shape.INFERENCE, instance=1), work(instance=1)),
            faults=(Fault(kind=FaultKind.THROTTLE, gpus=(0,), reason="hw_slowdown", span=Span(100, 130)),),
            mig=(MigLayout((0,), ("4g.40gb", "3g.40gb")),),
        )
    )
    (before,), (after,), (energy,) = engine.readings(0), engine.readings(200), true_energy(engine, 200)
    assert sum(energy.values()) == (after.energy_millijoules or 0) - (before.energy_millijoules or 0)


def test_the_energy_of_an_unused_gpu_is_idle() -> None:
    energy = truth(100, work(span=Span(1000)), work(Shape.IDLE))
    assert energy[None] == pytest.approx(100 * IDLE_MJ, rel=0.01)
    assert energy[0] == energy[1] == 0


def test_a_single_workload_has_all_energy_of_its_time() -> None:
    energy = truth(300, work(span=Span(100, 200)))
    assert energy[None] == pytest.approx(200 * IDLE_MJ, rel=0.01)
    assert energy[0] > 5 * IDLE_MJ * 100


def test_a_workload_with_memory_only_has_its_share_of_the_idle_power() -> None:
    energy = truth(500, work(), work(Shape.NOTEBOOK, load_percent=1))
    half_of_idle = 500 * IDLE_MJ / 2
    assert half_of_idle < energy[1] < 1.4 * half_of_idle
    assert energy[0] > 10 * energy[1]


def test_the_same_sm_time_at_less_power_is_less_energy() -> None:
    energy = truth(500, work(), work(power_percent=60))
    idle = 500 * IDLE_MJ / 2
    assert (energy[1] - idle) / (energy[0] - idle) == pytest.approx(0.6, abs=0.03)


def test_a_power_limit_reduces_all_in_proportion() -> None:
    free = truth(500, work(load_percent=60), work(load_percent=30))
    capped = truth(500, work(load_percent=60), work(load_percent=30), power_limit_watts=300)
    idle = 500 * IDLE_MJ / 2
    assert sum(capped.values()) < 0.6 * sum(free.values())
    ratios = [(energy[1] - idle) / (energy[0] - idle) for energy in (free, capped)]
    assert ratios[0] == pytest.approx(ratios[1], rel=0.02)
