"""Each workload shape has a signature that a dashboard can tell from the others."""

from itertools import pairwise
from statistics import mean, pstdev

import pytest

from gputally.model import Reading
from gputally.simulator import MODEL_NAMES
from gputally.simulator.engine import Engine
from gputally.simulator.nvidia_models import NVIDIA_MODELS
from gputally.simulator.scenario import GPU_MODELS, Memory, Scenario, Shape, Workload
from gputally.simulator.schedule import Span


def play(*workloads: Workload, model: str = "h100", seed: int = 0) -> Engine:
    return Engine(Scenario(gpus=1, model=model, seed=seed, workloads=workloads))


def on_gpu_0(shape: Shape, **how: object) -> Workload:
    return Workload(shape=shape, gpus=(0,), **how)  # type: ignore[arg-type]


def read(engine: Engine, second: float, since: float | None = None) -> Reading:
    (reading,) = engine.readings(second, since=since)
    return reading


def over(engine: Engine, seconds: range, name: str) -> list[float]:
    return [getattr(read(engine, second), name) for second in seconds]


def test_training_is_constantly_high_with_a_drop_for_each_checkpoint() -> None:
    engine = play(on_gpu_0(Shape.TRAINING))
    steady = over(engine, range(60, 560), "gpu_utilization_ratio")
    assert min(steady) >= 0.9
    assert mean(over(engine, range(60, 560, 5), "power_watts")) > 0.9 * 700
    dip = over(engine, range(572, 588), "gpu_utilization_ratio")
    assert max(dip) < 0.2
    assert max(over(engine, range(572, 588), "power_watts")) < 250
    assert min(over(engine, range(600, 660), "gpu_utilization_ratio")) >= 0.9
    reading = read(engine, 400)
    assert (reading.tensor_active_ratio or 0) > 0.3
    assert reading.processes is not None
    assert [process.kind for process in reading.processes] == ["compute"]


def test_a_memory_bound_workload_draws_less_power_for_the_same_sm_time() -> None:
    usual, waiting = play(on_gpu_0(Shape.TRAINING)), play(on_gpu_0(Shape.TRAINING, power_percent=60))
    seconds = range(60, 120)
    for name in ("gpu_utilization_ratio", "memory_used_bytes"):
        assert over(usual, seconds, name) == over(waiting, seconds, name)
    less = mean(over(waiting, seconds, "power_watts")) / mean(over(usual, seconds, "power_watts"))
    assert 0.55 < less < 0.7


def test_inference_comes_in_bursts() -> None:
    engine = play(on_gpu_0(Shape.INFERENCE))
    loads = over(engine, range(100, 700), "gpu_utilization_ratio")
    assert 0.1 < mean(loads) < 0.8
    assert pstdev(loads) > 0.1
    assert min(loads) < 0.1
    assert max(loads) > 0.6


def test_inference_has_a_daily_cycle() -> None:
    engine = play(on_gpu_0(Shape.INFERENCE))
    noon, night = (
        mean(over(engine, range(start, start + 600, 2), "gpu_utilization_ratio"))
        for start in (6 * 3600, 18 * 3600)
    )
    assert noon > 2 * night


def test_inference_on_video_uses_the_video_engines() -> None:
    plain, video = play(on_gpu_0(Shape.INFERENCE)), play(on_gpu_0(Shape.INFERENCE, video=True))
    assert max(over(plain, range(100, 200), "decoder_utilization_ratio")) == 0
    assert max(over(video, range(100, 200), "decoder_utilization_ratio")) > 0.3
    assert max(over(video, range(100, 200), "encoder_utilization_ratio")) > 0.1


def test_a_notebook_holds_memory_and_is_mostly_idle() -> None:
    engine = play(on_gpu_0(Shape.NOTEBOOK))
    loads = over(engine, range(3600, 3600 * 3, 5), "gpu_utilization_ratio")
    assert 0 < mean(loads) < 0.05
    assert sum(load == 0 for load in loads) > 0.9 * len(loads)
    reading = read(engine, 3600)
    assert (reading.memory_used_bytes or 0) > 10 * 2**30
    assert reading.processes is not None
    assert len(reading.processes) == 1


def test_held_memory_increases_power_even_when_idle() -> None:
    held = min(over(play(on_gpu_0(Shape.NOTEBOOK)), range(600, 660), "power_watts"))
    bare = max(over(play(), range(600, 660), "power_watts"))
    assert bare < held < 1.3 * bare


