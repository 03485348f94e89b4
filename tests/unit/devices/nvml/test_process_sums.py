"""SM time from the running sums of the driver's accounting: not rounded, and for intervals of any length."""

import ctypes
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from gputally.devices import Report
from gputally.devices.nvml import NvmlReader
from gputally.devices.nvml.process_sums import SUMS
from gputally.model import Process, ProcessSample
from tests.support.nvml_cards import SAMPLED_AT_US, t4
from tests.support.sample_ring import IDLE, PERIOD_US, Ring, Taken
from tests.unit.devices.nvml.driver import Clock, Driver
from tools.standin.scenario import Fault, FaultKind

SECOND = 1_000_000
GPU = "nvmlDeviceGetAccountingStats_v2"


class Host:
    """A GPU in accounting mode with a history of samples, of which the reader sees what is over."""

    def __init__(self, driver: Driver, clock: Clock, history: list[Taken]) -> None:
        self._driver, self._clock = driver, clock
        self._ring = Ring(history, SAMPLED_AT_US)
        self.accounts: dict[int, str] = {}
        self.listed: list[int] = []
        self.faults: list[Fault] = []
        self.mode = True
        self.reader: NvmlReader = driver.reader()

    def start(self, pid: int, started_us: int = SAMPLED_AT_US - SECOND) -> None:
        self.listed.append(pid)
        self.accounts[pid] = f"account {pid} 0 0 0 0 {started_us} 1\n"

    def end(self, pid: int, started_us: int, ran_us: int) -> None:
        self.listed.remove(pid)
        self.accounts[pid] = f"account {pid} 0 0 0 {ran_us // 1000} {started_us} 0\n"

    def read(self, after_us: int = 0) -> Report:
        self._clock.now_us += after_us
        processes = tuple(Process(pid, "compute") for pid in self.listed)
        card = replace(t4(), accounting_mode=self.mode, processes=processes, process_samples=())
        lines = self._ring.lines(self._clock.now_us)
        self._driver.says(card, "".join([*self.accounts.values(), lines]), faults=self.faults)
        return self.reader.read()

    def samples(self, after_us: int = 0) -> tuple[ProcessSample, ...]:
        return self.read(after_us).readings[0].process_samples or ()


def test_layout_is_the_drivers() -> None:
    assert SUMS.size == ctypes.sizeof(pynvml.c_nvmlAccountingStats_v2_t)


MIX = [Taken(1, 37, 11), Taken(2, 1, 3), *[IDLE] * 8]


