"""Reader `simulated`: GPUs that do not exist, from a seed and a scenario. It is never a fallback.

Whoever only wants the names of the models imports them without the physics: the engine is loaded when
a reader is made.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gputally.devices import Report
from gputally.model import Unavailable

if TYPE_CHECKING:
    from gputally.simulator.engine import Engine

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
    "mi210",
    "mi300x",
    "rx7900xtx",
)


class SimulatedReader:
    """Reads an engine as one would read a driver.

    The scenario began at `began_at` (seconds since 1970), or begins when the reader is made. Readers that
    say the same play the same history: the counters go on where another process left them.
    """

    name = "simulated"

    def __init__(
        self, engine: "Engine", clock: Callable[[], float] = time.time, *, began_at: float | None = None
    ) -> None:
        self.engine = engine
        self.began_at = clock() if began_at is None else began_at
        self._clock = clock
        self._last: float | None = None

    @property
    def elapsed_seconds(self) -> float:
        """How long the scenario has run. A clock that is set back does not turn it back."""
        return max(self._clock() - self.began_at, self._last or 0.0)

    def read(self) -> Report:
        elapsed = self.elapsed_seconds
        self.answer(self.name)
        readings = self.engine.readings(elapsed, since=self._last, epoch_seconds=self.began_at)
        self._last = elapsed
        return Report(readings)

    def answer(self, source: str) -> None:
        """Raises Unavailable while the scenario has this source down."""
        if self.engine.is_down(source, self.elapsed_seconds):
            raise Unavailable("the scenario has it down", "wait, or take source_down out of the scenario")

    def close(self) -> None:
        """There is no hardware to let go of."""


def simulated_reader(
    *,
    scenario: Path | None = None,
    gpus: int | None = None,
    model: str | None = None,
    seed: int | None = None,
    pcie_throughput: bool = False,
    began_at: float | None = None,
    clock: Callable[[], float] = time.time,
) -> SimulatedReader:
    """A reader of the scenario file, or of the default scenario; what is given overrides it.

    Raises ScenarioError, a ValueError whose text is one line.
    """
    from gputally.simulator.default_scenario import default_scenario  # noqa: PLC0415
    from gputally.simulator.engine import Engine  # noqa: PLC0415
    from gputally.simulator.scenario import DEFAULT_GPUS, DEFAULT_MODEL  # noqa: PLC0415
    from gputally.simulator.scenario_file import load_scenario  # noqa: PLC0415

    if scenario is None:
        played = default_scenario(
            DEFAULT_GPUS if gpus is None else gpus, DEFAULT_MODEL if model is None else model, seed or 0
        )
    else:
        played = load_scenario(scenario, gpus=gpus, model=model, seed=seed)
    return SimulatedReader(Engine(played, pcie_throughput=pcie_throughput), clock, began_at=began_at)