def test_an_unrequested_pod_uses_a_share_of_the_gpu() -> None:
    loads = over(play(on_gpu_0(Shape.UNREQUESTED)), range(60, 1200, 7), "gpu_utilization_ratio")
    assert 0.1 < min(loads) < max(loads) < 0.6


@pytest.mark.parametrize("model", ["a100", "h100", "b200", "l40s", "t4", "rtx4090"])
def test_a_hang_has_high_utilisation_and_low_power(model: str) -> None:
    engine = play(on_gpu_0(Shape.HANG), model=model)
    assert (read(engine, 50).power_watts or 0) > 0.8 * GPU_MODELS[model].default_watts, "it ran well at first"
    assert set(over(engine, range(61, 400, 7), "gpu_utilization_ratio")) == {1.0}
    card = GPU_MODELS[model]
    near_idle = card.idle_watts + 0.1 * (card.default_watts - card.idle_watts)
    assert max(over(engine, range(61, 400, 7), "power_watts")) < near_idle
    tensor = read(engine, 300).tensor_active_ratio
    assert tensor == (0 if NVIDIA_MODELS[model].activity_counters else None)


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_a_hang_is_distinguished_from_work_by_power_on_every_model(model: str) -> None:
    """No card tells what it draws when idle: 30 % of its limit is between a hang and work on all of them."""
    hung, trains = play(on_gpu_0(Shape.HANG), model=model), play(on_gpu_0(Shape.TRAINING), model=model)
    for engine, least, most in ((hung, 0.0, 0.25), (trains, 0.8, 1.0)):
        for second in range(120, 180, 7):
            reading = read(engine, second)
            assert (reading.gpu_utilization_ratio or 0) > 0.9
            assert least < (reading.power_watts or 0) / (reading.power_limit_watts or 1) <= most


@pytest.mark.parametrize("model", ["h100", "mi300x"])
def test_a_leak_grows_until_the_memory_is_full(model: str) -> None:
    leaking = on_gpu_0(Shape.INFERENCE, memory=Memory(percent=50), leak_mib=3600, count=2)
    engine, steady = play(leaking, model=model), play(on_gpu_0(Shape.INFERENCE, count=2), model=model)
    hours = [read(engine, 600 + hour * 3600).memory_used_bytes or 0 for hour in range(4)]
    assert {after - before for before, after in pairwise(hours)} == {3600 * 2**20}
    later = read(engine, 30 * 86400)
    assert later.memory_free_bytes == 0
    assert sum(process.memory_used_bytes or 0 for process in later.processes or ()) > hours[-1]
    assert read(steady, 600).memory_used_bytes == read(steady, 4 * 3600).memory_used_bytes


def test_idle_has_no_process() -> None:
    reading = read(play(on_gpu_0(Shape.IDLE)), 300)
    assert reading.processes == ()
    assert reading.process_samples == ()
    assert reading.gpu_utilization_ratio == 0


def test_a_workload_exists_from_its_start_to_its_stop() -> None:
    engine = play(on_gpu_0(Shape.TRAINING, span=Span(100, 205)))
    assert read(engine, 99.9).processes == ()
    assert len(read(engine, 100).processes or ()) == 1
    assert read(engine, 99).gpu_utilization_ratio == 0
    assert (read(engine, 204).gpu_utilization_ratio or 0) > 0.9
    assert len(read(engine, 204.9).processes or ()) == 1
    assert read(engine, 205).processes == ()
    assert read(engine, 205).gpu_utilization_ratio == 0


def test_each_run_has_new_pids() -> None:
    engine = play(on_gpu_0(Shape.TRAINING, span=Span(0, 300, 600), count=2))
    first, second = ({p.pid for p in read(engine, at).processes or ()} for at in (100, 700))
    assert len(first) == len(second) == 2
    assert not first & second
    assert {p.pid for p in read(engine, 200).processes or ()} == first


def test_pids_are_unique_on_the_host() -> None:
    scenario = Scenario(
        gpus=64,
        workloads=(
            Workload(shape=Shape.TRAINING, gpus=tuple(range(64)), count=3),
            Workload(shape=Shape.NOTEBOOK, gpus=tuple(range(0, 64, 2))),
        ),
    )
    pids = [p.pid for reading in Engine(scenario).readings(60) for p in reading.processes or ()]
    assert len(pids) == len(set(pids)) == 64 * 3 + 32


