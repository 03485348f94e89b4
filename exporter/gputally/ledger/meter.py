"""The energy that one GPU used since its last sample: from its counter, or from its power over time.

The two are never mixed on one GPU. A counter is trusted once its difference fits the power in one window. A
counter that does not fit in three samples and ten seconds (frozen, decreasing, or of more than this GPU) is
replaced by the power, before any energy was charged by it.
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
SOURCES = COUNTER, INTEGRATED = "counter", "integrated"


class MeterSample(NamedTuple):
    """The part of a reading that a meter needs."""

    at_us: int
    """Monotonic."""
    counter_millijoules: int | None
    power_milliwatts: int | None
    most_milliwatts: int | None = None
    """The highest power limit of the GPU."""


class Measured(NamedTuple):
    """One closed window."""

    millijoules: int
    observed: bool = True
    """False if the window was too long, or the driver was reloaded in it."""


class Meter:
    """One GPU's energy from sample to sample."""

    def __init__(self, max_window_us: int) -> None:
        self._max_window_us = max_window_us
        self.source: str | None = None
        self.total_millijoules = 0
        """All energy that was measured, and the counter's first value."""
        self.problems: Counter[str] = Counter()
        self._counter = 0
        self._trusted = False
        self._failed_tests = 0
        self._suspicions = 0
        self.closed_us = 0
        """When the last window ended."""
        self._power: tuple[int, int] | None = None  # at, milliwatts
        self._nanojoules = 0
        """Integrated since the last window ended; the remainder below a millijoule stays for the next one."""
        self._samples_without_counter = 0

    def begin(self, sample: MeterSample) -> bool:
        """Takes in the first sample of this GPU; False while it has neither counter nor power."""
        if sample.counter_millijoules is not None:
            self.source = COUNTER
            self._counter = self.total_millijoules = sample.counter_millijoules
            # Without power the counter cannot be tested.
            self._trusted = sample.power_milliwatts is None
        elif sample.power_milliwatts is None:
            return False
        else:
            # A counter that could not be read once may be readable the next time.
            self._samples_without_counter += 1
            if self._samples_without_counter < 2:
                return False
            self.source = INTEGRATED
        self.closed_us = sample.at_us
        self._integrate(sample)
        return True

    def measure(self, sample: MeterSample) -> Measured | None:
        """The energy of the window that this sample closes; None if it stays open. `begin` comes first."""
        length_us = sample.at_us - self.closed_us
        if length_us <= 0:
            return None
        filled = self._integrate(sample)
        measured: Measured | None = None
        if self.source == INTEGRATED:
            measured = self._by_power(sample, filled, length_us)
        elif sample.counter_millijoules is not None:
            judge = self._by_counter if self._trusted else self._test
            measured = judge(sample, sample.counter_millijoules, length_us)
        if measured is None and length_us > self._max_window_us:
            return Measured(0, observed=False)  # the window is abandoned
        return measured

    def _by_power(self, sample: MeterSample, filled: bool, length_us: int) -> Measured | None:
        if sample.power_milliwatts is None:
            return None
        millijoules, self._nanojoules = divmod(self._nanojoules, NANOJOULES)
        return self._close(sample, millijoules, observed=filled and length_us <= self._max_window_us)

    def _by_counter(self, sample: MeterSample, counter: int, length_us: int) -> Measured | None:
        difference = counter - self._counter
        most = self._most(sample, length_us)
        observed = length_us <= self._max_window_us
        if 0 <= difference <= most:
            pass
        elif difference < 0 and counter <= most:
            # The driver was reloaded and counts from zero; the time of the reload is not known.
            difference, observed = counter, False
            self.problems["reset"] += 1
        else:
            self._suspicions += 1
            self.problems["implausible"] += 1
            if self._suspicions < SUSPICIONS:
                return None
            difference = 0  # the counter stays at its new value: continue from there
        self._suspicions = 0
        self._counter = counter
        return self._close(sample, difference, observed=observed)

    def _test(self, sample: MeterSample, counter: int, length_us: int) -> Measured | None:
        """Tests whether the counter fits the power since the first sample."""
        expected = self._nanojoules
        if length_us > self._max_window_us:
            self._trusted = True  # the power since then is not known: no test is possible
        elif sample.power_milliwatts is None or length_us < _TEST_US:
            return None
        elif expected < _TEST_NANOJOULES:
            self._trusted = length_us > _LONG_TEST_US
        else:
            counted = (counter - self._counter) * NANOJOULES
            self._trusted = _FITS[0] * expected <= counted <= _FITS[1] * expected
            self._failed_tests += not self._trusted
        if self._trusted:
            return self._by_counter(sample, counter, length_us)
        if self._failed_tests < TESTS or length_us < _LONG_TEST_US:
            return None
        self.problems["counter_unfit"] += 1
        self.source = INTEGRATED
        return self._by_power(sample, True, length_us)

    def _integrate(self, sample: MeterSample) -> bool:
        """Adds the trapezoid since the last known power; False if that is too long ago."""
        if sample.power_milliwatts is None:
            return False
        last, self._power = self._power, (sample.at_us, sample.power_milliwatts)
        if last is None:
            return False
        length_us = sample.at_us - last[0]
        if length_us > self._max_window_us:
            return False
        self._nanojoules += (last[1] + sample.power_milliwatts) * length_us // 2
        return True

    def _most(self, sample: MeterSample, length_us: int) -> int:
        """A generous upper limit of the energy that the GPU can have used in that time."""
        milliwatts = sample.most_milliwatts or _NO_LIMIT_MILLIWATTS
        return 2 * milliwatts * length_us // NANOJOULES + _SLACK_MILLIJOULES

    def _close(self, sample: MeterSample, millijoules: int, *, observed: bool) -> Measured:
        self.closed_us = sample.at_us
        self.total_millijoules += millijoules
        if self.source == COUNTER:
            self._nanojoules = 0
        return Measured(millijoules, observed)

    @property
    def settled(self) -> bool:
        """Whether the source of energy is decided."""
        return self._trusted or self.source == INTEGRATED

    def state(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "total": self.total_millijoules,
            "counter": self._counter,
            "nanojoules": self._nanojoules,
            "unfit": self._failed_tests >= TESTS,
        }

    def resume(self, state: dict[str, Any], sample: MeterSample) -> int | None:
        """Continues from a state; the energy used since then, or None if this sample does not follow it."""
        source, counter = state["source"], sample.counter_millijoules
        if source == COUNTER and (counter is None or counter < state["counter"]):
            return None
        if source == INTEGRATED and (
            sample.power_milliwatts is None or (counter is not None and not state["unfit"])
        ):
            return None  # there is a counter now: a new ledger with the counter is better
        used = counter - state["counter"] if source == COUNTER and counter is not None else 0
        self.source = source
        self.total_millijoules = state["total"] + used
        self._counter = counter or 0
        self._trusted = source == COUNTER
        self._failed_tests = TESTS if state["unfit"] else 0
        self.closed_us = sample.at_us
        self._integrate(sample)
        self._nanojoules = state["nanojoules"] if source == INTEGRATED else 0
        return used
