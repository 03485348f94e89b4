"""A GPU whose calls hang (a stalled GSP, for example) is late; the others are read."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pynvml
import pytest

from gputally.devices import Report
from gputally.devices.nvml import NvmlReader
from gputally.model import Reading
from tests.support.nvml_cards import h100, t4
from tests.unit.devices.nvml.driver import Driver
from tools.servers.waiting import wait_until
from tools.standin.scenario import Fault, FaultKind

HANGING = "nvmlDeviceGetPerformanceState"


def hang(*gpus: int, function: str = HANGING) -> list[Fault]:
    return [Fault(FaultKind.HANG, function=function, gpu=gpu) for gpu in gpus]


def threads() -> int:
    return sum(thread.name == "nvml-gpus" for thread in threading.enumerate())


def late(reader: NvmlReader) -> list[int]:
    """The GPUs that are late; all others are up."""
    readings = reader.read().readings
    assert all(reading.up is not reading.late for reading in readings)
    return [reading.gpu.index for reading in readings if reading.late]


def drawing(watts: float, cards: Sequence[Reading]) -> list[Reading]:
    return [replace(card, power_watts=watts) for card in cards]


@pytest.mark.parametrize("hung", [[3], [0, 7], list(range(7))])
def test_gpus_that_hang_are_late_and_the_others_are_fresh(driver: Driver, hung: list[int]) -> None:
    cards = [h100(index) for index in range(8)]
    driver.shows(*cards)
    reader = driver.reader(gpu_seconds=0.5)
    wait_until(lambda: late(reader) == [])

    driver.shows(*drawing(99.5, cards), faults=hang(*hung))
    wait_until(lambda: late(reader) == hung)
    for _ in range(5):
        readings = reader.read().readings
        assert [one.gpu.index for one in readings if one.power_watts == 99.5] == [
            index for index in range(8) if index not in hung
        ]
        assert [one.gpu for one in readings] == [card.gpu for card in cards], "a late GPU keeps its name"
    wait_until(lambda: late(reader) == hung and threads() == len(hung) + 1)

    driver.shows(*drawing(50.5, cards))
    wait_until(lambda: late(reader) == [])
    wait_until(lambda: [one.power_watts for one in reader.read().readings] == [50.5] * 8)
    wait_until(lambda: threads() == 1)


def test_every_late_sample_is_counted_and_logged_once(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gputally")
    driver.shows(t4(0), t4(1), faults=hang(1))
    reader = driver.reader(gpu_seconds=0.2)
    before = reader.read().errors.get(("gpus", "timeout"), 0)
    assert reader.read().errors["gpus", "timeout"] == before + 1
    driver.shows(t4(0), t4(1))
    wait_until(lambda: late(reader) == [])
    uuid = t4(1).gpu.uuid
    assert caplog.messages[-2:] == [f"GPU {uuid} does not respond within 0.2 s", f"GPU {uuid} is back"]


def test_gpu_that_hangs_before_its_identity_is_known(driver: Driver) -> None:
    driver.shows(t4(0), t4(1), faults=hang(1, function="nvmlDeviceGetName"))
    reader = driver.reader(gpu_seconds=0.2)
    wait_until(lambda: late(reader) == [1])
    assert reader.read().readings[1].gpu.uuid == ""
    driver.shows(t4(0), t4(1))
    wait_until(lambda: late(reader) == [])
    assert [one.gpu.uuid for one in reader.read().readings] == [t4(0).gpu.uuid, t4(1).gpu.uuid]


def test_reading_that_comes_late_is_reported_once_with_the_time_of_its_energy(driver: Driver) -> None:
    driver.shows(t4(0), t4(1))
    reader = driver.reader(gpu_seconds=0.2)
    reader.read()
    driver.shows(replace(t4(0), energy_millijoules=111), t4(1), faults=hang(0))
    wait_until(lambda: late(reader) == [0])
    hung_at_us = time.monotonic_ns() // 1000
    driver.shows(replace(t4(0), energy_millijoules=222), t4(1))
    wait_until(lambda: not reader._hangs)
    came_late, _ = reader.read().readings
    assert came_late.up
    assert came_late.energy_millijoules == 111
    assert came_late.read_at_us is not None
    assert came_late.read_at_us < hung_at_us
    fresh, _ = reader.read().readings
    assert fresh.energy_millijoules == 222
    assert fresh.read_at_us is not None
    assert fresh.read_at_us > hung_at_us


def test_driver_that_hangs_on_all_gpus_hangs_the_read(driver: Driver) -> None:
    driver.shows(t4(0), t4(1), faults=hang(0, 1))
    reader = driver.reader(gpu_seconds=0.05)
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(reader.read()), daemon=True)
    thread.start()
    wait_until(lambda: reader._hangs and threads() == 2)
    assert not reports
    driver.shows(t4(0), t4(1))
    thread.join()
    assert any(reading.up for reading in reports[0].readings)
    wait_until(lambda: not reader._hangs)


def test_xid_of_a_gpu_that_hangs_is_reported(driver: Driver) -> None:
    driver.shows(t4(0), t4(1))
    reader = driver.reader(gpu_seconds=0.2)
    wait_until(lambda: late(reader) == [])
    stalled = replace(t4(1), xid_errors={("119",): 1})
    driver.shows(t4(0), stalled, faults=hang(1))
    wait_until(lambda: late(reader) == [1])
    wait_until(lambda: ("119",) in (reader.read().readings[1].xid_errors or {}))
    driver.shows(t4(0), stalled)
    wait_until(lambda: late(reader) == [])


def test_driver_that_is_reloaded_while_a_gpu_hangs(driver: Driver) -> None:
    driver.shows(t4(0), t4(1))
    reader = driver.reader(gpu_seconds=0.2)
    wait_until(lambda: late(reader) == [])
    driver.shows(t4(0), t4(1), faults=hang(1))
    wait_until(lambda: late(reader) == [1])
    reader._release()
    wait_until(lambda: (late(reader), threads()) == ([1], 2))  # no second thread is sent to GPU 1
    assert reader.read().readings[1].gpu.uuid == t4(1).gpu.uuid
    driver.shows(t4(0), t4(1))
    wait_until(lambda: late(reader) == [])
    assert [one.power_watts for one in reader.read().readings] == [t4().power_watts] * 2
    pynvml.nvmlShutdown()  # type: ignore[no-untyped-call]  # the start that was abandoned


def test_driver_is_not_released_while_a_gpu_hangs(driver: Driver) -> None:
    driver.shows(t4(0), t4(1), faults=hang(1))
    reader = driver.reader(gpu_seconds=0.2, release_driver=True)
    reader.read()
    assert reader._library.running
    driver.shows(t4(0), t4(1))
    wait_until(lambda: late(reader) == [])
    assert not reader._library.running
