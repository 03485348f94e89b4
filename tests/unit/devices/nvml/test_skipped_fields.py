"""A value that nothing needs is not read from the driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import pynvml
import pytest

from gputally.devices.nvml.device import READ_TOGETHER, not_to_read
from gputally.metrics.sets import choose, skipped_fields
from gputally.model import Reading
from tests.support.nvml_cards import h100
from tests.unit.devices.nvml.driver import Driver


@contextmanager
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The names of pynvml's functions that are called."""
    called: set[str] = set()

    def recording(name: str, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            called.add(name)
            return real(*arguments)

        return call

    with monkeypatch.context() as patched:
        for name in dir(pynvml):
            if name.startswith("nvmlDeviceGet"):
                patched.setattr(pynvml, name, recording(name, getattr(pynvml, name)))
        yield called


def test_functions_of_skipped_values_are_not_called(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.shows(h100())
    with calls(monkeypatch) as everything:
        driver.reader().read()
    with calls(monkeypatch) as standard:
        driver.reader(skipped=skipped_fields(choose("standard"))).read()
    assert standard < everything
    assert {
        "nvmlDeviceGetBAR1MemoryInfo",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetPerformanceState",
    } <= everything - standard


def test_a_reading_has_every_value_that_is_needed(driver: Driver) -> None:
    driver.shows(h100())
    skipped = skipped_fields(choose("core"))
    (whole,) = driver.reader().read().readings
    (reading,) = driver.reader(skipped=skipped).read().readings
    # Moments of the reading, and events that arrive when they do.
    observed = {"read_at_us", "process_samples", "xid_errors", "xid_last_timestamp_seconds"}
    different = {
        one.name for one in fields(Reading) if getattr(whole, one.name) != getattr(reading, one.name)
    }
    assert "nvlink_errors" in different
    assert different - observed <= skipped


@pytest.mark.parametrize("together", READ_TOGETHER)
def test_a_needed_value_needs_those_that_come_with_it(together: tuple[str, ...]) -> None:
    assert not_to_read(frozenset(together[1:])) == frozenset()
    assert not_to_read(frozenset(together)) == frozenset(together)
