"""tools/history: what is asked for, and what is said when it cannot be had."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import ROOT
from tools.replay import command as history
from tools.replay.fleet import GpuNode, Period


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[GpuNode], Period]:
    """The nodes and the period of a command line."""
    calls: list[tuple[list[GpuNode], Period]] = []

    def write(nodes: list[GpuNode], period: Period, *_: object, **__: object) -> None:
        calls.append((nodes, period))
        raise ValueError("that is enough")

    monkeypatch.setattr(history, "write_history", write)
    assert history.main(["directory", *arguments]) == 1
    return calls[0]


def test_each_node_has_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, _ = asked(monkeypatch, "--nodes", "2", "--clones", "2", "--seed", "7", "--gpus", "4")
    scenarios = [node.scenario for node in nodes]
    assert [getattr(scenario, "seed", None) for scenario in scenarios] == [7, 8]
    assert [getattr(scenario, "gpus", None) for scenario in scenarios] == [4, 4]
    assert [node.clones for node in nodes] == [("node-0-0", "node-0-1"), ("node-1-0", "node-1-1")]


def test_the_history_ends_now_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    _, period = asked(monkeypatch, "--last", "1h30m", "--step", "15s")
    assert period.last == pytest.approx(time.time(), abs=60)
    assert (period.last - period.first, period.step) == (5400, 15)


def test_labels_and_the_ledger_are_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = ("--label", "node=", "--label", "zone=b=c", "--state-file", str(tmp_path), "--nodes", "2")
    (first, second), _ = asked(monkeypatch, *arguments)
    assert first.labels == {"node": "", "zone": "b=c"}
    assert (first.state_file, second.state_file) == (tmp_path, None)


def test_a_scenario_keeps_its_own_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("gpus = 3\nseed = 5\n")
    (node,), _ = asked(monkeypatch, "--scenario", str(tmp_path / "s.toml"))
    assert (getattr(node.scenario, "gpus", 0), getattr(node.scenario, "seed", 0)) == (3, 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--last", "-1h"), "expected one argument"),
        (("--step", "1"), "invalid parse_duration value: '1'"),
        (("--label", "node"), "'node' is not allowed; it takes NAME=VALUE"),
    ],
)
def test_a_wrong_argument_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        history.main(["directory", *arguments])
    assert said in capsys.readouterr().err


def test_a_period_in_the_future_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history.main([str(tmp_path / "new"), "--until", str(time.time() + 3600)]) == 1
    assert "in the future" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_command_prints_what_it_does() -> None:
    command = [sys.executable, "-m", "tools.replay.command", "--help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "history of a simulated fleet" in said
    assert "retention" in said
