"""The reader under test, on the driver stand-in, through the real pynvml."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputally.devices.nvml import xid
from tests.unit.devices.nvml.driver import Driver
from tools.standin.scenario import Frame, preload, write_scenario


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(xid, "WAIT_SECONDS", 0.05)  # so that readers close at once
    scenario = tmp_path / "scenario"
    write_scenario(scenario, [Frame(0.0, ())])
    preload(scenario)
    driver = Driver(scenario)
    yield driver
    driver.close()
