"""What the driver says is what the reader reads, field by field, on every kind of card."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from gputally.metrics.catalog import GPU_METRICS
from gputally.model import Activity, MigReading, Reading
from tests.support.nvml_cards import CARDS, h100, l40s, t4
from tests.unit.devices.nvml.driver import Driver
from tools.rendering.metrics_page import readers_of
from tools.servers.waiting import wait_until
from tools.standin.scenario import Fault, FaultKind

ACTIVITY_FIELDS = [field.name for field in dataclasses.fields(Activity)]
# By the moments at which the test ran.
FROM_THE_CLOCK = {"xid_last_timestamp_seconds", "nvlink_bytes_per_second", "read_at_us"}


def without_activity(reading: Any) -> Any:
    return replace(reading, **dict.fromkeys(ACTIVITY_FIELDS))


def differences(actual: Any, expected: Any) -> dict[str, tuple[Any, Any]]:
    """Every field that is not as expected."""
    pairs = {
        field.name: (getattr(actual, field.name), getattr(expected, field.name))
        for field in dataclasses.fields(expected)
        if field.name not in FROM_THE_CLOCK
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def test_every_field_of_the_model_is_reported_by_some_card() -> None:
    other_readers = {metric.field for metric in GPU_METRICS if "nvml" not in readers_of(metric)} | {
        "nvidia_smi_row",
        "nvidia_smi_names",
        "process_samples",
    }
    for model, readings in (
        (Reading, [card() for card in CARDS.values()]),
        (MigReading, [mig for card in CARDS.values() for mig in card().mig]),
    ):
        untold = {
            field.name
            for field in dataclasses.fields(model)
            if all(getattr(reading, field.name) is None for reading in readings)
        }
        assert untold <= FROM_THE_CLOCK | other_readers


@pytest.mark.parametrize("kind", CARDS)
def test_every_reading_equals_the_values_of_the_driver(driver: Driver, kind: str) -> None:
    expected = CARDS[kind]()
    driver.shows(expected)
    # With GPM, throughput is activity: it needs no flag, and two samples.
    has_gpm = expected.sm_active_ratio is not None
    throughput = expected.pcie_throughput_bytes_per_second
    reader = driver.reader(
        pcie_throughput=throughput is not None and not has_gpm,
        accounting=expected.accounted is not None,
    )

    first = reader.read()
    (reading,) = first.readings
    assert first.errors == {}
    unfollowed = replace(
        without_activity(expected),
        pcie_throughput_bytes_per_second=None if has_gpm else throughput,
        xid_errors=reading.xid_errors,
        mig=tuple(without_activity(mig) for mig in expected.mig),
    )
    assert differences(reading, unfollowed) == {}

    seen: list[Reading] = []

    def all_xids_came() -> bool:
        seen[:] = reader.read().readings
        return seen[0].xid_errors == expected.xid_errors

    wait_until(all_xids_came)
    # Samples are told once.
    samples_told = None if expected.process_samples is None else ()
    assert differences(seen[0], replace(expected, process_samples=samples_told)) == {}
    assert (seen[0].xid_last_timestamp_seconds or {}).keys() == (expected.xid_errors or {}).keys()


def test_several_cards_are_read_together(driver: Driver) -> None:
    cards = [card(index) for index, card in enumerate(CARDS.values())]
    driver.shows(*cards)
    report = driver.reader().read()
    assert [reading.gpu for reading in report.readings] == [card.gpu for card in cards]
    assert [reading.power_watts for reading in report.readings] == [card.power_watts for card in cards]
    assert [len(reading.mig) for reading in report.readings] == [len(card.mig) for card in cards]


def test_pcie_throughput_is_read_only_on_request(driver: Driver) -> None:
    driver.shows(l40s())
    (reading,) = driver.reader().read().readings
    assert reading.pcie_throughput_bytes_per_second is None


def test_pcie_throughput_is_not_read_in_a_blocking_call_where_gpm_has_it(driver: Driver) -> None:
    driver.shows(h100(), faults=[Fault(FaultKind.ERROR, "nvmlDeviceGetPcieThroughput", value=999)])
    reader = driver.reader(pcie_throughput=True)
    reports = [reader.read(), reader.read()]
    assert [report.errors for report in reports] == [{}, {}]
    throughput = [report.readings[0].pcie_throughput_bytes_per_second for report in reports]
    assert throughput == [None, h100().pcie_throughput_bytes_per_second]


def test_margin_is_zero_where_the_card_slows_down(driver: Driver) -> None:
    driver.shows(replace(h100(), temperature_margin_celsius=0, temperature_slowdown_offset_celsius=-2))
    assert "temp.margin -2\n" in driver.scenario.read_text()
    (reading,) = driver.reader().read().readings
    assert reading.temperature_margin_celsius == 0


def test_superchip_reports_the_energy_and_power_of_the_gpu_and_not_of_the_module(driver: Driver) -> None:
    """A GH200: the older energy counter includes the CPU."""
    card = replace(h100(), energy_millijoules=5_000, power_watts=300.5)
    driver.shows(card)
    lines = driver.scenario.read_text()
    driver.scenario.write_text(
        lines.replace("energy 5000\n", "energy 5000\nenergy.module 9000\npower.module 511000\n")
    )
    (reading,) = driver.reader().read().readings
    assert (reading.energy_millijoules, reading.power_watts) == (5_000, 300.5)


def test_power_is_read_where_only_one_of_the_two_ways_is_supported(driver: Driver) -> None:
    """Turing has no mean over a second; a GB10 may have only the value with a scope."""
    driver.shows(t4())
    assert driver.reader().read().readings[0].power_watts == t4().power_watts
    driver.shows(h100(), faults=[Fault(FaultKind.ERROR, "nvmlDeviceGetPowerUsage", value=3)])
    assert driver.reader().read().readings[0].power_watts == h100().power_watts


def test_changed_values_are_read_again(driver: Driver) -> None:
    driver.shows(h100())
    reader = driver.reader()
    reader.read()
    later = replace(h100(), power_watts=512.5, energy_millijoules=2**40, temperature_celsius=71)
    driver.shows(later)
    (reading,) = reader.read().readings
    assert (reading.power_watts, reading.energy_millijoules, reading.temperature_celsius) == (
        512.5,
        2**40,
        71,
    )
