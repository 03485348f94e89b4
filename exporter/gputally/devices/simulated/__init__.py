"""Reader `simulated`: GPUs that do not exist, from a seed and a scenario. It is never a fallback.

Whoever only wants the names of the models imports them without the physics: the engine is loaded when
a reader is made.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gputally.devices import Report

if TYPE_CHECKING:
    from gputally.devices.simulated.engine import Engine

MODEL_NAMES = (
    "a100",
    "a100-80gb",
    "h100",
    "h200",
    "b200",
    "gb200",
    "l4",
    "l40s",
    "t4",
    "rtx4090",
    "gtx1080ti",
)


class SimulatedReader:
    """Reads an engine as one would read a driver: the scenario begins when the reader is made."""

    name = "simulated"

    def __init__(self, engine: "Engine", clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock
        self._began = clock()
        self._last: float | None = None

    def read(self) -> Report:
        # A clock that is set back does not turn the counters back.
        elapsed = max(self._clock() - self._began, self._last or 0.0)
        readings = self._engine.readings(elapsed, since=self._last, epoch_seconds=self._began)
        self._last = elapsed
        return Report(readings)

    def close(self) -> None:
        """There is no hardware to let go of."""


def simulated_reader(
    *,
    scenario: Path | None = None,
    gpus: int | None = None,
    model: str | None = None,
    seed: int | None = None,
    pcie_throughput: bool = False,
    clock: Callable[[], float] = time.time,
) -> SimulatedReader:
    """A reader of the scenario file, or of the default scenario; what is given overrides it.

    Raises ScenarioError, a ValueError whose text is one line.
    """
    from gputally.devices.simulated.default_scenario import default_scenario  # noqa: PLC0415
    from gputally.devices.simulated.engine import Engine  # noqa: PLC0415
    from gputally.devices.simulated.scenario import DEFAULT_GPUS, DEFAULT_MODEL  # noqa: PLC0415
    from gputally.devices.simulated.scenario_file import load_scenario  # noqa: PLC0415

    if scenario is None:
        played = default_scenario(
            DEFAULT_GPUS if gpus is None else gpus, DEFAULT_MODEL if model is None else model, seed or 0
        )
    else:
        played = load_scenario(scenario, gpus=gpus, model=model, seed=seed)
    return SimulatedReader(Engine(played, pcie_throughput=pcie_throughput), clock)
