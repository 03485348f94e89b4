"""The reader under test, on the driver stand-in, through the real pynvml."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.devices.nvml.driver import Driver, Eventually
from tools.standin.scenario import Frame, preload, write_scenario


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    scenario = tmp_path / "scenario"
    write_scenario(scenario, [Frame(0.0, ())])
    preload(scenario)
    driver = Driver(scenario)
    yield driver
    driver.close()


@pytest.fixture
def eventually() -> Eventually:
    """Waits until something is so, and fails when it does not become so."""

    def wait(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not is_so():
            assert time.monotonic() < deadline, "it did not happen within 10 s"
            time.sleep(0.02)

    return wait
