"""XID errors: counted as they come, kept whatever happens to the GPU or the driver."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pynvml
import pytest

from gputally.devices.nvml import xid
from gputally.model import Reading, Unavailable
from tests.support.nvml_cards import a100, t4
from tests.unit.devices.nvml.driver import Driver
from tools.servers.waiting import wait_until
from tools.standin.scenario import Fault, FaultKind, Frame, environment, held_file, write_scenario


def with_xids(reading: Reading, **counts: int) -> Reading:
    return replace(reading, xid_errors={(code.removeprefix("xid"),): count for code, count in counts.items()})


def test_xids_are_counted_for_their_gpu(driver: Driver) -> None:
    driver.shows(with_xids(t4(0)), with_xids(a100(1)))
    reader = driver.reader()
    assert [reading.xid_errors for reading in reader.read().readings] == [{}, {}]
    before = time.time()
    driver.shows(with_xids(t4(0)), with_xids(a100(1), xid79=1))
    wait_until(lambda: reader.read().readings[1].xid_errors == {("79",): 1})
    driver.shows(with_xids(t4(0)), with_xids(a100(1), xid79=3, xid31=1))
    wait_until(lambda: reader.read().readings[1].xid_errors == {("79",): 3, ("31",): 1})
    first, second = reader.read().readings
    assert first.xid_errors == {}
    moments = second.xid_last_timestamp_seconds or {}
    assert all(before <= moment <= time.time() for moment in moments.values())
    assert moments.keys() == {("79",), ("31",)}


def test_xid_counts_survive_a_driver_reload(driver: Driver) -> None:
    driver.shows(with_xids(t4(), xid13=2))
    reader = driver.reader()
    wait_until(lambda: reader.read().readings[0].xid_errors == {("13",): 2})
    driver.shows(with_xids(t4(), xid13=2), faults=[Fault(FaultKind.DRIVER_GONE)])
    with pytest.raises(Unavailable):
        reader.read()
    driver.shows(with_xids(t4(), xid13=2))
    assert reader.read().readings[0].xid_errors == {("13",): 2}
    driver.shows(with_xids(t4(), xid13=3))
    wait_until(lambda: reader.read().readings[0].xid_errors == {("13",): 3})


def test_the_xid_with_which_a_gpu_was_lost_is_reported(driver: Driver) -> None:
    driver.shows(with_xids(t4(), xid79=1))
    reader = driver.reader()
    wait_until(lambda: reader.read().readings[0].xid_errors == {("79",): 1})
    driver.shows(Reading(gpu=t4().gpu, up=False))
    (reading,) = reader.read().readings
    assert not reading.up
    assert reading.xid_errors == {("79",): 1}
    assert reading.power_watts is None


def test_a_card_without_events_has_no_xids(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetSupportedEventTypes", value=3)
    driver.shows(t4(), faults=[fault])
    report = driver.reader().read()
    assert report.readings[0].xid_errors is None
    assert report.errors == {}


def test_events_of_a_gpu_added_later_are_counted(driver: Driver) -> None:
    driver.shows(with_xids(t4(0)))
    reader = driver.reader()
    reader.read()
    driver.shows(with_xids(t4(0)), with_xids(t4(1)))
    reader.read()
    driver.shows(with_xids(t4(0)), with_xids(t4(1), xid48=1))
    wait_until(lambda: reader.read().readings[1].xid_errors == {("48",): 1})


def test_listening_starts_again_after_it_ended(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlEventSetWait_v2", value=3)
    driver.shows(with_xids(t4()), faults=[fault])
    reader = driver.reader()
    assert reader.read().readings[0].xid_errors == {}
    wait_until(lambda: all(thread.name != "nvml-events" for thread in threading.enumerate()))
    driver.shows(with_xids(t4()))
    reader.read()
    driver.shows(with_xids(t4(), xid43=1))
    wait_until(lambda: reader.read().readings[0].xid_errors == {("43",): 1})


def test_a_failing_wait_does_not_loop_without_pause(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, waits = [], []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout == xid._PAUSE_SECONDS:
                pauses.append(timeout)
            return super().wait(timeout)

    find: Callable[[str], Callable[..., object]] = pynvml._nvmlGetFunctionPointer

    def counting(name: str) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            waits.append(arguments)
            return find(name)(*arguments)

        return counted if name == "nvmlEventSetWait_v2" else find(name)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", counting)
    monkeypatch.setattr(threading, "Event", Event)
    monkeypatch.setattr(xid, "_PAUSE_SECONDS", 0.07)
    driver.shows(t4(), faults=[Fault(FaultKind.ERROR, function="nvmlEventSetWait_v2", value=15)])
    reader = driver.reader()
    reader.read()
    wait_until(lambda: len(pauses) >= 3)
    reader.close()
    assert len(waits) <= len(pauses) + 1


def test_a_released_driver_is_not_open_between_reads(driver: Driver) -> None:
    driver.shows(*(replace(card, persistence_mode=True) for card in (t4(0), a100(1))))
    reader = driver.reader(release_driver=True)
    first = reader.read().readings
    assert not is_held(driver)
    second = reader.read().readings
    assert [reading.xid_errors for reading in second] == [None, None]
    assert [reading.power_watts for reading in first] == [reading.power_watts for reading in second]
    kept = driver.reader()
    kept.read()
    assert is_held(driver)
    kept.close()
    assert not is_held(driver)


def test_driver_is_not_released_while_persistence_mode_is_off(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.shows(replace(t4(0), persistence_mode=True), replace(t4(1), persistence_mode=False))
    reader = driver.reader(release_driver=True)
    for _ in range(3):
        reader.read()
        assert is_held(driver)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "--release-driver" in caplog.text
    driver.shows(replace(t4(0), persistence_mode=True), replace(t4(1), persistence_mode=True))
    reader.read()
    assert not is_held(driver)


def is_held(driver: Driver) -> bool:
    """As the kernel module sees it: a process has the driver open."""
    held = held_file(driver.scenario)
    found = subprocess.run(
        [sys.executable, "-c", _HOLDERS, str(held)], check=True, capture_output=True, text=True
    )
    return bool(found.stdout.strip())


_HOLDERS = """
import os, pathlib, sys
for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
    try:
        if os.readlink(link) == sys.argv[1]:
            print(link)
    except OSError:
        pass
