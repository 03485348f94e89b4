"""Processes that have ended, as the driver's accounting tells them: each of them once."""

import ctypes
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from gputally.devices.nvml import NvmlReader
from gputally.devices.nvml.ended_processes import PID, STATS
from gputally.model import AccountedProcess, Process, Reading
from tests.support.nvml_cards import GIB, a100_mig, t4
from tests.unit.devices.nvml.driver import Driver, let_the_standin_look
from tools.standin.scenario import Fault, FaultKind, Frame, replace_scenario, scenario_text

STARTED = time.time_ns() // 1000 - 3_600_000_000


def ended(pid: int, start: int = 0, **changes: Any) -> AccountedProcess:
    process = AccountedProcess(pid, STARTED + start, 2_500_000, 0.42, 3 * GIB)
    return replace(process, **changes)


def card(*accounted: AccountedProcess, **changes: Any) -> Reading:
    return replace(t4(), accounting_mode=True, accounted=accounted, **changes)


def shows(driver: Driver, *lines: str, **changes: Any) -> None:
    """A card whose accounting buffer has these entries, in NVML's own numbers."""
    text = scenario_text([Frame(0.0, (card(**changes),))])
    replace_scenario(driver.scenario, text + "".join(f"account {line}\n" for line in lines))
    let_the_standin_look()


