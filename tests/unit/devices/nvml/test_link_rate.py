"""The throughput of NVLink, from a counter and the time between two samples."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gputally.devices.nvml import device
from tests.support.nvml_cards import h100
from tests.unit.devices.nvml.driver import Driver


def test_the_rate_is_that_since_the_sample_before(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    times_ns = iter((100_000_000_000, 105_000_000_000))
    clock = SimpleNamespace(monotonic=lambda: 100.0, monotonic_ns=lambda: next(times_ns))
    monkeypatch.setattr(device, "time", clock)
    card = h100()
    driver.shows(card)
    reader = driver.reader()
    (first,) = reader.read().readings
    assert first.nvlink_bytes_per_second is None
    assert card.nvlink_bytes is not None
    # The driver counts in KiB, on each of 18 links.
    more = {direction: count + 18 * 1024 * 500 for direction, count in card.nvlink_bytes.items()}
    driver.shows(replace(card, nvlink_bytes=more))
    (second,) = reader.read().readings
    assert second.nvlink_bytes_per_second == 2 * 18 * 1024 * 100
