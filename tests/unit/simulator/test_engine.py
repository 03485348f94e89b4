"""The engine: the same values for the same time, independent of earlier calls; and plausible physics."""

from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputally.devices.plausible import bounds_of
from gputally.model import Reading
from gputally.simulator import MODEL_NAMES
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.nvidia_models import NVIDIA_MODELS
from gputally.simulator.scenario import GPU_MODELS, GpuFault, GpuFaultKind, Scenario, Shape, Workload
from gputally.simulator.schedule import DAY, Span

seeds = st.integers(0, 50)
models = st.sampled_from(MODEL_NAMES)
times = st.integers(0, 30_000) | st.integers(0, 4000)


def busy(model: str = "h100", *, gpus: int = 1, seed: int = 0, watts: int | None = None) -> Scenario:
    """Training on every GPU, all the time."""
    everywhere = tuple(range(gpus))
    return Scenario(
        gpus=gpus,
        model=model,
        seed=seed,
        power_limit_watts=watts,
        workloads=(Workload(shape=Shape.TRAINING, gpus=everywhere),),
    )


def only(engine: Engine, elapsed: float) -> Reading:
    (reading,) = engine.readings(elapsed)
    return reading


def test_the_same_seed_and_scenario_give_the_same_readings() -> None:
    first, second = (Engine(default_scenario(4, "h100", 3)) for _ in range(2))
    for elapsed in (0, 7.25, 60, 1801.5, 20_000):
        assert first.readings(elapsed) == second.readings(elapsed)


def test_another_seed_gives_other_gpus_and_other_values() -> None:
    one, other = (Engine(busy(seed=seed)).readings(100)[0] for seed in (1, 2))
    assert one.gpu.uuid != other.gpu.uuid
    assert one.energy_millijoules != other.energy_millijoules


@settings(max_examples=15)
@given(st.lists(st.floats(0, 4000), min_size=1, max_size=4), seeds, models)
@example([DAY + 9061.5, 30.0, 3 * DAY], 1, "a100")
def test_earlier_calls_do_not_change_a_result(asked: list[float], seed: int, model: str) -> None:
    scenario = default_scenario(2, model, seed)
    used = Engine(scenario)
    answers = [used.readings(elapsed, since=elapsed - 5) for elapsed in asked]
    again = [used.readings(elapsed, since=elapsed - 5) for elapsed in asked]
    assert answers == again
    assert answers[0] == Engine(scenario).readings(asked[0], since=asked[0] - 5)