@pytest.mark.parametrize("interval_us", [1 * SECOND, 5 * SECOND, 30 * SECOND])
def test_sums_are_not_rounded_and_no_interval_is_too_long(
    driver: Driver, clock: Clock, interval_us: int
) -> None:
    host = Host(driver, clock, MIX * 100)
    for pid in (1, 2):
        host.start(pid)
    host.read(5 * SECOND)
    busy: defaultdict[int, float] = defaultdict(float)
    memory: defaultdict[int, float] = defaultdict(float)
    for _ in range(90 * SECOND // interval_us):
        for sample in host.samples(interval_us):
            busy[sample.pid] += sample.sm_ratio * sample.covers_us
            memory[sample.pid] += (sample.memory_ratio or 0) * sample.covers_us
    assert busy == pytest.approx({1: 0.037 * 90 * SECOND, 2: 0.001 * 90 * SECOND}, rel=0.05)
    assert memory == pytest.approx({1: 0.011 * 90 * SECOND, 2: 0.003 * 90 * SECOND}, rel=0.05)


def test_the_mean_of_an_interval_is_the_difference_of_sums(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [Taken(1, 100, 50)] * 6 + [Taken(1, 33, 7), IDLE, IDLE] * 200)
    host.start(1)
    host.read(6 * PERIOD_US)
    (sample,) = host.samples(30 * PERIOD_US)
    assert sample.sm_ratio == pytest.approx(0.11)
    assert sample.memory_ratio == pytest.approx(0.07 / 3)
    assert (sample.pid, sample.covers_us) == (1, 30 * PERIOD_US)


def test_a_process_that_does_nothing_has_no_sample(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [Taken(1, 50)] * 100)
    host.start(1)
    host.start(2)
    host.read(SECOND)
    assert [sample.pid for sample in host.samples(5 * SECOND)] == [1]


def test_a_new_process_is_charged_since_it_started(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [IDLE] * 30 + [Taken(1, 80)] * 70)
    host.read(4 * SECOND)
    host.start(1, SAMPLED_AT_US + 30 * PERIOD_US)
    (sample,) = host.samples(4 * SECOND)
    assert sample.sm_ratio == pytest.approx(0.8)
    assert sample.covers_us == 8 * SECOND - 30 * PERIOD_US


def test_a_process_that_ended_is_charged_until_its_end(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [Taken(1, 80)] * 40 + [IDLE] * 60)
    host.start(1, SAMPLED_AT_US)
    host.read(4 * SECOND)
    host.end(1, SAMPLED_AT_US, 6_500_000)
    (sample,) = host.samples(4 * SECOND)
    assert sample.sm_ratio == pytest.approx(0.8)
    assert (sample.pid, sample.covers_us) == (1, 2_500_000)
    assert host.samples(4 * SECOND) == ()


def test_a_process_without_sums_has_the_mean_of_the_drivers_samples(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [Taken(1, 80), Taken(2, 40)] * 100)
    host.start(1)
    host.read(SECOND)
    by_pid = {sample.pid: sample for sample in host.samples(5 * SECOND)}
    assert by_pid[1].sm_ratio == pytest.approx(0.4, abs=0.02)
    assert by_pid[2].sm_ratio == pytest.approx(0.2, abs=0.02)
    assert {sample.covers_us for sample in by_pid.values()} == {5 * SECOND}


def test_a_pid_that_is_used_again_has_the_mean_of_the_drivers_samples(driver: Driver, clock: Clock) -> None:
    """The driver returns the ended process until the new one has ended, too."""
    host = Host(driver, clock, [Taken(1, 60)] * 200)
    host.start(1, SAMPLED_AT_US)
    host.read(4 * SECOND)
    host.end(1, SAMPLED_AT_US, 4_500_000)
    ended = host.accounts[1]
    host.start(1, SAMPLED_AT_US + 5 * SECOND)
    host.accounts[1] = ended + host.accounts[1]
    host.read(4 * SECOND)
    (sample,) = host.samples(4 * SECOND)
    assert (sample.sm_ratio, sample.covers_us) == (0.6, 4 * SECOND)


@pytest.mark.parametrize("code", [3, 13], ids=["not supported", "function not found"])
def test_a_driver_without_sums_is_asked_for_its_samples(driver: Driver, clock: Clock, code: int) -> None:
    host = Host(driver, clock, [Taken(1, 60)] * 100)
    host.faults = [Fault(FaultKind.ERROR, function=GPU, value=code)]
    host.start(1)
    host.read(SECOND)
    report = host.read(5 * SECOND)
    assert report.readings[0].process_samples == (
        ProcessSample(1, SAMPLED_AT_US + 35 * PERIOD_US, 0.6, 0.0, 0.0, 0.0, 5 * SECOND),
    )
    assert report.errors == {}


def test_a_library_without_the_function_is_asked_for_its_samples(
    driver: Driver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = pynvml._nvmlGetFunctionPointer

    def found(name: str) -> Any:
        if name == GPU:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)  # type: ignore[no-untyped-call]
        return find(name)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", found)
    host = Host(driver, clock, [Taken(1, 60)] * 100)
    host.start(1)
    host.read(SECOND)
    (sample,) = host.samples(5 * SECOND)
    assert (sample.sm_ratio, sample.covers_us) == (0.6, 5 * SECOND)


def test_sums_that_fail_once_are_made_up_for_by_the_next_ones(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [Taken(1, 60)] * 100)
    host.start(1)
    host.read(SECOND)
    host.faults = [Fault(FaultKind.ERROR, function=GPU, value=999)]
    report = host.read(5 * SECOND)
    assert [sample.covers_us for sample in report.readings[0].process_samples or ()] == [0]
    assert report.errors == {("process_samples", "unknown"): 1}
    host.faults = []
    (sample,) = host.samples(5 * SECOND)
    assert sample.sm_ratio == pytest.approx(0.6)
    assert sample.covers_us == 10 * SECOND


def test_until_the_driver_has_added_samples_a_process_is_shown_and_not_charged(
    driver: Driver, clock: Clock
) -> None:
    host = Host(driver, clock, [Taken(1, 60)] * 100)
    host.start(1)
    host.read(6 * PERIOD_US)
    assert sum(sample.covers_us for sample in host.samples(PERIOD_US // 2)) == 0
    (sample,) = host.samples(5 * SECOND)
    assert sample.sm_ratio == pytest.approx(0.6)
    assert sample.covers_us == 5 * SECOND + PERIOD_US // 2


def test_while_accounting_is_off_the_sums_are_not_read(driver: Driver, clock: Clock) -> None:
    host = Host(driver, clock, [Taken(1, 60)] * 100)
    host.start(1)
    host.read(SECOND)
    host.mode = False
    (sample,) = host.samples(5 * SECOND)
    assert (sample.sm_ratio, sample.covers_us) == (0.6, 5 * SECOND)
    host.mode = True
    (sample,) = host.samples(5 * SECOND)
    assert (sample.sm_ratio, sample.covers_us) == (0.6, 5 * SECOND), "there is nothing to compare with yet"
    (sample,) = host.samples(5 * SECOND)
    assert sample.sm_ratio == pytest.approx(0.6)
    assert sample.covers_us == 5 * SECOND


def test_more_than_possible_is_dropped_and_counted(
    driver: Driver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(driver, clock, [Taken(1, 60)] * 100)
    host.start(1)
    host.read(SECOND)
    find = pynvml._nvmlGetFunctionPointer

    def found(name: str) -> Any:
        function = find(name)  # type: ignore[no-untyped-call]
        if name != GPU:
            return function

        def add(handle: Any, stats: Any) -> Any:
            code = function(handle, stats)
            values = list(SUMS.unpack(stats))
            values[6] += 10_000_000
            SUMS.pack_into(stats, 0, *values)
            return code

        return add

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", found)
    report = host.read(5 * SECOND)
    assert [sample.sm_ratio for sample in report.readings[0].process_samples or ()] == [0.6]
    assert report.errors == {("process_samples", "implausible"): 1}
