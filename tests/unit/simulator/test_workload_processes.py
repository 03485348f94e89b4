"""Processes of a workload and their samples tell the same story."""

from statistics import mean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.simulator.driver_samples import RING_SECONDS, samples_between
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Scenario, Shape, Workload
from gputally.simulator.schedule import Span
from gputally.simulator.workload_processes import FIRST_PID, processes_at

spans = st.builds(
    lambda start, length, every: Span(start, start + length, every),
    st.integers(0, 250),
    st.integers(1, 60),
    st.sampled_from([None, 60, 90, 120]),
) | st.builds(Span, st.integers(0, 250))
workloads = st.builds(
    lambda shape, span, count: Workload(shape=shape, gpus=(0,), span=span, count=count),
    st.sampled_from(Shape),
    spans,
    st.integers(1, 3),
)


@settings(max_examples=50)
@given(st.lists(workloads, max_size=3), st.integers(0, 400), st.integers(1, 110), st.booleans())
def test_samples_are_of_processes_that_were_there_and_add_up_to_the_utilisation(
    running: list[Workload], since: int, length: int, long_turns: bool
) -> None:
    (gpu,) = Engine(Scenario(gpus=1, workloads=tuple(running))).gpus
    until = since + length
    samples = samples_between(gpu.places, gpu.physics, since, until, 1_000, long_turns=long_turns)
    kept = range(max(since, until - RING_SECONDS), until)
    there = {process.pid for second in kept for process in processes_at(gpu.places, second)}
    assert {sample.pid for sample in samples} <= there
    assert len({sample.pid for sample in samples}) == len(samples)
    assert {sample.covers_us for sample in samples} <= {length * 1_000_000}
    assert all(since < (sample.timestamp_us - 1_000) / 1e6 <= until for sample in samples)
    busy = [gpu.physics.minute(second // 60).utilization[second % 60] for second in kept]
    if not long_turns:
        total = sum(sample.sm_ratio for sample in samples)
        assert total == pytest.approx(mean(busy) / 100, abs=0.0051 * max(1, len(samples)))


def test_over_an_hour_samples_are_right_though_each_window_is_not() -> None:
    """A standard error of about 9 points in 5 s, and 0.3 in an hour, for two that share evenly."""
    shares = tuple(Workload(shape=Shape.TRAINING, gpus=(0,), load_percent=50) for _ in range(2))
    (gpu,) = Engine(Scenario(gpus=1, workloads=shares)).gpus
    first = [
        next((s.sm_ratio for s in found if s.pid == FIRST_PID), 0.0) / (sum(s.sm_ratio for s in found) or 1)
        for at in range(100, 3700, 5)
        if (found := samples_between(gpu.places, gpu.physics, at, at + 5, 0))
    ]
    assert mean(first) == pytest.approx(0.5, abs=0.012)
    assert pstdev(first) == pytest.approx(0.09, abs=0.03)
