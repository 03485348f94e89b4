"""Energy counters that run with the power of their GPUs, as real ones do.

A counter that stands while the GPU draws power is called unfit after ten seconds, which a slow machine takes.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gputally.devices.amdgpu import AmdgpuReader
from gputally.model import Reading
from tests.support.amd_meters import card_directory, set_energy
from tools.standin.scenario import Fault, Frame, replace_scenario, scenario_text

_STEP_SECONDS = 0.5
_STEPS = 400


def play_running(path: Path, world: tuple[Reading, ...], faults: tuple[Fault, ...] = ()) -> Path:
    """A scenario in which nothing changes but the energy counters."""
    lines = []
    for step in range(1, _STEPS):
        seconds = step * _STEP_SECONDS
        lines.append(f"frame {seconds}")
        for number, reading in enumerate(world):
            if reading.energy_millijoules is not None and reading.power_watts is not None:
                lines += [f"gpu {number}", f"energy {_counted(reading, seconds)}"]
    replace_scenario(path, scenario_text([Frame(0.0, world)], faults=faults) + "\n".join(lines) + "\n")
    return path


@contextmanager
def running_amd(host: Path) -> Iterator[None]:
    """Moves the counters of this host's GPUs until the end of the block."""
    began, over = time.monotonic(), threading.Event()
    cards = [
        (card_directory(host, reading.gpu.pci_bus_id or ""), reading)
        for reading in AmdgpuReader(host / "sys", host / "proc").read().readings
        if reading.energy_millijoules and reading.power_watts
    ]

    def run() -> None:
        while not over.wait(_STEP_SECONDS / 2):
            for card, reading in cards:
                set_energy(card, _counted(reading, time.monotonic() - began))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _counted(reading: Reading, seconds: float) -> int:
    return (reading.energy_millijoules or 0) + round((reading.power_watts or 0.0) * seconds * 1000)