"""

_HANGING = """
import threading
import pynvml
from gputally.devices.nvml import NvmlReader
waiting, find = threading.Event(), pynvml._nvmlGetFunctionPointer
def find_and_note(name):
    def wait(*arguments):
        waiting.set()
        return find(name)(*arguments)
    return wait if name == "nvmlEventSetWait_v2" else find(name)
pynvml._nvmlGetFunctionPointer = find_and_note
reader = NvmlReader()
print(len(reader.read().readings), flush=True)
waiting.wait()
reader.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize("function", ["nvmlEventSetWait_v2", "nvmlShutdown"])
def test_close_returns_while_the_driver_hangs(driver: Driver, function: str) -> None:
    write_scenario(driver.scenario, [Frame(0.0, (t4(),))], faults=[Fault(FaultKind.HANG, function=function)])
    done = subprocess.run(
        [sys.executable, "-c", _HANGING],
        env={"PYTHONPATH": ":".join(sys.path), **environment(driver.scenario)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.split() == ["1", "closed"], done.stderr


def test_lost_gpu_does_not_hide_the_xids_of_the_others(driver: Driver) -> None:
    driver.shows(with_xids(t4(0)), with_xids(t4(1)))
    reader = driver.reader()
    reader.read()
    gone = Fault(FaultKind.LOST, gpu=0)
    driver.shows(with_xids(t4(0)), with_xids(t4(1)), faults=[gone])
    wait_until(lambda: [reading.up for reading in reader.read().readings] == [False, True])
    for count in (1, 2):
        driver.shows(with_xids(t4(0)), with_xids(t4(1), xid48=count), faults=[gone])
        wait_until(lambda count=count: reader.read().readings[1].xid_errors == {("48",): count})  # type: ignore[misc]


def test_gpu_that_is_back_is_listened_to_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xid, "_PAUSE_SECONDS", 3600)
    driver.shows(with_xids(t4()))
    reader = driver.reader()
    reader.read()
    driver.shows(with_xids(t4()), faults=[Fault(FaultKind.LOST, gpu=0)])
    wait_until(lambda: not reader.read().readings[0].up)
    wait_until(lambda: all(watch._lost for watch in reader._watches.values()))
    driver.shows(with_xids(t4()))
    wait_until(lambda: reader.read().readings[0].up)
    driver.shows(with_xids(t4(), xid43=1))
    wait_until(lambda: reader.read().readings[0].xid_errors == {("43",): 1})
    assert sum(thread.name == "nvml-events" for thread in threading.enumerate()) == 1