def accounted(reader: NvmlReader) -> tuple[AccountedProcess, ...] | None:
    (reading,) = reader.read().readings
    return reading.accounted


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often the driver was asked for the statistics of each pid."""
    pids: Counter[int] = Counter()
    find = pynvml._nvmlGetFunctionPointer

    def found(name: str) -> Any:
        function = find(name)  # type: ignore[no-untyped-call]
        if name != "nvmlDeviceGetAccountingStats":
            return function

        def count_and_call(handle: Any, pid: int, stats: Any) -> Any:
            pids[pid] += 1
            return function(handle, pid, stats)

        return count_and_call

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", found)
    return pids


def test_struct_layouts_are_those_of_the_driver() -> None:
    assert PID.size == ctypes.sizeof(ctypes.c_uint)
    assert STATS.size == ctypes.sizeof(pynvml.c_nvmlAccountingStats_t)


def test_a_process_that_ended_since_the_last_sample_is_reported_once(driver: Driver) -> None:
    driver.shows(card(ended(1)))
    reader = driver.reader(accounting=True)
    assert accounted(reader) == (), "it had ended before the first sample"
    driver.shows(card(ended(1), ended(2), ended(3, 5, sm_ratio=0.0, ran_us=0, memory_peak_bytes=None)))
    assert accounted(reader) == (ended(2), ended(3, 5, sm_ratio=0.0, ran_us=0, memory_peak_bytes=None))
    assert accounted(reader) == ()


def test_a_running_process_is_reported_when_it_has_ended(driver: Driver) -> None:
    shows(driver, f"7 10 0 {GIB} 0 {STARTED} 1")
    reader = driver.reader(accounting=True)
    assert accounted(reader) == ()
    assert accounted(reader) == ()
    shows(driver, f"7 10 0 {GIB} 90 {STARTED} 0")
    assert accounted(reader) == (AccountedProcess(7, STARTED, 90_000, 0.1, GIB),)


def test_only_processes_that_may_have_ended_are_queried(driver: Driver, asked: Counter[int]) -> None:
    running = (Process(7, "compute", "python3", GIB),)
    shows(driver, f"5 1 0 0 9 {STARTED} 0", f"7 1 0 0 0 {STARTED} 1", processes=running)
    reader = driver.reader(accounting=True)
    accounted(reader)
    accounted(reader)
    assert asked == {5: 1}
    shows(driver, f"5 1 0 0 9 {STARTED} 0", f"7 1 0 0 9 {STARTED} 0", processes=())
    assert [process.pid for process in accounted(reader) or ()] == [7]
    accounted(reader)
    assert asked == {5: 1, 7: 1}


def test_a_reused_pid_is_another_process(driver: Driver) -> None:
    driver.shows(card(ended(1), ended(2)))
    reader = driver.reader(accounting=True)
    assert accounted(reader) == ()
    driver.shows(card(ended(2), ended(1, 77)))
    assert accounted(reader) == (ended(1, 77),)
    assert accounted(reader) == ()


def test_the_end_of_a_process_is_not_reported_again_while_its_pid_is_reused(driver: Driver) -> None:
    first, second = f"7 1 0 0 9 {STARTED} 0", f"7 2 0 0 0 {STARTED + 50} 1"
    shows(driver)
    reader = driver.reader(accounting=True)
    assert accounted(reader) == ()
    running = (Process(7, "compute", "python3", GIB),)
    shows(driver, first, second, processes=running)
    assert [process.started_us for process in accounted(reader) or ()] == [STARTED]
    assert accounted(reader) == ()
    shows(driver, first, second, processes=())
    assert accounted(reader) == ()


def test_processes_that_the_driver_has_dropped_are_forgotten(driver: Driver) -> None:
    driver.shows(card(ended(1), ended(2)))
    reader = driver.reader(accounting=True)
    accounted(reader)
    driver.shows(card(ended(2)))
    assert accounted(reader) == ()
    (slot,) = reader._slots
    assert slot.accounting is not None
    assert list(slot.accounting._reported.values()) == [{2: STARTED}]


def test_many_processes_are_all_read(driver: Driver) -> None:
    driver.shows(card())
    reader = driver.reader(accounting=True)
    accounted(reader)
    many = tuple(ended(pid, pid) for pid in range(1, 4001))
    driver.shows(card(*many))
    assert accounted(reader) == many


def test_a_process_that_ended_while_the_driver_was_released_is_reported(driver: Driver) -> None:
    driver.shows(card(ended(1)))
    reader = driver.reader(accounting=True, release_driver=True)
    assert accounted(reader) == ()
    driver.shows(card(ended(1), ended(2)))
    assert accounted(reader) == (ended(2),)


def test_processes_that_ended_since_accounting_was_enabled_are_reported(driver: Driver) -> None:
    driver.shows(t4())
    reader = driver.reader(accounting=True)
    assert accounted(reader) is None
    driver.shows(card(ended(1)))
    assert accounted(reader) == (ended(1),)


@pytest.mark.parametrize(
    "reading",
    [
        t4(),
        replace(t4(), accounting_mode=None),
        replace(a100_mig(), accounting_mode=True),
    ],
    ids=["off", "not supported", "MIG mode"],
)
def test_without_accounting_nothing_is_reported(driver: Driver, reading: Reading) -> None:
    driver.shows(reading)
    reader = driver.reader(accounting=True)
    report = reader.read()
    assert report.readings[0].accounted is None
    assert report.errors == {}


def test_accounting_is_read_only_on_request(driver: Driver, asked: Counter[int]) -> None:
    driver.shows(card(ended(1)))
    (reading,) = driver.reader().read().readings
    assert (reading.accounting_mode, reading.accounted) == (True, None)
    assert not asked


@pytest.mark.parametrize(
    "line",
    [
        f"5000000 1 0 0 9 {STARTED} 0",
        f"0 1 0 0 9 {STARTED} 0",
        f"7 101 0 0 9 {STARTED} 0",
        f"7 4294967295 0 0 9 {STARTED} 0",
        f"7 1 0 0 9 {STARTED + 7_200_000_000} 0",
        f"7 1 0 0 7200000 {STARTED} 0",
        f"7 1 0 0 18446744073709551615 {STARTED} 0",
        "7 1 0 0 9 0 0",
        "7 1 0 0 9 18446744073709551615 0",
    ],
    ids=[
        "no pid",
        "pid 0",
        "busier than possible",
        "utilisation not available",
        "from the future",
        "ran longer than there was time",
        "time not available",
        "from 1970",
        "start not available",
    ],
)
def test_impossible_values_are_dropped_and_counted(driver: Driver, line: str) -> None:
    shows(driver)
    reader = driver.reader(accounting=True)
    accounted(reader)
    shows(driver, line, f"9 1 0 0 9 {STARTED} 0")
    report = reader.read()
    assert [process.pid for process in report.readings[0].accounted or ()] == [9]
    assert report.errors == {("accounted", "implausible"): 1}


def test_a_failing_list_is_not_an_empty_list(driver: Driver) -> None:
    driver.shows(card())
    reader = driver.reader(accounting=True)
    accounted(reader)
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetAccountingPids", value=999)
    driver.shows(card(ended(1)), faults=[fault])
    report = reader.read()
    assert report.readings[0].accounted is None
    assert report.readings[0].power_watts == t4().power_watts
    assert report.errors == {("accounted", "unknown"): 1}
    driver.shows(card(ended(1)))
    assert accounted(reader) == (ended(1),)


def test_failing_statistics_are_queried_again(driver: Driver) -> None:
    driver.shows(card())
    reader = driver.reader(accounting=True)
    accounted(reader)
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetAccountingStats", value=999)
    driver.shows(card(ended(1)), faults=[fault])
    assert accounted(reader) == ()
    driver.shows(card(ended(1)))
    assert accounted(reader) == (ended(1),)


def test_processes_unreadable_at_the_first_sample_ended_before_it(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetAccountingStats", value=999)
    driver.shows(card(ended(1)), faults=[fault])
    reader = driver.reader(accounting=True)
    assert accounted(reader) == ()
    driver.shows(card(ended(1)))
    assert accounted(reader) == ()


def test_a_gpu_that_is_lost_during_the_query_is_down(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetAccountingPids", value=15)
    driver.shows(card(), faults=[fault])
    (reading,) = driver.reader(accounting=True).read().readings
    assert not reading.up


def test_processes_queried_when_the_gpu_was_lost_are_reported_after_its_return(driver: Driver) -> None:
    driver.shows(card())
    reader = driver.reader(accounting=True)
    accounted(reader)
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetAccountingStats", value=15)
    driver.shows(card(ended(1), ended(2)), faults=[fault])
    assert not reader.read().readings[0].up
    driver.shows(card(ended(1), ended(2)))
    assert accounted(reader) == (ended(1), ended(2))


def test_a_different_order_of_the_list_reports_nothing_new(driver: Driver) -> None:
    driver.shows(card(ended(1), ended(2)))
    reader = driver.reader(accounting=True)
    accounted(reader)
    driver.shows(card(ended(2), ended(1)))
    assert accounted(reader) == ()
