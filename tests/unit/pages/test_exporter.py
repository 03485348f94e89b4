"""When the exporter calls itself ready."""

from gputally.model import Gpu, Reading, Snapshot, SourceState
from gputally.pages.exporter import readiness

UP = SourceState(name="nvml", up=True)
DOWN = SourceState(name="nvml", up=False, reason="NVML library not found")


def snapshot(*sources: SourceState, age: float = 0.0, gpus: int = 0) -> Snapshot:
    readings = tuple(Reading(gpu=Gpu(f"GPU-{i}", i, "nvidia", "T4")) for i in range(gpus))
    return Snapshot(taken_at_seconds=1000.0, age_seconds=age, readings=readings, sources=sources)


def test_not_ready_before_the_first_sample() -> None:
    assert readiness(snapshot(), 1000.0, 60) == (False, "not ready: the first sample is not done")


def test_ready_with_gpus() -> None:
    assert readiness(snapshot(UP, gpus=2), 1001.0, 60) == (True, "ready: 2 GPUs")


def test_ready_without_a_gpu_but_it_says_why() -> None:
    assert readiness(snapshot(DOWN), 1001.0, 60) == (True, "ready: 0 GPUs (nvml: NVML library not found)")


def test_not_ready_when_the_sampler_stands_still() -> None:
    assert readiness(snapshot(UP, gpus=1), 1061.5, 60) == (False, "not ready: the readings are 62 s old")


def test_not_ready_when_a_source_hangs_for_long() -> None:
    hanging = SourceState(name="nvml", up=False, reason="no answer within 4 s")
    ready, text = readiness(snapshot(hanging, age=75.0, gpus=1), 1001.0, 60)
    assert (ready, text) == (False, "not ready: the readings are 76 s old (nvml: no answer within 4 s)")


def test_a_clock_that_was_set_back_does_not_make_readings_old() -> None:
    assert readiness(snapshot(UP), 10.0, 60)[0]
