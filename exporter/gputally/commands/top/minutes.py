"""The values of the last minutes, for graphs: a fixed number of them, in memory."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_SAMPLES = 1000
GRAPH_SECONDS = 600.0


@dataclass(slots=True)
class Minutes:
    """Samples of (time, utilisation, power), oldest first."""

    _samples: deque[tuple[float, float | None, float | None]] = field(
        default_factory=lambda: deque(maxlen=MOST_SAMPLES)
    )

    def add(self, at: float, utilization: float | None, power: float | None) -> None:
        if not self._samples or at > self._samples[-1][0]:
            self._samples.append((at, utilization, power))

    def graphs(self, points: int) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
        """Utilisation and power in `points` steps up to the last sample."""
        return self._steps(1, points), self._steps(2, points)

    def _steps(self, which: int, points: int) -> tuple[float | None, ...]:
        if not self._samples or points < 1:
            return ()
        last, step = self._samples[-1][0], GRAPH_SECONDS / points
        sums, counts = [0.0] * points, [0] * points
        for sample in self._samples:
            place = points - 1 - int((last - sample[0]) / step)
            value = sample[which]
            if place >= 0 and value is not None:
                sums[place] += value
                counts[place] += 1
        return filled([sums[at] / counts[at] if counts[at] else None for at in range(points)])


def filled(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """A step without a sample between two with one has the value before it."""
    found: list[float | None] = list(values)
    last_known = max((at for at, value in enumerate(found) if value is not None), default=-1)
    for at in range(1, last_known):
        if found[at] is None:
            found[at] = found[at - 1]
    return tuple(found)
