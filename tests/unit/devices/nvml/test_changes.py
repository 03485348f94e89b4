"""GPUs and drivers change while the reader runs."""

import _ctypes
from dataclasses import replace

import pytest

from gputally.devices.nvml.library import Library
from gputally.model import Gpu, Reading, Unavailable
from tests.support.nvml_cards import GIB, a100, a100_mig, h100, h100_mig, t4, with_mig
from tests.unit.devices.nvml.driver import Driver
from tools.standin.scenario import Fault, FaultKind

INVALID_ARGUMENT, UNKNOWN, GPU_IS_LOST, RESET_REQUIRED = 2, 999, 15, 16


def lost(reading: Reading) -> Reading:
    return Reading(gpu=reading.gpu, up=False)


def quiet(reading: Reading) -> Reading:
    """Without XIDs, which come when they come."""
    return replace(reading, xid_errors={})


def test_a_host_without_a_gpu_is_not_an_error(driver: Driver) -> None:
    driver.shows()
    report = driver.reader().read()
    assert (report.readings, report.errors) == ((), {})


def test_a_lost_gpu_is_down_and_the_others_are_read(driver: Driver) -> None:
    cards = [quiet(h100(index)) for index in range(3)]
    driver.shows(*cards)
    reader = driver.reader()
    reader.read()

    driver.shows(cards[0], lost(cards[1]), cards[2])
    readings = reader.read().readings
    assert readings[1] == Reading(gpu=cards[1].gpu, up=False)
    assert [reading.up for reading in readings] == [True, False, True]
    assert readings[2].power_watts == cards[2].power_watts

    driver.shows(cards[0], replace(cards[1], power_watts=99.5), cards[2])
    readings = reader.read().readings
    assert [reading.up for reading in readings] == [True, True, True]
    assert readings[1].power_watts == 99.5


def test_a_gpu_missing_from_the_middle_hides_no_other_and_comes_back(driver: Driver) -> None:
    cards = [quiet(t4(index)) for index in range(4)]
    uuids = [card.gpu.uuid for card in cards]
    driver.shows(*cards)
    reader = driver.reader()
    reader.read()

    driver.shows(*cards, faults=[Fault(FaultKind.ABSENT, gpu=1)])
    up = {reading.gpu.uuid: reading.up for reading in reader.read().readings}
    assert up == {**dict.fromkeys(uuids, True), uuids[1]: False}

    driver.shows(*cards)
    assert [(reading.gpu.uuid, reading.up) for reading in reader.read().readings] == [
        (uuid, True) for uuid in uuids
    ]


def test_loss_and_return_are_logged_once_each(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="gputally")
    driver.shows(t4(0), t4(1))
    reader = driver.reader()
    reader.read()
    driver.shows(t4(0), lost(t4(1)))
    reader.read()
    reader.read()
    driver.shows(t4(0), t4(1))
    reader.read()
    uuid = t4(1).gpu.uuid
    assert caplog.messages == [f"GPU {uuid} is lost", f"GPU {uuid} is back"]


