"""The reader under test, on the driver stand-in, through the real pynvml."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputally.devices.nvml import process_lists, xid
from tests.support.nvml_cards import SAMPLED_AT_US
from tests.unit.devices.nvml.driver import Clock, Driver
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(SAMPLED_AT_US)
    monkeypatch.setattr(process_lists, "time", clock)
    return clock
