"""The machines of the demo."""

import tomllib
from pathlib import Path

import pytest

from tools.demonstration.machines import STORY_SECONDS, Machine, dated, small_fleet, story_seconds
from tools.demonstration.past import step_of

HOUR = 3600
FLEET = {"gpu-a100-01": 4, "gpu-h100-01": 8, "gpu-h100-02": 8, "gpu-mi300x-01": 4}


def test_times_with_a_minus_count_back_from_now() -> None:
    assert dated('start = "-25m"\nstop = "-10s"', 6 * HOUR) == 'start = "20100s"\nstop = "21590s"'
    assert dated('start = "25m"\nseed = -1', 6 * HOUR) == 'start = "25m"\nseed = -1'


@pytest.mark.parametrize("hours", [0, 6, 48])
def test_the_scenario_ends_at_the_same_point_for_any_length_of_history(hours: int, tmp_path: Path) -> None:
    story = story_seconds(hours * HOUR, at_least=STORY_SECONDS)
    fleet = small_fleet(tmp_path, 0, story)
    assert {machine.name: machine.scenario.gpus for machine in fleet if machine.scenario} == FLEET
    faults = tomllib.loads((tmp_path / "gpu-h100-01.toml").read_text())["fault"]
    (lost,) = (fault for fault in faults if fault["kind"] == "lost")
    assert lost["start"] == f"{story - 25 * 60}s"


def test_every_machine_of_the_fleet_has_its_own_gpus(tmp_path: Path) -> None:
    fleet = small_fleet(tmp_path, 0, story_seconds(0, at_least=STORY_SECONDS))
    assert len({machine.scenario.seed for machine in fleet if machine.scenario}) == len(fleet)


def test_the_exporter_has_the_labels_of_its_history(tmp_path: Path) -> None:
    for machine in small_fleet(tmp_path, 0, story_seconds(0, at_least=STORY_SECONDS)):
        past = machine.past().target(job="gputally", cluster="demo")
        labels = machine.target()["labels"]
        assert isinstance(labels, dict)
        assert {"job": "gputally", **labels} == past


def test_an_exporter_continues_the_scenario_and_the_names_of_its_history(tmp_path: Path) -> None:
    (first,) = (m for m in small_fleet(tmp_path, 0, 7 * HOUR) if m.name == "gpu-h100-01")
    command = first.exporter(Path("python"), tmp_path, 1234.5).command
    assert f"--scenario={tmp_path / 'gpu-h100-01.toml'}" in command
    assert "--scenario-start=1234.5" in command
    assert f"--compat={','.join(first.past().compat)}" in command
    assert "--pcie-throughput" in command
    assert first.past().pcie_throughput


def test_real_gpus_have_no_scenario(tmp_path: Path) -> None:
    command = Machine("host", 9400).exporter(Path("python"), tmp_path, 1234.5).command
    assert "serve" in command
    assert not any("began" in str(part) or "compat" in str(part) for part in command)


def test_a_long_history_is_scraped_less_often() -> None:
    assert step_of(6 * HOUR) == 60
    assert step_of(48 * HOUR) == 120
