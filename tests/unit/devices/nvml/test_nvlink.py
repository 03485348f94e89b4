"""NVLink: the counters of each generation, sums with every sample, single links once a minute."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from gputally.devices.nvml import nvlink
from gputally.devices.nvml.fields import ENTRY
from gputally.devices.nvml.library import Library
from gputally.model import Reading
from tests.support.nvml_cards import a100, b200, h100
from tests.unit.devices.nvml.driver import Driver
from tools.standin.scenario import Fault, FaultKind

UINT_MAX = 2**32 - 1
Entry = tuple[int, int]
Card = Callable[[], Reading]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """Every field id and scope that the driver was asked for."""
    entries: list[Entry] = []
    function = Library.function

    def recording(self: Library, *names: str) -> Any:
        real = function(self, *names)

        def call(handle: Any, count: int, buffer: Any) -> Any:
            entries.extend(ENTRY.unpack_from(buffer, place * ENTRY.size)[:2] for place in range(count))
            return real(handle, count, buffer)

        return call if names == ("nvmlDeviceGetFieldValues",) else real

    monkeypatch.setattr(Library, "function", recording)
    return entries


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(nvlink, "monotonic", lambda: clock.seconds)
    return clock


def ids(*names: str) -> set[int]:
    return {getattr(pynvml, f"NVML_FI_DEV_NVLINK_{name}") for name in names}


LEGACY = ids(
    *(
        f"{kind}_ERROR_COUNT_L{link}"
        for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY", "ECC_DATA")
        for link in range(12)
    )
)
DATA_LINK = ids("ERROR_DL_REPLAY", "ERROR_DL_RECOVERY", "ERROR_DL_CRC")
FIFTH = ids(
    "COUNT_MALFORMED_PACKET_ERRORS",
    "COUNT_BUFFER_OVERRUN_ERRORS",
    "COUNT_RCV_ERRORS",
    "COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "COUNT_XMIT_DISCARDS",
    "COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "COUNT_LINK_RECOVERY_EVENTS",
)


@pytest.mark.parametrize(("card", "own"), [(a100, LEGACY), (h100, DATA_LINK), (b200, FIFTH)])
def test_generation_is_asked_only_for_its_own_errors(
    driver: Driver, asked: list[Entry], card: Card, own: set[int]
) -> None:
    driver.shows(card())
    driver.reader().read()
    assert {id for id, _ in asked} & (LEGACY | DATA_LINK | FIFTH) == own


@pytest.mark.parametrize("card", [a100, h100, b200])
def test_sample_between_two_minutes_asks_for_two_sums_and_no_single_link(
    driver: Driver, asked: list[Entry], clock: Clock, card: Card
) -> None:
    driver.shows(card())
    reader = driver.reader()
    reader.read()
    asked.clear()
    clock.seconds += 59
    reader.read()
    sums = (
        ids("COUNT_XMIT_BYTES", "COUNT_RCV_BYTES")
        if card is b200
        else ids("THROUGHPUT_DATA_TX", "THROUGHPUT_DATA_RX")
    )
    assert {entry for entry in asked if entry[1]} == {(id, UINT_MAX) for id in sums}
    assert not {id for id, _ in asked} & (LEGACY | DATA_LINK | FIFTH | ids("GET_STATE"))


@pytest.mark.parametrize("card", [a100, h100, b200])
def test_errors_by_link_are_a_minute_old_at_most_and_bytes_are_new(
    driver: Driver, clock: Clock, card: Card
) -> None:
    before = card()
    after = replace(
        before,
        nvlink_errors={key: count + 1 for key, count in (before.nvlink_errors or {}).items()},
        nvlink_bytes={("tx",): 36 * 2**20, ("rx",): 36 * 2**21},
    )
    driver.shows(before)
    reader = driver.reader()
    reader.read()
    driver.shows(after)
    clock.seconds += 59
    (reading,) = reader.read().readings
    assert (reading.nvlink_errors, reading.nvlink_bytes) == (before.nvlink_errors, after.nvlink_bytes)
    clock.seconds += 1
    (reading,) = reader.read().readings
    assert reading.nvlink_errors == after.nvlink_errors


def test_links_that_could_not_be_read_are_read_with_the_next_sample(driver: Driver, clock: Clock) -> None:
    fault = Fault(FaultKind.ERROR, "nvmlDeviceGetNvLinkErrorCounter", value=999)
    driver.shows(h100(), faults=[fault])
    reader = driver.reader()
    assert reader.read().readings[0].nvlink_errors != h100().nvlink_errors
    driver.shows(h100())
    assert reader.read().readings[0].nvlink_errors == h100().nvlink_errors


def test_counters_appear_when_a_link_comes_up(driver: Driver, clock: Clock) -> None:
    card = a100()
    assert card.nvlink_up is not None
    assert card.nvlink_errors is not None
    down = {key: value for key, value in card.nvlink_errors.items() if key[0] != "3"}
    driver.shows(replace(card, nvlink_up={**card.nvlink_up, ("3",): 0.0}, nvlink_errors=down))
    reader = driver.reader()
    assert reader.read().readings[0].nvlink_errors == down
    driver.shows(card)
    clock.seconds += 60
    (reading,) = reader.read().readings
    assert (reading.nvlink_up, reading.nvlink_errors) == (card.nvlink_up, card.nvlink_errors)


def test_link_that_sleeps_is_up(driver: Driver) -> None:
    driver.shows(a100())
    lines = driver.scenario.read_text()
    assert "nvlink.2.state 1" in lines
    driver.scenario.write_text(lines.replace("nvlink.2.state 1", "nvlink.2.state 2"))
    (reading,) = driver.reader().read().readings
    assert (reading.nvlink_up or {})["2",] == 1.0


def test_single_links_are_asked_only_for_what_is_needed(driver: Driver, asked: list[Entry]) -> None:
    driver.shows(h100())
    (reading,) = driver.reader(skipped=frozenset({"nvlink_errors"})).read().readings
    assert reading.nvlink_errors is None
    assert (reading.nvlink_up, reading.nvlink_bytes) == (h100().nvlink_up, h100().nvlink_bytes)
    assert not {id for id, _ in asked} & (LEGACY | DATA_LINK | FIFTH)
