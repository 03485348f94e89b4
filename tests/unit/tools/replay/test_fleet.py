"""Nodes played through the exporter at times that are not now."""

import json
import struct
import time
from pathlib import Path

import pytest

from gputally.ledger.state_file import decode
from gputally.sampling import collect, guard
from gputally.simulator import SimulatedReader
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Scenario, Shape, Workload
from tools.replay.fleet import WARM_UP_SECONDS, GpuNode, Period, play
from tools.replay.tape import EncodedSeries

START = 1_794_700_800
BEGAN = START - WARM_UP_SECONDS
SCENARIO = """
gpus = 1
[[workload]]
shape = "training"
pod = "nlp/train"
"""
ENERGY = "gputally_gpu_energy_joules_total"
Values = dict[str, dict[float, float]]


def played(
    node: GpuNode, period: Period, *, process_metrics: bool = False, began_at: float | None = None
) -> Values:
    """name -> second -> sum of the series of that name."""
    windows: list[list[EncodedSeries]] = []
    play(node, period, windows.append, process_metrics=process_metrics, began_at=began_at)
    found: Values = {}
    for window in windows:
        for labels, samples in window:
            for offset in range(0, len(samples), 18):
                (value,) = struct.unpack_from("<d", samples, offset + 3)
                values = found.setdefault(labels[0][1], {})
                second = _seconds(samples[offset + 12 : offset + 18])
                values[second] = values.get(second, 0) + value
    return found


def _seconds(varint: bytes) -> float:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint)) / 1000


def test_every_value_is_that_of_the_simulator_at_its_time() -> None:
    period = Period(START, START + 600, 150)
    energy = played(GpuNode(name="n1", scenario=SCENARIO), period)[ENERGY]
    now = 0.0
    one = Workload(shape=Shape.TRAINING, gpus=(0,))
    reader = SimulatedReader(Engine(Scenario(gpus=1, workloads=(one,))), lambda: now, began_at=BEGAN)
    assert list(energy) == list(period.times())
    for now, joules in energy.items():  # noqa: B007  # the reader asks for it
        (reading,) = reader.read().readings
        assert joules * 1000 == reading.energy_millijoules


def test_a_scenario_may_have_started_earlier(tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text(SCENARIO)
    node = GpuNode(name="n1", scenario=tmp_path / "night.toml")
    late = played(node, Period(START + 300, START + 360, 60), began_at=BEGAN)[ENERGY]
    whole = played(node, Period(START, START + 360, 60))[ENERGY]
    assert late == {second: value for second, value in whole.items() if second >= START + 300}


def test_scrapes_far_apart_do_not_reject_the_counter() -> None:
    """Seen every five minutes, a card that has just begun to work uses more than its power explains."""
    node = GpuNode(name="n1", scenario=SCENARIO + 'start = "70s"\n')
    energy = played(node, Period(START, START + 300, 300))[ENERGY]
    assert energy[START + 300] - energy[START] > 100_000


def test_an_exporter_that_is_down_has_no_series_and_then_continues_its_ledger() -> None:
    node = GpuNode(name="n1", scenario=SCENARIO, down=((START + 120, START + 600),))
    found = played(node, Period(START, START + 720, 60))
    assert [second - START for second, up in found["up"].items() if not up] == list(range(120, 600, 60))
    told = {second - START: value for second, value in found[ENERGY].items() if value == value}
    assert list(told) == [0, 60, 600, 660, 720]
    assert list(told.values()) == sorted(told.values())
    pod = {second - START: value for second, value in found["gputally_pod_energy_joules_total"].items()}
    assert pod[60] == pytest.approx(pod[600]), "what was used in between is unobserved"
    assert pod[660] > pod[600]
    began = {second - START: value for second, value in found["process_start_time_seconds"].items()}
    assert (began[60], began[600]) == (BEGAN, START + 600)


def test_series_are_written_hour_by_hour() -> None:
    windows: list[list[EncodedSeries]] = []
    play(GpuNode(name="n1", scenario=SCENARIO), Period(START, START + 9000, 900), windows.append)
    ups = [len(samples) // 18 for window in windows for labels, samples in window if labels[0][1] == "up"]
    assert ups == [4, 4, 3]


@pytest.mark.parametrize("wanted", [True, False])
def test_processes_exist_on_request(wanted: bool) -> None:
    period = Period(START, START + 120, 60)
    found = played(GpuNode(name="n1", scenario=SCENARIO), period, process_metrics=wanted)
    assert any(name.startswith("gputally_process_") for name in found) is wanted


def test_names_of_other_tools_and_pcie_throughput_exist_on_request() -> None:
    ampere = 'model = "a100"\n' + SCENARIO
    plain = GpuNode(name="n1", scenario=ampere)
    more = GpuNode(name="n1", scenario=ampere, compat=("dcgm", "nvidia-smi"), pcie_throughput=True)
    period = Period(START, START + 120, 60)
    added = played(more, period).keys() - played(plain, period).keys()
    assert {
        "DCGM_FI_DEV_GPU_TEMP",
        "nvidia_smi_temperature_celsius",
        "gputally_gpu_pcie_throughput_bytes_per_second",
    } <= added


def test_the_ledger_is_stored_for_an_exporter_to_continue(tmp_path: Path) -> None:
    node = GpuNode(name="n1", scenario=SCENARIO, state_file=tmp_path / "ledger")
    energy = played(node, Period(START, START + 120, 60))[ENERGY]
    state = decode((tmp_path / "ledger").read_bytes()).state
    assert len(state["gpus"]) == 1
    assert str(round(energy[START + 120] * 1000)) in json.dumps(state)


def test_the_clock_is_restored_afterwards() -> None:
    play(GpuNode(name="n1", scenario=SCENARIO), Period(START, START, 60), len)
    assert vars(collect)["time"] is vars(guard)["time"] is time


def test_labels_of_the_target_can_be_replaced() -> None:
    assert GpuNode(name="n1", scenario="").target(job="gputally", cluster="c") == {
        "job": "gputally",
        "instance": "n1:9400",
        "node": "n1",
        "cluster": "c",
    }
    node = GpuNode(name="n1", scenario="", labels={"instance": "127.0.0.1:1", "zone": "b"})
    assert node.target(job="j", cluster="")["instance"] == "127.0.0.1:1"
    assert node.target(job="j", cluster="")["zone"] == "b"


def test_a_period_includes_both_ends() -> None:
    assert list(Period(START, START + 1, 0.1).times())[-1] == pytest.approx(START + 1)
    assert len(Period(START, START + 59, 60)) == 1


@pytest.mark.parametrize(("last", "step"), [(START - 1, 60), (START, 0), (START, -1)])
def test_an_invalid_period_is_refused(last: float, step: float) -> None:
    with pytest.raises(ValueError, match="not a period"):
        Period(START, last, step)
