"""What the driver says is what the reader reads, field by field, on every kind of card."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from gputally.devices.nvml.fields import complete_links
from gputally.devices.nvml.library import Library, Query
from gputally.metrics.catalog import GPU_METRICS
from gputally.model import Activity, MigReading, Reading
from tests.support.nvml_cards import CARDS, a100, h100, l40s
from tests.unit.devices.nvml.driver import Driver
from tools.rendering.metrics_page import readers_of
from tools.servers.waiting import wait_until

ACTIVITY_FIELDS = [field.name for field in dataclasses.fields(Activity)]
FROM_THE_CLOCK = {"xid_last_timestamp_seconds", "read_at_us"}  # the moment at which the test ran


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


def test_every_field_of_the_model_is_told_by_some_card() -> None:
    only_amd = {metric.field for metric in GPU_METRICS if "nvml" not in readers_of(metric)} | {
        "process_samples"
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
        assert untold <= FROM_THE_CLOCK | only_amd


@pytest.mark.parametrize("kind", CARDS)
def test_reading_equals_what_the_driver_says(driver: Driver, kind: str) -> None:
    expected = CARDS[kind]()
    driver.shows(expected)
    reader = driver.reader(
        pcie_throughput=expected.pcie_throughput_bytes_per_second is not None,
        accounting=expected.accounted is not None,
    )

    first = reader.read()
    (reading,) = first.readings
    assert first.errors == {}
    unfollowed = replace(
        without_activity(expected),
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


def test_many_cards_are_read_side_by_side(driver: Driver) -> None:
    cards = [card(index) for index, card in enumerate(CARDS.values())]
    driver.shows(*cards)
    report = driver.reader().read()
    assert [reading.gpu for reading in report.readings] == [card.gpu for card in cards]
    assert [reading.power_watts for reading in report.readings] == [card.power_watts for card in cards]
    assert [len(reading.mig) for reading in report.readings] == [len(card.mig) for card in cards]


def test_pcie_throughput_is_read_only_when_asked_for(driver: Driver) -> None:
    driver.shows(l40s())
    (reading,) = driver.reader().read().readings
    assert reading.pcie_throughput_bytes_per_second is None


def test_values_that_change_are_read_anew(driver: Driver) -> None:
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


def test_nvlink_counters_appear_when_a_link_comes_up(driver: Driver) -> None:
    card = a100()
    assert card.nvlink_up is not None
    assert card.nvlink_errors is not None
    down = {key: value for key, value in card.nvlink_errors.items() if key[0] != "3"}
    driver.shows(replace(card, nvlink_up={**card.nvlink_up, ("3",): 0.0}, nvlink_errors=down))
    reader = driver.reader()
    assert reader.read().readings[0].nvlink_errors == down
    driver.shows(card)
    reader.read()
    (reading,) = reader.read().readings
    assert reading.nvlink_errors == card.nvlink_errors
    assert reading.nvlink_up == card.nvlink_up


def test_link_that_sleeps_is_up() -> None:
    values: dict[str, Any] = {"nvlink_up": {("0",): 0, ("1",): 1, ("2",): 2}}
    complete_links(Query(Library(), None), 3, values)
    assert values["nvlink_up"] == {("0",): 0.0, ("1",): 1.0, ("2",): 1.0}
