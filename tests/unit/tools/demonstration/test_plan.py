"""What the demo decides: whose GPUs are shown, which past they have, and what is left out."""

import argparse
from pathlib import Path

import pytest

from tools import Failed
from tools.demonstration.machines import story_seconds
from tools.demonstration.plan import Plan, make_plan

HOUR = 3600


def options(**given: object) -> argparse.Namespace:
    nothing = dict.fromkeys(("gpus", "model", "seed", "scenario"))
    ports = dict.fromkeys(("port", "prometheus_port", "alertmanager_port", "grafana_port"), 0)
    usual = {"no_ui": True, "no_grafana": False, "only": None, "history": 6.0 * HOUR}
    return argparse.Namespace(**{**nothing, **ports, **usual, **given})


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A stand-in for Python, which says what `gputally check` would."""
    return tmp_path / "python"


def planned(directory: Path, python: Path, **given: object) -> Plan:
    return make_plan(options(**given), directory, print, python)


def answers(python: Path, text: str, code: int) -> None:
    python.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    python.chmod(0o755)


def modes(plan: Plan, directory: Path) -> set[object]:
    return {machine.exporter(Path("python"), directory, plan.began).command[4] for machine in plan.machines}


def test_on_a_host_with_gpus_they_are_read_without_a_history(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(python, "{}", 0)
    plan = planned(tmp_path, python)
    assert modes(plan, tmp_path) == {"serve"}
    assert plan.past_seconds == 0
    assert "GPUs of this host" in capsys.readouterr().out


def test_on_a_host_without_gpus_a_fleet_is_simulated_and_reported(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(python, "{}", 1)
    plan = planned(tmp_path, python)
    assert modes(plan, tmp_path) == {"simulate"}
    assert len({machine.port for machine in plan.machines}) == len(plan.machines) == 4
    assert plan.past_seconds == 6 * HOUR
    assert "SIMULATED" in capsys.readouterr().out


def test_a_check_that_crashes_is_ignored(python: Path, tmp_path: Path) -> None:
    answers(python, "Traceback", 1)
    with pytest.raises(Failed, match="`gputally check` failed"):
        planned(tmp_path, python)


def test_the_flags_of_the_simulator_apply_to_the_history_as_well(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('gpus = 8\nmodel = "h100"\n')
    plan = planned(tmp_path, python, gpus=4, model="l4", scenario=file)
    (machine,) = plan.machines
    assert list(machine.flags) == ["--gpus=4", "--model=l4", f"--scenario={file}"]
    assert machine.scenario is not None
    assert (machine.scenario.gpus, machine.scenario.model) == (4, "l4")
    assert machine.past().scenario == machine.scenario


def test_without_grafana_its_program_is_not_installed(python: Path, tmp_path: Path) -> None:
    plan = planned(tmp_path, python, gpus=1, no_grafana=True)
    assert plan.grafana is None
    assert plan.programs == ["prometheus", "alertmanager"]


@pytest.mark.parametrize(
    ("only", "programs"),
    [
        ("page", []),
        ("prometheus", ["prometheus", "prometheus-ui"]),
        ("grafana", ["prometheus", "prometheus-ui", "grafana"]),
        (None, ["prometheus", "prometheus-ui", "alertmanager-with-ui", "grafana"]),
    ],
)
def test_only_the_wanted_parts_are_installed_in_the_order_of_their_use(
    only: str | None, programs: list[str], python: Path, tmp_path: Path
) -> None:
    plan = planned(tmp_path, python, gpus=1, only=only, no_ui=False)
    assert plan.programs == programs


def test_the_history_ends_when_the_exporters_start(python: Path, tmp_path: Path) -> None:
    plan = planned(tmp_path, python, gpus=1)
    assert plan.now - plan.began == story_seconds(6 * HOUR)
