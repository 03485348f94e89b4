"""Processes of a workload and their samples tell the same story."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Scenario, Shape, Workload
from gputally.simulator.schedule import Span
from gputally.simulator.workload_processes import processes_at, samples_between

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
@given(st.lists(workloads, max_size=3), st.integers(0, 400), st.integers(0, 110))
def test_each_process_has_one_sample_for_each_second_of_its_life(
    running: list[Workload], since: int, length: int
) -> None:
    (gpu,) = Engine(Scenario(gpus=1, workloads=tuple(running))).gpus
    samples = samples_between(gpu.places, gpu.physics, since, since + length, 1_000)
    expected = [
        (1_000 + (second + 1) * 1_000_000, process.pid)
        for second in range(since, since + length)
        for process in processes_at(gpu.places, second)
    ]
    assert [(sample.timestamp_us, sample.pid) for sample in samples] == expected
    for second in range(since, since + length):
        ended = 1_000 + (second + 1) * 1_000_000
        busy = sum(round(sample.sm_ratio * 100) for sample in samples if sample.timestamp_us == ended)
        assert busy == gpu.physics.minute(second // 60).utilization[second % 60]
