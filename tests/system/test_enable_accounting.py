"""`gputally enable-accounting` as root and as another user."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.command_line import NO_DRIVER, run
from tests.support.exporter import Exporter
from tests.support.texts import missing
from tests.support.users import as_nobody, as_root
from tests.support.worlds import play, world
from tools.standin.scenario import environment


def enable(user: tuple[str, ...], scenario: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*user, sys.executable, "-m", "gputally", "enable-accounting"],
        env={**os.environ, **environment(scenario)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def off(directory: Path) -> Path:
    readings = world("t4")
    return play(directory / "world", tuple(replace(reading, accounting_mode=False) for reading in readings))


def texts(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.partition(": ")[2] for line in result.stdout.splitlines()]


def test_accounting_mode_is_turned_on_once_for_all_processes(tmp_path: Path) -> None:
    scenario = off(tmp_path)
    first = enable(as_root(), scenario)
    assert (first.returncode, first.stderr) == (0, "")
    assert texts(first) == ["accounting is on"] * 2
    second = enable(as_root(), scenario)
    assert (second.returncode, second.stderr) == (0, "")
    assert texts(second) == ["accounting is on already"] * 2
    assert enable(as_nobody(), scenario).returncode == 0, "there is nothing left to do"

    arguments = ("serve", "--reader", "nvml", "--metrics-include", "gputally_gpu_accounting_mode")
    with Exporter(tmp_path / "log", *arguments, environment=environment(scenario)) as exporter:
        modes = exporter.wait_until(
            lambda: exporter.samples().get("gputally_gpu_accounting_mode"), "a reading"
        )
        assert set(modes.values()) == {1.0}


def test_other_users_get_an_error_with_the_fix(tmp_path: Path) -> None:
    result = enable(as_nobody(), off(tmp_path))
    assert result.returncode == 1
    assert texts(result) == ["accounting is off"] * 2
    assert missing(result.stderr, "root", "\nfix: ", "`gputally enable-accounting`", "init container") == []
    assert len(result.stderr.splitlines()) == 2


def test_without_a_driver_the_reason_is_printed() -> None:
    result = run("enable-accounting", **NO_DRIVER)
    assert (result.returncode, result.stdout) == (1, "")
    assert "libnvidia-ml.so.1 was not found" in result.stderr
    assert "Traceback" not in result.stderr
