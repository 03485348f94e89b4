"""The driver stand-in, as tests use it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputally.devices.nvml import NvmlReader
from gputally.model import Reading
from tools.standin.scenario import Fault, Frame, replace_scenario, scenario_text, write_scenario


def let_the_standin_look() -> None:
    """The first call more than 3 ms after a change reads the new file, however busy the machine is."""
    time.sleep(0.004)


class Clock:
    """The time that the reader of process samples sees, in place of the module `time`."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def time_ns(self) -> int:
        return self.now_us * 1000

    def monotonic_ns(self) -> int:
        return self.now_us * 1000


class Driver:
    """A driver whose GPUs are what the test says."""

    def __init__(self, scenario: Path) -> None:
        self.scenario = scenario
        self._readers: list[NvmlReader] = []

    def shows(self, *readings: Reading, faults: Sequence[Fault] = (), mig_monitor: bool = True) -> None:
        """From now on these GPUs are there."""
        write_scenario(self.scenario, [Frame(0.0, readings)], faults=faults, mig_monitor=mig_monitor)
        let_the_standin_look()

    def says(self, reading: Reading, lines: str, *, faults: Sequence[Fault] = ()) -> None:
        """From now on this GPU is there, with these lines of a scenario."""
        replace_scenario(self.scenario, scenario_text([Frame(0.0, (reading,))], faults=faults) + lines)
        let_the_standin_look()

    def reader(self, **options: Any) -> NvmlReader:
        reader = NvmlReader(**options)
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
