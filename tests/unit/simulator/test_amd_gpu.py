"""A simulated card of AMD's looks like what reader `amdgpu` finds on a host with the real one."""

from dataclasses import fields
from itertools import pairwise

import pytest

from gputally.devices.amd import gpu_uuid
from gputally.devices.amdgpu import AmdgpuReader
from gputally.model import Gpu, ProcessSample, Reading
from gputally.simulator.amd_models import AMD_MODELS
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Scenario, Shape, Workload
from tests.support.amd_trees import planted

BUSY = (Workload(shape=Shape.TRAINING, gpus=(0, 1)),)
amd_models = pytest.mark.parametrize("model", AMD_MODELS)


def real(model: str) -> Reading:
    """A card of the fixture's host, at the second look."""
    host = planted(model)
    reader = AmdgpuReader(host / "sys", host / "proc", pcie_throughput=False)
    reader.read()
    return reader.read().readings[0]


def simulated(model: str, second: float = 100.5, since: float | None = 95.25, **how: object) -> Reading:
    scenario = Scenario(gpus=2, model=model, **{"workloads": BUSY, **how})  # type: ignore[arg-type]
    return Engine(scenario).readings(second, since=since, epoch_seconds=1_000_000)[0]


@amd_models
def test_a_simulated_gpu_has_exactly_the_fields_of_the_real_gpu(model: str) -> None:
    one, other = real(model), simulated(model)
    for field in fields(Reading):
        its, ours = getattr(one, field.name), getattr(other, field.name)
        assert (its is None) == (ours is None), field.name
        if isinstance(its, dict):
            assert list(ours) == list(its), field.name
    assert one.memory_total_bytes == other.memory_total_bytes
    assert one.sensor_critical_celsius == other.sensor_critical_celsius
    assert (one.temperature_slowdown_celsius, one.temperature_shutdown_celsius) == (
        other.temperature_slowdown_celsius,
        other.temperature_shutdown_celsius,
    )


@amd_models
def test_a_simulated_gpu_has_the_identity_format_of_the_real_gpu(model: str) -> None:
    one, other = real(model).gpu, simulated(model).gpu
    assert (other.vendor, other.model, other.vbios_version, other.driver_version) == (
        one.vendor,
        one.model,
        one.vbios_version,
        one.driver_version,
    )
    assert {field.name for field in fields(Gpu) if getattr(one, field.name) is None} == {
        field.name for field in fields(Gpu) if getattr(other, field.name) is None
    }
    assert other.uuid == gpu_uuid(int(other.uuid.removeprefix("GPU-"), 16), "")
    assert len(other.serial or "") == len(one.serial or "")
    assert len(other.pci_bus_id or "") == len(one.pci_bus_id or "")
    assert other.simulated


def test_all_gpus_of_a_large_fleet_are_different() -> None:
    readings = Engine(Scenario(gpus=1024, model="mi300x")).readings(0)
    for name in ("uuid", "serial", "pci_bus_id", "index", "minor_number"):
        assert len({getattr(reading.gpu, name) for reading in readings}) == 1024, name


@amd_models
def test_power_is_in_whole_watts_and_follows_the_counter(model: str) -> None:
    engine = Engine(Scenario(gpus=1, model=model, workloads=(Workload(shape=Shape.INFERENCE, gpus=(0,)),)))
    seconds = [engine.readings(second)[0] for second in range(100, 160)]
    assert all((reading.power_watts or 0.5) % 1 == 0 for reading in seconds)
    assert len({reading.power_watts for reading in seconds}) > 10
    for before, after in pairwise(seconds):
        if before.energy_millijoules is not None and after.energy_millijoules is not None:
            drawn = after.energy_millijoules - before.energy_millijoules
            assert abs(drawn - (before.power_watts or 0) * 1000) <= 500


def test_a_process_has_one_sample_for_the_time_since_the_last_sample() -> None:
    reading = simulated("mi300x", workloads=(Workload(shape=Shape.TRAINING, gpus=(0,), count=2),))
    assert reading.processes is not None
    assert reading.process_samples is not None
    assert [s.pid for s in reading.process_samples] == [p.pid for p in reading.processes]
    total = sum(sample.sm_ratio for sample in reading.process_samples)
    assert total == pytest.approx(reading.gpu_utilization_ratio)
    for sample in reading.process_samples:
        assert sample.covers_us == 5_250_000
        assert sample.timestamp_us == 1_000_100_500_000
        assert (sample.memory_ratio, sample.encoder_ratio, sample.decoder_ratio) == (None, 0, 0)


