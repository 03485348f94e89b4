"""Energy counters that increase with the power of their GPUs, as real ones do.

The ledger stops using a counter that is constant for ten seconds at some power: a slow machine takes as long.
"""

from contextlib import AbstractContextManager
from pathlib import Path

from gputally.devices.amdgpu import AmdgpuReader
from gputally.model import Reading
from tests.support.amd_meters import card_directory, increasing_energy
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


def running_amd(host: Path) -> AbstractContextManager[None]:
    """Increases the counters of this host's GPUs until the end of the block."""
    return increasing_energy(
        {
            card_directory(host, reading.gpu.pci_bus_id or ""): reading.power_watts
            for reading in AmdgpuReader(host / "sys", host / "proc").read().readings
            if reading.energy_millijoules and reading.power_watts
        }
    )


def _counted(reading: Reading, seconds: float) -> int:
    return (reading.energy_millijoules or 0) + round((reading.power_watts or 0.0) * seconds * 1000)