def test_gpu_that_needs_a_reset_is_down(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetPowerUsage", gpu=0, value=RESET_REQUIRED)
    driver.shows(t4(0), t4(1), faults=[fault])
    report = driver.reader().read()
    assert [reading.up for reading in report.readings] == [False, True]
    assert report.errors == {}


def test_a_gpu_lost_before_its_identity_was_read_is_counted_as_down(driver: Driver) -> None:
    fault = Fault(FaultKind.LOST, gpu=0)
    driver.shows(t4(0), t4(1), faults=[fault])
    readings = driver.reader().read().readings
    assert readings[0] == Reading(gpu=Gpu(uuid="", index=0, vendor="nvidia", model=""), up=False)
    assert readings[1].up


def test_a_lost_gpu_keeps_its_identity_when_the_driver_is_initialised_again(driver: Driver) -> None:
    cards = [quiet(t4(0)), quiet(t4(1))]
    driver.shows(*cards)
    reader = driver.reader()
    reader.read()
    reader.close()
    driver.shows(lost(cards[0]), cards[1])
    readings = reader.read().readings
    assert [(reading.gpu.uuid, reading.up) for reading in readings] == [
        (cards[0].gpu.uuid, False),
        (cards[1].gpu.uuid, True),
    ]


def test_a_gpu_that_is_no_longer_listed_is_down(driver: Driver) -> None:
    cards = [quiet(h100(index)) for index in range(3)]
    driver.shows(*cards)
    reader = driver.reader()
    reader.read()

    driver.shows(cards[0], cards[2])
    by_uuid = {reading.gpu.uuid: reading for reading in reader.read().readings}
    assert by_uuid[cards[1].gpu.uuid] == Reading(gpu=cards[1].gpu, up=False)
    moved = by_uuid[cards[2].gpu.uuid]
    assert (moved.up, moved.gpu.index) == (True, 1)

    driver.shows(*cards)
    readings = reader.read().readings
    assert [(reading.gpu.index, reading.up) for reading in readings] == [(0, True), (1, True), (2, True)]
    assert [reading.gpu.uuid for reading in readings] == [card.gpu.uuid for card in cards]


def test_an_added_gpu_is_read(driver: Driver) -> None:
    driver.shows(t4(0))
    reader = driver.reader()
    assert len(reader.read().readings) == 1
    driver.shows(t4(0), t4(1))
    assert [reading.gpu.index for reading in reader.read().readings] == [0, 1]


def test_another_gpu_at_the_same_index_is_another_gpu(driver: Driver) -> None:
    driver.shows(t4(0))
    reader = driver.reader()
    reader.read()
    newcomer = replace(t4(0), gpu=replace(a100(5).gpu, index=0))
    driver.shows(newcomer)
    readings = reader.read().readings
    assert [(reading.gpu.uuid, reading.up) for reading in readings] == [
        (newcomer.gpu.uuid, True),
        (t4(0).gpu.uuid, False),
    ]


def test_the_library_is_initialised_again_while_a_gpu_is_lost(driver: Driver) -> None:
    driver.shows(t4(0), lost(t4(1)))
    reader = driver.reader(retry_lost_seconds=0)
    for _ in range(3):
        assert [reading.up for reading in reader.read().readings] == [True, False]


def test_a_driver_reload_is_handled_within_one_read(driver: Driver) -> None:
    driver.shows(h100())
    reader = driver.reader()
    reader.read()
    driver.shows(h100(), faults=[Fault(FaultKind.DRIVER_GONE)])
    with pytest.raises(Unavailable) as caught:
        reader.read()
    assert "not loaded" in caught.value.reason
    assert "modprobe nvidia" in caught.value.fix

    upgraded = replace(h100(), gpu=replace(h100().gpu, driver_version="590.10.01"), power_watts=77.5)
    driver.shows(upgraded)
    (reading,) = reader.read().readings
    assert reading.up
    assert reading.gpu.driver_version == "590.10.01"
    assert reading.power_watts == 77.5
    assert reading.sm_active_ratio is None  # activity is between two samples, and the first is gone
    (reading,) = reader.read().readings
    assert reading.sm_active_ratio == h100().sm_active_ratio


def test_a_version_mismatch_of_driver_and_library_is_explained(driver: Driver) -> None:
    driver.shows(t4(), faults=[Fault(FaultKind.VERSION_MISMATCH)])
    reader = driver.reader()
    with pytest.raises(Unavailable) as caught:
        reader.read()
    assert "different versions" in caught.value.reason
    driver.shows(t4())
    assert reader.read().readings[0].up


@pytest.mark.parametrize(("hangs", "unloaded"), [(False, 1), (True, 0)])
def test_an_upgraded_driver_is_loaded_again_unless_a_thread_hangs_in_the_old_one(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, hangs: bool, unloaded: int
) -> None:
    closed: list[int] = []
    monkeypatch.setattr(_ctypes, "dlclose", closed.append)
    driver.shows(t4())
    library = Library()
    library.start()
    library.stop()
    if hangs:
        library.abandon()
    driver.shows(t4(), faults=[Fault(FaultKind.VERSION_MISMATCH)])
    with pytest.raises(Unavailable):
        library.start()
    assert len(closed) == unloaded


def test_mig_mode_switched_on_and_off(driver: Driver) -> None:
    driver.shows(quiet(h100()))
    reader = driver.reader()
    (reading,) = reader.read().readings
    assert (reading.mig_mode, reading.mig, reading.gpu_utilization_ratio) == (False, (), 0.37)

    driver.shows(quiet(h100_mig()))
    (reading,) = reader.read().readings
    assert reading.mig_mode
    assert reading.gpu_utilization_ratio is None
    assert [mig.instance for mig in reading.mig] == [mig.instance for mig in h100_mig().mig]

    driver.shows(quiet(h100()))
    (reading,) = reader.read().readings
    assert (reading.mig_mode, reading.mig, reading.gpu_utilization_ratio) == (False, (), 0.37)


def test_mig_devices_reconfigured(driver: Driver) -> None:
    before = quiet(h100_mig())
    driver.shows(before)
    reader = driver.reader()
    reader.read()
    (reading,) = reader.read().readings
    assert [mig.sm_active_ratio for mig in reading.mig] == [mig.sm_active_ratio for mig in before.mig]

    after = with_mig(quiet(h100()), {"7g.80gb": 80 * GIB}, sm_active_ratio=0.25)
    (whole,) = after.mig
    whole = replace(whole, instance=replace(whole.instance, uuid="MIG-new", gpu_instance_id=0))
    after = replace(after, mig=(whole,), processes=())
    driver.shows(after)
    (reading,) = reader.read().readings
    assert [mig.instance for mig in reading.mig] == [whole.instance]
    assert reading.mig[0].sm_active_ratio is None
    (reading,) = reader.read().readings
    assert reading.mig[0].sm_active_ratio == 0.25


def test_a_mig_device_is_destroyed_between_two_reads(driver: Driver) -> None:
    before = a100_mig()
    driver.shows(before)
    reader = driver.reader()
    reader.read()
    driver.shows(replace(before, mig=before.mig[:1]))
    (reading,) = reader.read().readings
    assert [mig.instance.profile for mig in reading.mig] == ["1g.5gb"]


def test_an_invalid_handle_is_renewed_in_the_same_read(driver: Driver) -> None:
    driver.shows(t4(0), t4(1))
    reader = driver.reader()
    reader.read()
    driver.shows(t4(1), t4(0))
    readings = reader.read().readings
    assert {(reading.gpu.index, reading.gpu.uuid, reading.up) for reading in readings} == {
        (0, t4(1).gpu.uuid, True),
        (1, t4(0).gpu.uuid, True),
    }


def test_a_gpu_without_a_readable_name_does_not_hide_the_others(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetUUID", gpu=0, value=UNKNOWN)
    driver.shows(t4(0), t4(1), faults=[fault])
    report = driver.reader().read()
    assert [reading.up for reading in report.readings] == [False, True]
    assert report.errors == {("uuid", "unknown"): 1}