def test_half_the_load_is_half_the_work() -> None:
    full, half = (
        mean(
            over(
                play(on_gpu_0(Shape.TRAINING, load_percent=percent)), range(60, 120), "gpu_utilization_ratio"
            )
        )
        for percent in (100, 50)
    )
    assert half == pytest.approx(full / 2, abs=0.02)


def test_two_workloads_share_the_time_and_memory_of_a_gpu() -> None:
    engine = play(
        on_gpu_0(Shape.TRAINING, memory=Memory(percent=70)),
        on_gpu_0(Shape.TRAINING, memory=Memory(percent=70), count=2, name="second"),
    )
    reading = read(engine, 300, since=295)
    assert reading.gpu_utilization_ratio is not None
    assert 0.97 <= reading.gpu_utilization_ratio <= 1
    processes = reading.processes or ()
    assert [process.name for process in processes] == ["python3.11", "second", "second"]
    assert reading.memory_free_bytes == 0, "the second gets what the first has left"
    busy = {process.pid: 0.0 for process in processes}
    for second in range(100, 1000, 5):
        for sample in read(engine, second + 5, since=second).process_samples or ():
            busy[sample.pid] += sample.sm_ratio / 180
    first, *others = busy.values()
    assert first == pytest.approx(0.48, abs=0.03)
    assert all(other == pytest.approx(0.24, abs=0.03) for other in others)


def test_samples_add_up_to_the_utilisation_of_the_gpu() -> None:
    engine = play(on_gpu_0(Shape.INFERENCE, count=3, video=True), on_gpu_0(Shape.UNREQUESTED))
    for second in range(100, 160):
        samples = read(engine, second + 1, since=second).process_samples or ()
        total = sum(sample.sm_ratio for sample in samples)
        assert total == pytest.approx(read(engine, second).gpu_utilization_ratio or 0, abs=0.021)


def test_each_sample_is_given_whole_to_one_process() -> None:
    engine = play(on_gpu_0(Shape.TRAINING, load_percent=50), on_gpu_0(Shape.TRAINING, load_percent=50))
    won = [
        round(6 * sample.sm_ratio)
        for second in range(100, 160)
        for sample in read(engine, second + 1, since=second).process_samples or ()
    ]
    assert set(won) > {1, 3, 5}, "never an even half: between none and all six"


def test_the_work_of_mps_clients_counts_for_their_server() -> None:
    engine = play(on_gpu_0(Shape.TRAINING, kind="mps"), on_gpu_0(Shape.INFERENCE, kind="mps"))
    reading = read(engine, 300, since=295)
    clients = {process.pid for process in reading.processes or () if process.kind == "mps"}
    (server,) = [process for process in reading.processes or () if process.pid not in clients]
    assert (server.kind, server.name) == ("compute", "nvidia-cuda-mps-server")
    assert {sample.pid for sample in reading.process_samples or ()} == {server.pid}
    assert (reading.compute_mode or {})["exclusive_process",] == 1


def test_samples_cover_the_time_since_the_last_reading_once() -> None:
    engine = play(on_gpu_0(Shape.TRAINING))
    times = [20.0, 25.3, 25.9, 31.0, 44.75, 60.0]
    covered = [
        sample.covers_us
        for since, now in pairwise(times)
        for sample in read(engine, now, since=since).process_samples or ()
    ]
    assert sum(covered) == 40_000_000


def test_samples_cover_at_most_the_buffer_of_the_driver() -> None:
    engine = play(on_gpu_0(Shape.TRAINING, span=Span(0, 100)))
    assert read(engine, 111, since=10).process_samples
    assert read(engine, 112, since=10).process_samples == ()


def test_sample_stamps_are_microseconds_since_1970() -> None:
    engine = play(on_gpu_0(Shape.TRAINING))
    (reading,) = engine.readings(10, since=8, epoch_seconds=1_800_000_000.5)
    stamps = [sample.timestamp_us for sample in reading.process_samples or ()]
    assert stamps == [1_800_000_010_500_000]


def test_activity_is_the_mean_since_the_last_reading() -> None:
    engine = play(on_gpu_0(Shape.INFERENCE), seed=4)
    seconds = range(130, 171)
    loads = over(engine, seconds, "gpu_utilization_ratio")
    assert len(set(loads)) > 10
    reading = read(engine, 170, since=130.5)
    assert reading.graphics_active_ratio == pytest.approx(mean(loads), abs=0.0006)
    assert read(engine, 170).graphics_active_ratio == loads[-1], "the first time, of this second"
