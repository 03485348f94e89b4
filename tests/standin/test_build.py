"""The library is compiled once, safely, and can lack functions as an older driver does."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import Missing
from tools.standin import build
from tools.standin.build import LIBRARY_NAME, build_library
from tools.standin.scenario import environment, replace_scenario

CHILD = """\
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"):
    try:
        print(getattr(pynvml, function)(handle))
    except pynvml.NVMLError as error:
        print(type(error).__name__)
"""


def test_two_builds_at_once_produce_one_library(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from tools.standin.build import build_library; print(build_library())"]
    root = Path(__file__).parents[2]
    path = f"{root / 'exporter'}:{root}"
    variables = {**os.environ, "GPUTALLY_CACHE": str(tmp_path), "PYTHONPATH": path}
    with ThreadPoolExecutor() as pool:
        runs = list(
            pool.map(
                lambda _: subprocess.run(command, env=variables, capture_output=True, text=True, check=True),
                range(2),
            )
        )
    (directory,) = {run.stdout.strip() for run in runs}
    assert [entry.name for entry in tmp_path.iterdir()] == [Path(directory).name], (
        "nothing half-built is left"
    )
    assert (Path(directory) / LIBRARY_NAME).stat().st_size > 0


def test_a_library_that_lacks_a_function(tmp_path: Path) -> None:
    scenario = tmp_path / "driver.scenario"
    replace_scenario(scenario, "frame 0\ngpu 0\nuuid GPU-0\npower.usage 7\nenergy 8\n")
    lacking = build_library(without=("nvmlDeviceGetTotalEnergyConsumption",))
    assert lacking != build_library()
    for library, expected in ((lacking, "7\nNVMLError_FunctionNotFound\n"), (None, "7\n8\n")):
        variables = {**os.environ, **environment(scenario, library=library)}
        run = subprocess.run(
            [sys.executable, "-c", CHILD], env=variables, capture_output=True, text=True, check=False
        )
        assert (run.stdout, run.stderr) == (expected, "")


def test_without_a_compiler_the_error_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUTALLY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="run `tools/programs cc`"):
        build_library()
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_sources_shows_the_compiler_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "broken.c").write_text("int broken(void) { return nothing; }\n")
    monkeypatch.setenv("GPUTALLY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_SOURCES", sources)
    with pytest.raises(RuntimeError, match="nothing"):
        build_library()
    assert list((tmp_path / "cache").iterdir()) == []
