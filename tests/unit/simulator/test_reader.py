"""The reader: an engine and a clock."""

import subprocess
import sys
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices import Reader
from gputally.model import ProcessSample, Unavailable
from gputally.simulator import SimulatedReader, simulated_reader
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import GpuFault, GpuFaultKind, Scenario, ScenarioError, Shape, Workload
from gputally.simulator.schedule import Span

BUSY = Scenario(gpus=1, workloads=(Workload(shape=Shape.TRAINING, gpus=(0,)),))


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_the_scenario_begins_with_the_reader() -> None:
    clock = Clock()
    reader: Reader = SimulatedReader(Engine(BUSY), clock)
    assert reader.name == "simulated"
    clock.now += 300
    report = reader.read()
    assert report.errors == {}
    assert report.readings == Engine(BUSY).readings(300, epoch_seconds=1_800_000_000)
    reader.close()


def test_each_read_has_the_samples_since_the_previous_one() -> None:
    clock = Clock()
    reader = SimulatedReader(Engine(BUSY), clock)
    samples: list[ProcessSample] = []
    for wait in (2, 5, 5, 1, 7):
        clock.now += wait
        samples += reader.read().readings[0].process_samples or ()
    assert [sample.covers_us for sample in samples] == [wait * 1_000_000 for wait in (2, 5, 5, 1, 7)]
    ends = [sample.timestamp_us - 1_800_000_000_000_000 for sample in samples]
    assert ends == [second * 1_000_000 for second in (2, 7, 12, 13, 20)]


@given(st.lists(st.floats(0.001, 40), min_size=1, max_size=12))
def test_each_second_of_a_process_is_in_exactly_one_read(waits: list[float]) -> None:
    clock = Clock()
    reader = SimulatedReader(Engine(BUSY), clock)
    clock.now += 60  # it has loaded, and runs all the time
    reader.read()
    samples: list[ProcessSample] = []
    for wait in waits:
        clock.now += wait
        samples += reader.read().readings[0].process_samples or ()
    ends = [sample.timestamp_us - 1_800_000_060_000_000 for sample in samples]
    assert ends == list(accumulate(sample.covers_us for sample in samples)), "no gap, no overlap"
    assert abs(sum(sample.covers_us for sample in samples) / 1e6 - (clock.now - 1_800_000_060)) < 1.001


def test_a_scenario_that_began_in_the_past_has_the_history_of_continuous_sampling() -> None:
    clock = Clock()
    first = SimulatedReader(Engine(BUSY), clock)
    began = clock.now
    clock.now += 7200.25
    before = first.read().readings[0]
    restarted = SimulatedReader(Engine(BUSY), clock, began_at=began)
    assert restarted.read().readings[0] == before, "with all samples the driver still has"
    clock.now += 5.5
    assert restarted.read() == first.read(), "counters go on and samples are those since the read before"


def test_a_scenario_in_the_future_waits_for_its_start() -> None:
    clock = Clock()
    reader = simulated_reader(gpus=1, clock=clock, began_at=clock.now + 60)
    waiting = reader.read().readings
    clock.now += 30
    assert reader.read().readings == waiting
    clock.now += 40
    assert reader.elapsed_seconds == 10
    assert (reader.read().readings[0].energy_millijoules or 0) > (waiting[0].energy_millijoules or 0)


def test_counters_do_not_decrease_after_the_clock_was_set_back() -> None:
    clock = Clock()
    reader = SimulatedReader(Engine(BUSY), clock)
    clock.now += 500
    before = reader.read().readings[0]
    clock.now -= 400
    after = reader.read().readings[0]
    assert after.energy_millijoules == before.energy_millijoules
    assert after.process_samples == ()


def test_the_source_can_be_down_for_a_while() -> None:
    clock = Clock()
    down = GpuFault(kind=GpuFaultKind.SOURCE_DOWN, gpus=(), source="simulated", span=Span(100, 160))
    reader = SimulatedReader(Engine(replace(BUSY, faults=(down,))), clock)
    clock.now += 99.5
    before = reader.read().readings[0]
    for moment in (100, 130, 159.9):
        clock.now = reader.began_at + moment
        with pytest.raises(Unavailable, match=r"^the scenario declares it down$"):
            reader.read()
    clock.now = reader.began_at + 160
    after = reader.read().readings[0]
    assert (after.energy_millijoules or 0) > (before.energy_millijoules or 0)
    assert [sample.covers_us for sample in after.process_samples or ()] == [61_000_000]


def test_another_failing_source_does_not_affect_the_gpus() -> None:
    down = GpuFault(kind=GpuFaultKind.SOURCE_DOWN, gpus=(), source="simulated_pods")
    assert SimulatedReader(Engine(replace(BUSY, faults=(down,))), Clock()).read().readings


def test_the_default_is_eight_h100() -> None:
    readings = simulated_reader().read().readings
    assert [reading.gpu.model for reading in readings] == ["NVIDIA H100 80GB HBM3"] * 8
    assert simulated_reader(seed=1).read().readings[0].gpu.uuid != readings[0].gpu.uuid


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text('gpus = 3\nmodel = "t4"\n')
    assert len(simulated_reader(scenario=path).read().readings) == 3
    readings = (
        simulated_reader(scenario=path, gpus=2, model="L4", seed=4, pcie_throughput=True).read().readings
    )
    assert [reading.gpu.model for reading in readings] == ["NVIDIA L4"] * 2
    assert readings[0].pcie_throughput_bytes_per_second is not None
    assert len(simulated_reader(gpus=2, model="a100").read().readings) == 2


def test_a_wrong_file_or_flag_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        simulated_reader(gpus=0)
    with pytest.raises(ValueError, match="cannot be read"):
        simulated_reader(scenario=tmp_path / "nowhere.toml")


def test_the_names_of_the_models_do_not_import_the_engine() -> None:
    """The command line needs them in every process, also where nothing is simulated."""
    code = (
        "import sys, gputally.simulator;"
        "print([m for m in sys.modules if m in ('random', 'tomllib', 'uuid') or m.endswith('.engine')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_without_a_file_no_toml_parser_is_imported() -> None:
    code = (
        "import sys; from gputally.simulator import simulated_reader;"
        "simulated_reader().read(); print('tomllib' in sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "False"