def test_a_later_day_is_the_sum_of_the_days_before() -> None:
    """One-off jobs and a throttled hour first, then days that repeat: against counting every second."""
    scenario = Scenario(
        gpus=1,
        model="a100",
        workloads=(
            Workload(shape=Shape.TRAINING, gpus=(0,), span=Span(100, 5_333)),
            Workload(shape=Shape.INFERENCE, gpus=(0,), span=Span(3_600, 9_000, 14_400)),
        ),
        faults=(
            GpuFault(
                kind=GpuFaultKind.THROTTLE,
                gpus=(0,),
                reason="sw_thermal_slowdown",
                span=Span(4_000, 4_600, 43_200),
            ),
        ),
    )
    until = 2 * DAY + 6 * 3600
    walking = Engine(scenario)
    start = only(walking, 0)
    watts = [only(walking, second).power_watts for second in range(0, until, 600)]
    assert len(set(watts)) > 10
    physics = walking.gpus[0].physics
    counted = sum(sum(physics._compute(minute).power_mw) for minute in range(until // 60))
    jumped = only(Engine(scenario), until)
    assert jumped.energy_millijoules is not None
    assert start.energy_millijoules is not None
    assert jumped.energy_millijoules - start.energy_millijoules == counted
    assert only(walking, until) == jumped


def test_a_later_time_does_not_require_every_second_before() -> None:
    engine = Engine(busy())
    reading = only(engine, 3650 * DAY)
    assert reading.energy_millijoules is not None
    # ten years at 650 W or so
    assert 5e13 < reading.energy_millijoules < 7e14
    assert len(engine.gpus[0].physics._energy) < 2 * 1440


@settings(max_examples=15)
@given(
    seeds,
    st.sampled_from([name for name, card in NVIDIA_MODELS.items() if card.energy_counter]),
    st.integers(0, 20_000),
)
@example(1, "h100", 2 * DAY - 30)
def test_energy_is_exactly_the_integral_of_power(seed: int, model: str, start: int) -> None:
    engine = Engine(default_scenario(2, model, seed))
    seconds = [engine.readings(second) for second in range(start, start + 75)]
    for before, after in pairwise(seconds):
        for gpu in range(2):
            one, next_one = before[gpu], after[gpu]
            if one.up and next_one.up:
                assert one.power_watts is not None
                assert one.energy_millijoules is not None
                assert next_one.energy_millijoules == one.energy_millijoules + round(one.power_watts * 1000)


def test_energy_increases_within_a_second() -> None:
    engine = Engine(busy())
    values = [
        only(engine, 100 + milliseconds / 1000).energy_millijoules for milliseconds in range(0, 1001, 50)
    ]
    whole = [value for value in values if value is not None]
    assert len(whole) == len(values)
    assert all(before < after for before, after in pairwise(whole))


@settings(max_examples=40)
@given(models, seeds, times, st.integers(1, 9))
@example("rtx4090", 1, 1500, 1)
@example("gb200", 1, 1500, 8)
def test_every_reading_is_within_the_limits_of_its_model(
    model: str, seed: int, elapsed: int, gpus: int
) -> None:
    card = GPU_MODELS[model]
    for reading in Engine(default_scenario(gpus, model, seed)).readings(elapsed, since=elapsed - 5):
        if not reading.up:
            continue
        assert reading.power_watts is not None
        assert reading.power_limit_watts is not None
        # AMD's power is in whole watts
        assert card.idle_watts * 0.98 - 0.5 <= reading.power_watts
        assert reading.power_watts <= reading.power_limit_watts <= card.max_watts
        assert reading.temperature_celsius is not None
        assert 20 <= reading.temperature_celsius <= (card.shutdown_celsius or 95)
        assert reading.clock_hertz is not None
        assert reading.clock_max_hertz is not None
        for key, hertz in reading.clock_hertz.items():
            assert 0 < hertz <= reading.clock_max_hertz.get(key, hertz)
        total, used, free, reserved = (
            reading.memory_total_bytes or 0,
            reading.memory_used_bytes or 0,
            reading.memory_free_bytes or 0,
            reading.memory_reserved_bytes or 0,
        )
        assert min(used, free, reserved) >= 0
        assert used + free + reserved == total == card.memory_mib * 2**20
        assert reading.processes is not None
        assert sum(process.memory_used_bytes or 0 for process in reading.processes) <= used
        _is_plausible(reading)
        _is_in_driver_units(reading)


def _is_plausible(reading: Reading) -> None:
    for field in fields(Reading):
        value, bounds = getattr(reading, field.name), bounds_of(field.name)
        if bounds is None or value is None:
            continue
        for number in value.values() if isinstance(value, dict) else (value,):
            assert bounds[0] <= number <= bounds[1], field.name


def _is_whole(value: float, unit: float) -> bool:
    return abs(value * unit - round(value * unit)) < 1e-6


def _is_in_driver_units(reading: Reading) -> None:
    for name in ("gpu", "memory", "encoder", "decoder"):
        assert _is_whole(getattr(reading, f"{name}_utilization_ratio") or 0, 100)
    assert _is_whole(reading.power_watts or 0, 1000)
    assert _is_whole(reading.temperature_celsius or 0, 1)
    assert all(hertz % 1_000_000 == 0 for hertz in (reading.clock_hertz or {}).values())
    links = len(reading.nvlink_up or {}) or 1
    assert all(moved % (1024 * links) == 0 for moved in (reading.nvlink_bytes or {}).values())
    assert (reading.memory_used_bytes or 0) % 2**20 == 0
    assert all(_is_whole(seconds, 1000) for seconds in (reading.throttle_seconds or {}).values())
    if reading.sm_active_ratio is not None:
        assert _is_whole(reading.sm_active_ratio, 1000)
    for sample in reading.process_samples or ():
        assert all(
            _is_whole(ratio or 0, 100)
            for ratio in (sample.sm_ratio, sample.memory_ratio, sample.encoder_ratio, sample.decoder_ratio)
        )


def test_counters_never_decrease_over_a_long_run() -> None:
    engine = Engine(default_scenario(4, "h100", 5))
    previous = engine.readings(0)
    for elapsed in range(0, 30 * 3600, 1237):
        current = engine.readings(elapsed)
        for before, after in zip(previous, current, strict=True):
            if not (before.up and after.up):
                continue
            assert (before.energy_millijoules or 0) <= (after.energy_millijoules or 0)
            for name in ("throttle_seconds", "ecc_errors", "nvlink_bytes", "nvlink_errors", "remapped_rows"):
                old, new = getattr(before, name), getattr(after, name)
                assert all(old[key] <= new[key] for key in old), name
            old_xids, new_xids = before.xid_errors or {}, after.xid_errors or {}
            assert all(old_xids[key] <= new_xids[key] for key in old_xids)
        previous = current


def test_temperature_follows_power_with_a_delay() -> None:
    scenario = replace(
        busy("a100"), workloads=(Workload(shape=Shape.TRAINING, gpus=(0,), span=Span(600, 1800)),)
    )
    engine = Engine(scenario)

    def celsius(second: int) -> float:
        return only(engine, second).temperature_celsius or 0

    cold, power = celsius(599), only(engine, 640).power_watts
    assert (power or 0) > 300, "the power is there at once"
    assert celsius(645) < celsius(680) < celsius(750), "the heat comes later"
    hot = celsius(1100)
    assert hot > cold + 25
    assert abs(celsius(1150) - hot) <= 2, "and settles"
    assert celsius(1830) > cold + 10, "it stays warm for a while when the job is over"
    assert abs(celsius(2700) - cold) <= 1
    assert all(abs(celsius(s) - celsius(s + 1)) <= 2 for s in range(590, 900, 3)), "without a jump"


def test_memory_increases_in_steps_while_a_job_loads() -> None:
    engine = Engine(busy())
    used = [only(engine, second).memory_used_bytes or 0 for second in (0, 4, 10, 25, 500)]
    assert used == sorted(used)
    assert len(set(used)) == 3
    assert used[-1] > 0.7 * GPU_MODELS["h100"].memory_mib * 2**20


def test_a_power_limit_limits_power_throttles_and_lowers_clocks() -> None:
    free, capped = Engine(busy("a100")), Engine(busy("a100", watts=200))
    assert max(only(capped, second).power_watts or 0 for second in range(60, 120)) == 200
    low, high = only(capped, 100), only(free, 100)
    assert low.power_limit_watts == low.power_enforced_limit_watts == 200
    assert low.power_default_limit_watts == 400
    assert low.clock_hertz is not None
    assert high.clock_hertz is not None
    assert low.clock_hertz["graphics",] < 0.8 * high.clock_hertz["graphics",]
    assert low.throttle_active is not None
    assert low.throttle_active["sw_power_cap",] == 1
    earlier, later = (only(capped, second).throttle_seconds or {} for second in (100, 160))
    assert later["sw_power_cap",] - earlier["sw_power_cap",] == 60
    assert (only(capped, 160.25).throttle_seconds or {})["sw_power_cap",] == later["sw_power_cap",] + 0.25
    assert later["hw_thermal_slowdown",] == 0


def test_an_idle_gpu_has_low_power_and_clocks() -> None:
    reading = only(Engine(Scenario(gpus=1, model="l4")), 300)
    assert reading.performance_state == 8
    assert reading.pcie_generation == 1
    assert reading.throttle_active is not None
    assert reading.throttle_active["gpu_idle",] == 1
    assert reading.clock_hertz is not None
    assert reading.clock_hertz["memory",] == 405_000_000
    working = only(Engine(busy("l4")), 300)
    assert (working.performance_state, working.pcie_generation) == (0, 4)


def test_fans_are_faster_at_higher_temperature() -> None:
    idle, hot = only(Engine(Scenario(gpus=1, model="rtx4090")), 600), only(Engine(busy("rtx4090")), 550)
    assert idle.fan_speed_ratio == {("0",): 0.0, ("1",): 0.0}
    assert hot.fan_speed_ratio is not None
    assert all(0.3 < speed <= 1 for speed in hot.fan_speed_ratio.values())


def test_nvlink_transfers_data_only_for_a_job_on_several_gpus() -> None:
    alone = only(Engine(busy()), 300).nvlink_bytes
    together = Engine(busy(gpus=2)).readings(300)[0].nvlink_bytes
    assert alone == {("tx",): 0, ("rx",): 0}
    assert together is not None
    assert together["tx",] > together["rx",] > 1e12


def test_pcie_throughput_is_there_when_asked_for_or_without_a_blocking_call() -> None:
    assert only(Engine(busy("a100")), 100).pcie_throughput_bytes_per_second is None
    assert only(Engine(busy("h100")), 100).pcie_throughput_bytes_per_second is not None
    throughput = only(Engine(busy(), pcie_throughput=True), 100).pcie_throughput_bytes_per_second
    assert throughput is not None
    assert 1e9 < throughput["rx",] < 6.4e10
    assert all(value % 1000 == 0 for value in throughput.values())


def test_a_thousand_gpus_are_all_different() -> None:
    readings = Engine(Scenario(gpus=1024, model="a100", seed=9)).readings(0)
    for name in ("uuid", "serial", "pci_bus_id", "index", "minor_number"):
        assert len({getattr(reading.gpu, name) for reading in readings}) == 1024, name
    assert readings[0].gpu.uuid.startswith("GPU-")
    assert all(len(reading.gpu.serial or "") == 13 for reading in readings)


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_every_gpu_is_marked_as_simulated(model: str) -> None:
    reading = only(Engine(Scenario(gpus=1, model=model)), 0)
    assert reading.gpu.simulated
    assert reading.gpu.model == GPU_MODELS[model].name
    of_nvidia = reading.gpu.vendor == "nvidia"
    assert reading.gpu.cuda_version == ("13.0" if of_nvidia else None)
    assert (reading.gpu.driver_version == "580.95.05") is of_nvidia


def test_the_driver_version_can_be_set() -> None:
    for model in ("t4", "mi210"):
        scenario = Scenario(gpus=1, model=model, driver_version="6.12.12", cuda_version="12.4")
        gpu = only(Engine(scenario), 0).gpu
        assert gpu.driver_version == "6.12.12"
        assert gpu.cuda_version == ("12.4" if model == "t4" else None)


def test_a_fleet_can_have_several_models() -> None:
    scenario = Scenario(
        gpus=3,
        model=("h100", "mi300x", "t4"),
        workloads=(Workload(shape=Shape.TRAINING, gpus=(0, 1, 2)),),
    )
    readings = Engine(scenario).readings(300)
    assert [reading.gpu.vendor for reading in readings] == ["nvidia", "amd", "nvidia"]
    assert [reading.gpu.index for reading in readings] == [0, 1, 2]
    assert [reading.memory_total_bytes for reading in readings] == [
        GPU_MODELS[model].memory_mib * 2**20 for model in scenario.model
    ]
    assert [reading.power_default_limit_watts for reading in readings] == [700, 750, 70]
    assert readings[2] == Engine(replace(scenario, model="t4")).readings(300)[2], "whatever the others are"


def test_times_before_the_start_are_the_start() -> None:
    engine = Engine(busy())
    assert engine.readings(-5) == engine.readings(0)
