"""The power of one GPU, learned from its windows: its idle floor, and the weight of compute and memory time.

The floor is the lowest power of the GPU while nothing ran on it. The weights come from a fit: the power above
the floor is `compute` x (SM time without memory activity) + `memory` x (SM time with it), neither negative.
Only the ratio of the two is used, to divide SM time among owners.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gputally.ledger.meter import NANOJOULES

_DAY_US = 86_400_000_000
_SHORTEST_WINDOW_US = 1_000_000
"""Counters are updated in steps of about 100 ms: the power of a shorter window is noise."""
_BLOCK_US = 60_000_000
"""Windows are fitted a minute at a time: shares of SM time come from about six samples a second, and an error
in the times would make the fit too flat."""
_KEEP = 0.5 ** (1 / 360)
"""Half of what was learned is forgotten after 360 blocks: six busy hours."""
_LEAST_BLOCKS = 10.0
_LEAST_SPREAD = 0.04
"""Standard deviation of the memory share of SM time, below which the two weights cannot be separated."""
_LEAST_GAIN = 0.5
"""The part of the squared error of SM time alone that the second weight must explain."""
_EQUAL = 1000
_LOWEST = 250
"""No microsecond of SM time weighs less than a quarter of another, whatever was fitted."""


class Weights(NamedTuple):
    """The relative power of SM time without and with memory activity; the higher one is 1000."""

    compute: int = _EQUAL
    memory: int = _EQUAL


BY_SM_TIME = Weights()


class WindowActivity(NamedTuple):
    """One closed window of the whole GPU."""

    at_us: int
    length_us: int
    millijoules: int
    resident: bool
    """Whether a process was on the GPU."""
    busy_us: int | None
    """SM time of all processes; None if it is not known."""
    memory_busy_us: int | None
    """The part of it with memory activity; None if that is not known."""


class RollingMinimum:
    """The lowest value of the last one to two days."""

    def __init__(self) -> None:
        self._current: int | None = None
        self._before: int | None = None
        self._began_us = 0

    @property
    def value(self) -> int | None:
        return min((one for one in (self._current, self._before) if one is not None), default=None)

    def note(self, at_us: int, value: int) -> None:
        if self._current is None or at_us - self._began_us >= _DAY_US:
            self._before, self._current, self._began_us = self._current, value, at_us
        self._current = min(self._current, value)

    def state(self, at_us: int) -> dict[str, Any]:
        return {"current": self._current, "before": self._before, "age_us": at_us - self._began_us}

    def resume(self, state: Mapping[str, Any], at_us: int) -> None:
        self._current, self._before = state["current"], state["before"]
        self._began_us = at_us - state["age_us"]


class Fit:
    """Non-negative least squares of two weights, with exponential forgetting: seven sums."""

    def __init__(self) -> None:
        self._sums = [0.0] * 7  # blocks, cc, cm, mm, cy, my, yy: compute, memory, power
        self._block = [0.0] * 4  # length, SM time, memory time, energy
        self.weights = BY_SM_TIME

    def note(self, length_us: int, busy_us: int, memory_us: int, millijoules: int) -> None:
        """Adds one window with the energy above the floor."""
        for place, value in enumerate((length_us, busy_us, memory_us, millijoules)):
            self._block[place] += value
        length = self._block[0]
        if length < _BLOCK_US:
            return
        _, busy, memory, energy = self._block
        self._block = [0.0] * 4
        if busy <= 0:
            return
        c, m, y = (busy - memory) / length, memory / length, energy * 1e6 / length
        new = (1.0, c * c, c * m, m * m, c * y, m * y, y * y)
        self._sums = [_KEEP * old + one for old, one in zip(self._sums, new, strict=True)]
        self.weights = _solve(self._sums)

    def state(self) -> list[float]:
        return list(self._sums)

    def resume(self, sums: list[float]) -> None:
        self._sums = list(sums)
        self.weights = _solve(self._sums)


def _solve(sums: Sequence[float]) -> Weights:
    """The weights; those of SM time alone unless the sums tell two apart."""
    blocks, cc, cm, mm, cy, my, yy = sums
    ss = cc + 2 * cm + mm  # of SM time, which is c + m
    if blocks < _LEAST_BLOCKS or ss <= 0:
        return BY_SM_TIME
    determinant = cc * mm - cm * cm
    # The variance of the memory share m / (c + m), weighted by the square of the SM time.
    if determinant < _LEAST_SPREAD**2 * ss * ss:
        return BY_SM_TIME
    compute = (mm * cy - cm * my) / determinant
    memory = (cc * my - cm * cy) / determinant
    if compute < 0:
        compute, memory = 0.0, my / mm
    elif memory < 0:
        compute, memory = cy / cc, 0.0
    alone = (cy + my) / ss
    error_alone = yy - alone * (cy + my)
    error = yy - compute * cy - memory * my
    most = max(compute, memory)
    if most <= 0 or error_alone - error < _LEAST_GAIN * error_alone:
        return BY_SM_TIME
    return Weights(*(max(_LOWEST, round(_EQUAL * one / most)) for one in (compute, memory)))


class PowerModel:
    """What is known of the power of one GPU."""

    def __init__(self) -> None:
        self._floors = {True: RollingMinimum(), False: RollingMinimum()}  # with processes, without
        self._fit = Fit()
        self._idle: tuple[bool, int] | None = None
        """The last window if nothing ran in it: whether processes were on the GPU, and its milliwatts."""

    @property
    def weights(self) -> Weights:
        return self._fit.weights

    def floor_milliwatts(self, *, resident: bool) -> int | None:
        """The idle power; processes raise it. None until the GPU was idle."""
        floor = self._floors[resident].value
        return self._floors[False].value if floor is None and resident else floor

    def floor_millijoules(self, window: WindowActivity) -> int:
        """The part of the window's energy that the idle GPU would have used too."""
        milliwatts = self.floor_milliwatts(resident=window.resident) or 0
        return min(window.millijoules, milliwatts * window.length_us // NANOJOULES)

    def learn(self, window: WindowActivity) -> None:
        last, self._idle = self._idle, None
        if window.busy_us is None or window.length_us < _SHORTEST_WINDOW_US:
            return
        if window.busy_us == 0:
            milliwatts = window.millijoules * NANOJOULES // window.length_us
            self._idle = (window.resident, milliwatts)
            # The higher of two windows in a row: a counter that stood still in one of them is no floor.
            if last is not None and last[0] == window.resident:
                self._floors[window.resident].note(window.at_us, max(milliwatts, last[1]))
        elif window.memory_busy_us is not None and self.floor_milliwatts(resident=True) is not None:
            dynamic = window.millijoules - self.floor_millijoules(window)
            self._fit.note(window.length_us, window.busy_us, window.memory_busy_us, dynamic)

    def state(self, at_us: int) -> dict[str, Any]:
        return {
            "resident": self._floors[True].state(at_us),
            "empty": self._floors[False].state(at_us),
            "fit": self._fit.state(),
        }

    def resume(self, state: Mapping[str, Any], at_us: int) -> None:
        self._floors[True].resume(state["resident"], at_us)
        self._floors[False].resume(state["empty"], at_us)
        self._fit.resume(state["fit"])
