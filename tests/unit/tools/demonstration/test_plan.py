"""What the demo decides: whose GPUs are shown, which past they have, and what is left out."""

import argparse
from pathlib import Path

import pytest

from tests.support.texts import missing
from tools import Failed
from tools.demonstration.machines import Machine
from tools.demonstration.plan import DemoServer, Plan, make_plan
from tools.demonstration.words import welcome
from tools.dependencies import programs

HOUR = 3600


def options(**given: object) -> argparse.Namespace:
    nothing = dict.fromkeys(("gpus", "model", "seed", "scenario"))
    ports = dict.fromkeys(("port", "prometheus_port", "alertmanager_port", "grafana_port"), 0)
    usual = {"no_ui": True, "no_grafana": False, "history": 6.0 * HOUR}
    return argparse.Namespace(**{**nothing, **ports, **usual, **given})


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No program is got; returns a stand-in for Python, which says what `gputally check` would."""
    monkeypatch.setattr(programs, "path", lambda name: Path("/usr/bin") / name)
    return tmp_path / "python"


def answers(python: Path, text: str, code: int) -> None:
    python.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    python.chmod(0o755)


def modes(plan: Plan, directory: Path) -> set[object]:
    return {machine.exporter(Path("python"), directory, plan.began).command[4] for machine in plan.machines}


def test_on_a_host_with_gpus_they_are_read_without_a_history(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(python, "{}", 0)
    plan = make_plan(options(), tmp_path, python)
    assert modes(plan, tmp_path) == {"serve"}
    assert plan.past_seconds == 0
    assert "GPUs of this host" in capsys.readouterr().out


def test_on_a_host_without_gpus_a_fleet_is_simulated_and_reported(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(python, "{}", 1)
    plan = make_plan(options(), tmp_path, python)
    assert modes(plan, tmp_path) == {"simulate"}
    assert len({machine.port for machine in plan.machines}) == len(plan.machines) == 4
    assert plan.past_seconds == 6 * HOUR
    assert "SIMULATED" in capsys.readouterr().out


def test_a_check_that_crashes_is_ignored(python: Path, tmp_path: Path) -> None:
    answers(python, "Traceback", 1)
    with pytest.raises(Failed, match="`gputally check` failed"):
        make_plan(options(), tmp_path, python)


def test_the_flags_of_the_simulator_apply_to_the_history_as_well(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('gpus = 8\nmodel = "h100"\n')
    plan = make_plan(options(gpus=4, model="l4", scenario=file), tmp_path, python)
    (machine,) = plan.machines
    assert list(machine.flags) == ["--gpus=4", "--model=l4", f"--scenario={file}"]
    assert machine.scenario is not None
    assert (machine.scenario.gpus, machine.scenario.model) == (4, "l4")
    assert machine.past().scenario == machine.scenario


def test_unavailable_programs_are_reported_and_omitted(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def path(name: str) -> Path:
        if name == "prometheus":
            return Path("/usr/bin/prometheus")
        raise Failed(f"no {name} today")

    monkeypatch.setattr(programs, "path", path)
    plan = make_plan(options(gpus=1), tmp_path, python)
    said = capsys.readouterr().out
    assert plan.grafana is plan.alertmanager is None
    assert (
        missing(
            said, "no grafana today\n", "without Grafana", "no alertmanager today\n", "without Alertmanager"
        )
        == []
    )
    assert "Grafana" not in welcome(plan)
    assert "Alertmanager" not in welcome(plan)


def test_without_grafana_its_program_is_not_installed(python: Path, tmp_path: Path) -> None:
    plan = make_plan(options(gpus=1, no_grafana=True), tmp_path, python)
    assert plan.grafana is None
    assert plan.alertmanager is not None


@pytest.mark.parametrize(("no_ui", "program"), [(True, "alertmanager"), (False, "alertmanager-with-ui")])
def test_alertmanager_with_its_ui_is_another_program(
    no_ui: bool, program: str, python: Path, tmp_path: Path
) -> None:
    plan = make_plan(options(gpus=1, no_ui=no_ui), tmp_path, python)
    assert plan.alertmanager
    assert plan.alertmanager.program.name == program


def test_the_fleet_dashboard_is_the_first_address() -> None:
    plan = Plan(
        machines=[Machine("one", 1), Machine("two", 2)],
        began=0,
        past_seconds=0,
        prometheus=DemoServer(Path("prometheus"), 3),
        pages=None,
        alertmanager=DemoServer(Path("alertmanager"), 4),
        grafana=DemoServer(Path("grafana"), 5),
    )
    assert [line.split()[:2] for line in welcome(plan).splitlines()[1:6]] == [
        ["Grafana", "http://127.0.0.1:5/d/gputally-fleet"],
        ["Prometheus", "http://127.0.0.1:3/alerts"],
        ["Alertmanager", "http://127.0.0.1:4/#/alerts"],
        ["GPUTally", "http://127.0.0.1:1/"],
        ["GPUTally", "http://127.0.0.1:2/"],
    ]
