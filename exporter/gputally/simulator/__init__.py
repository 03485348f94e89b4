"""Reader `simulated`: GPUs generated from a seed and a scenario. It is never a fallback.

The names of the models can be imported without the physics: the engine is loaded with the first reader.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputally.devices import Report
from gputally.devices.rates import CounterRate
from gputally.model import Reading, Unavailable

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
    """Reads an engine in place of a driver.

    The scenario starts at `began_at` (seconds since 1970), by default when the reader is created. Readers
    with the same start play the same history, so that counters continue across processes.
    """

    name = "simulated"

    def __init__(
        self, engine: "Engine", clock: Callable[[], float] = time.time, *, began_at: float | None = None
    ) -> None:
        self.engine = engine
        self.began_at = clock() if began_at is None else began_at
        self._clock = clock
        self._last: float | None = None
        self._link_rates: defaultdict[str, CounterRate] = defaultdict(CounterRate)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the start of the scenario; never decreases when the clock is set back."""
        return max(self._clock() - self.began_at, self._last or 0.0)

    def read(self) -> Report:
        elapsed = self.elapsed_seconds
        self.answer(self.name)
        readings = self.engine.readings(elapsed, since=self._last, epoch_seconds=self.began_at)
        self._last = elapsed
        return Report(tuple(self._with_link_rate(reading, elapsed) for reading in readings))

    def _with_link_rate(self, reading: Reading, elapsed: float) -> Reading:
        rate = self._link_rates[reading.gpu.uuid].per_second(reading.nvlink_bytes, elapsed)
        return reading if rate is None else replace(reading, nvlink_bytes_per_second=rate)

    def answer(self, source: str) -> None:
        """Raises Unavailable while the scenario declares this source down."""
        if self.engine.is_down(source, self.elapsed_seconds):
            raise Unavailable(
                "the scenario declares it down", "wait, or remove source_down from the scenario"
            )

    def close(self) -> None:
        """There is no hardware to release."""


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
    """A reader of the scenario file, or of the default scenario; arguments override it.

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
