"""How much energy one GPU used since it was last asked: by its counter, or by its power over time.

The two are never mixed on one GPU. A counter is believed once its difference fits the power in one window;
one that does not in three looks and ten seconds (frozen, stepping back, or counting more than this GPU) is
given up for the power, before anything was booked by it.
"""

from collections import Counter
from typing import Any, NamedTuple

NANOJOULES = 1_000_000  # of one millijoule; a milliwatt for a microsecond is one nanojoule
TESTS = 3
SUSPICIONS = 3
_TEST_US = 1_000_000
_LONG_TEST_US = 10_000_000
_TEST_NANOJOULES = 1000 * NANOJOULES
_FITS = (0.4, 1.6)
_NO_LIMIT_MILLIWATTS = 3_000_000
_SLACK_MILLIJOULES = 1_000_000
COUNTER, INTEGRATED = "counter", "integrated"


class Look(NamedTuple):
    """What a meter needs of a reading."""

    at_us: int
    """Monotonic."""
    counter_millijoules: int | None
    power_milliwatts: int | None
    most_milliwatts: int | None = None
    """The highest power limit of the card."""


class Measured(NamedTuple):
    """One closed window."""

    millijoules: int
    observed: bool = True
    """False where nobody looked: the window was too long, or the driver was loaded anew in it."""


class Meter:
    """One GPU's energy from look to look."""

    def __init__(self, max_window_us: int) -> None:
        self._max_window_us = max_window_us
        self.source: str | None = None
        self.total_millijoules = 0
        """All that was ever measured, and what the counter held before."""
        self.problems: Counter[str] = Counter()
        self._counter = 0
        self._trusted = False
        self._failed_tests = 0
        self._suspicions = 0
        self._closed_us = 0
        """When the last window ended."""
        self._power: tuple[int, int] | None = None  # at, milliwatts
        self._nanojoules = 0
        """Integrated since the last window ended; the part below a millijoule stays for the next one."""
        self._looks_without_counter = 0

    def begin(self, look: Look) -> bool:
        """The first look at this GPU; False while it has nothing to measure by."""
        if look.counter_millijoules is not None:
            self.source = COUNTER
            self._counter = self.total_millijoules = look.counter_millijoules
            # Without power there is nothing to test it against.
            self._trusted = look.power_milliwatts is None
        elif look.power_milliwatts is None:
            return False
        else:
            # A counter that could not be read once may be there the next time.
            self._looks_without_counter += 1
            if self._looks_without_counter < 2:
                return False
            self.source = INTEGRATED
        self._closed_us = look.at_us
        self._integrate(look)
        return True

    def measure(self, look: Look) -> Measured | None:
        """The energy of the window that this look closes; None when it stays open. `begin` comes first."""
        length_us = look.at_us - self._closed_us
        if length_us <= 0:
            return None
        filled = self._integrate(look)
        measured: Measured | None = None
        if self.source == INTEGRATED:
            measured = self._by_power(look, filled, length_us)
        elif look.counter_millijoules is not None:
            judge = self._by_counter if self._trusted else self._test
            measured = judge(look, look.counter_millijoules, length_us)
        if measured is None and length_us > self._max_window_us:
            return Measured(0, observed=False)  # nobody needs to remember who was there
        return measured

    def _by_power(self, look: Look, filled: bool, length_us: int) -> Measured | None:
        if look.power_milliwatts is None:
            return None
        millijoules, self._nanojoules = divmod(self._nanojoules, NANOJOULES)
        return self._close(look, millijoules, observed=filled and length_us <= self._max_window_us)

    def _by_counter(self, look: Look, counter: int, length_us: int) -> Measured | None:
        difference = counter - self._counter
        most = self._most(look, length_us)
        observed = length_us <= self._max_window_us
        if 0 <= difference <= most:
            pass
        elif difference < 0 and counter <= most:
            # The driver was loaded anew and counts from nothing; when, and for whom, nobody saw.
            difference, observed = counter, False
            self.problems["reset"] += 1
        else:
            self._suspicions += 1
            self.problems["implausible"] += 1
            if self._suspicions < SUSPICIONS:
                return None
            difference = 0  # it stays there: go on from where it is now
        self._suspicions = 0
        self._counter = counter
        return self._close(look, difference, observed=observed)

    def _test(self, look: Look, counter: int, length_us: int) -> Measured | None:
        """Whether the counter fits the power since the first look."""
        expected = self._nanojoules
        if length_us > self._max_window_us:
            self._trusted = True  # there is nothing to test it against
        elif look.power_milliwatts is None or length_us < _TEST_US:
            return None
        elif expected < _TEST_NANOJOULES:
            self._trusted = length_us > _LONG_TEST_US
        else:
            counted = (counter - self._counter) * NANOJOULES
            self._trusted = _FITS[0] * expected <= counted <= _FITS[1] * expected
            self._failed_tests += not self._trusted
        if self._trusted:
            return self._by_counter(look, counter, length_us)
        if self._failed_tests < TESTS or length_us < _LONG_TEST_US:
            return None
        self.problems["counter_unfit"] += 1
        self.source = INTEGRATED
        return self._by_power(look, True, length_us)

    def _integrate(self, look: Look) -> bool:
        """Add the trapezoid since the last known power; False when that is too long ago to tell."""
        if look.power_milliwatts is None:
            return False
        last, self._power = self._power, (look.at_us, look.power_milliwatts)
        if last is None:
            return False
        length_us = look.at_us - last[0]
        if length_us > self._max_window_us:
            return False
        self._nanojoules += (last[1] + look.power_milliwatts) * length_us // 2
        return True

    def _most(self, look: Look, length_us: int) -> int:
        """What the card cannot have used more of in that time, generously."""
        milliwatts = look.most_milliwatts or _NO_LIMIT_MILLIWATTS
        return 2 * milliwatts * length_us // NANOJOULES + _SLACK_MILLIJOULES

    def _close(self, look: Look, millijoules: int, *, observed: bool) -> Measured:
        self._closed_us = look.at_us
        self.total_millijoules += millijoules
        if self.source == COUNTER:
            self._nanojoules = 0
        return Measured(millijoules, observed)

    @property
    def settled(self) -> bool:
        """Whether it is known how to measure this GPU."""
        return self._trusted or self.source == INTEGRATED

    def state(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "total": self.total_millijoules,
            "counter": self._counter,
            "nanojoules": self._nanojoules,
            "unfit": self._failed_tests >= TESTS,
        }

    def resume(self, state: dict[str, Any], look: Look) -> int | None:
        """Go on from a state; the energy used since then, or None when this look does not follow from it."""
        source, counter = state["source"], look.counter_millijoules
        if source == COUNTER and (counter is None or counter < state["counter"]):
            return None
        if source == INTEGRATED and (
            look.power_milliwatts is None or (counter is not None and not state["unfit"])
        ):
            return None  # there is a counter now: better to begin anew with that
        used = counter - state["counter"] if source == COUNTER and counter is not None else 0
        self.source = source
        self.total_millijoules = state["total"] + used
        self._counter = counter or 0
        self._trusted = source == COUNTER
        self._failed_tests = TESTS if state["unfit"] else 0
        self._closed_us = look.at_us
        self._integrate(look)
        self._nanojoules = state["nanojoules"] if source == INTEGRATED else 0
        return used