def test_the_first_sample_covers_no_time() -> None:
    (sample,) = simulated("mi210", since=None).process_samples or ()
    assert sample.covers_us == 0


def test_hip_on_a_radeon_has_the_busy_time_of_the_gpu_by_memory_if_there_are_several() -> None:
    alone = simulated("rx7900xtx")
    (sample,) = alone.process_samples or ()
    assert sample.sm_ratio == pytest.approx(alone.gpu_utilization_ratio)
    graphics = Workload(shape=Shape.UNREQUESTED, gpus=(0,), kind="graphics")
    inference = Workload(shape=Shape.INFERENCE, gpus=(0,))
    reading = simulated("rx7900xtx", workloads=(*BUSY, inference, graphics))
    held = {p.pid: p.memory_used_bytes or 0 for p in reading.processes or () if p.kind == "compute"}
    busy = {s.pid: s.sm_ratio for s in reading.process_samples or ()}
    assert (len(held), len(busy)) == (2, 3)
    one, other = held
    assert busy[one] * held[other] == pytest.approx(busy[other] * held[one])
    assert sum(busy.values()) == pytest.approx(reading.gpu_utilization_ratio)
    assert simulated("rx7900xtx", workloads=()).process_samples == ()


def test_newer_cards_count_decoding_as_encoding() -> None:
    video = Workload(shape=Shape.INFERENCE, gpus=(0,), video=True)

    def busiest(model: str) -> ProcessSample:
        engine = Engine(Scenario(gpus=1, model=model, workloads=(video,)))
        looks = [engine.readings(second, since=second - 1)[0] for second in range(100, 160)]
        return max(
            (sample for look in looks for sample in look.process_samples or ()), key=lambda s: s.sm_ratio
        )

    old, new = busiest("mi210"), busiest("mi300x")
    assert (old.decoder_ratio or 0) > (old.encoder_ratio or 0) > 0
    assert new.decoder_ratio == 0
    assert (new.encoder_ratio or 0) > (old.encoder_ratio or 0)


def test_process_names_are_truncated_as_by_the_kernel() -> None:
    named = Workload(shape=Shape.TRAINING, gpus=(0,), name="a-very-long-name-of-a-process")
    (process,) = simulated("mi210", workloads=(named,)).processes or ()
    assert process.name == "a-very-long-nam"


def test_links_transfer_data_only_for_a_job_on_several_gpus() -> None:
    alone = simulated("mi300x", workloads=(Workload(shape=Shape.TRAINING, gpus=(0,)),)).xgmi_bytes or {}
    together = simulated("mi300x").xgmi_bytes or {}
    assert set(alone.values()) == {0}
    assert all(moved > 1e9 and moved % 1024 == 0 for moved in together.values())


@amd_models
def test_only_the_core_temperature_exceeds_its_limit(model: str) -> None:
    engine = Engine(default_scenario(2, model))
    hottest = [engine.readings(second)[1] for second in range(1200, 1800, 60)]
    for reading in hottest:
        limits = dict(reading.sensor_critical_celsius or {})
        celsius = dict(reading.sensor_celsius or {})
        main = next(iter(limits))
        assert reading.temperature_celsius == celsius[main]
        assert all(celsius[name] < limit for name, limit in limits.items() if name != main)
    assert max(reading.temperature_celsius or 0 for reading in hottest) >= 98, "one is throttled then"


def test_an_idle_radeon_has_low_clocks_and_its_fan_is_off() -> None:
    reading = simulated("rx7900xtx", workloads=())
    assert reading.clock_hertz is not None
    assert reading.clock_hertz["graphics",] == 31_000_000
    assert reading.fan_speed_ratio == {("0",): 0.0}
    busy = simulated("rx7900xtx", second=900, since=895)
    assert (busy.clock_hertz or {})["graphics",] > 2e9
    assert (busy.fan_speed_ratio or {})["0",] > 0.3
