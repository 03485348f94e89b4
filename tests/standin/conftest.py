"""The driver stand-in in this process, under the real pynvml, on scenarios written by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml
from tools.standin.scenario import preload, replace_scenario

Play = Callable[[str], Path]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    return tmp_path / "driver.scenario"


@pytest.fixture
def play(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays a scenario text; called again, it changes the values under clients that are initialised."""
    started = False

    def start(text: str) -> Path:
        nonlocal started
        replace_scenario(scenario, text)
        if not started:
            monkeypatch.setenv("GPUTALLY_STANDIN_SCENARIO", str(scenario))
            preload(scenario)
            nvml.nvmlInit()
            started = True
        return scenario

    yield start
    while started:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError_Uninitialized:
            started = False


@pytest.fixture
def gpu(play: Play) -> Callable[[str], Any]:
    """The handle of the only GPU of a scenario that has these lines."""

    def start(lines: str) -> Any:
        play("frame 0\ngpu 0\nuuid GPU-0\nname NVIDIA H100 80GB HBM3\n" + lines)
        return nvml.nvmlDeviceGetHandleByIndex(0)

    return start
