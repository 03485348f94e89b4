"""Process lists, names and samples: also when the driver counts wrong."""

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.nvml import NvmlReader
from gputally.devices.nvml.process_lists import PROCESS, SAMPLE, Entries, short_name
from gputally.model import Process, ProcessSample, Reading
from tests.support.nvml_cards import GIB, SAMPLED_AT_US, t4
from tests.support.sample_ring import IDLE, Ring, Taken
from tests.unit.devices.nvml.driver import Clock, Driver
from tools.standin.scenario import Fault, FaultKind

ABSURD = 4_000_000_000


def garbage(function: str, value: int) -> Fault:
    return Fault(FaultKind.GARBAGE, function=function, value=value)


def test_struct_layouts_are_those_of_the_driver() -> None:
    assert PROCESS.size == ctypes.sizeof(pynvml.c_nvmlProcessInfo_v3_t)
    assert SAMPLE.size == ctypes.sizeof(pynvml.c_nvmlProcessUtilizationSample_t)


def test_entries_that_the_driver_counts_but_does_not_fill_are_ignored() -> None:
    entries = Entries(PROCESS)

    def call(filled: int, counted: int) -> Callable[[Any], int]:
        def fill(count: Any) -> int:
            for place in range(filled):
                PROCESS.pack_into(entries.buffer, place * PROCESS.size, 100 + place, 1, 2, 3)
            count._obj.value = counted
            return 0

        return fill

    assert entries.fill(call(2, 2)) == (0, [(100, 1, 2, 3), (101, 1, 2, 3)])
    assert entries.fill(call(1, 2)) == (0, [(100, 1, 2, 3), (0, 0, 0, 0)])
    assert entries.fill(call(0, 65)) == (0, None)


def test_many_processes_are_all_read(driver: Driver) -> None:
    processes = tuple(
        Process(pid=1000 + place, kind="compute", name=f"worker{place}", memory_used_bytes=place)
        for place in range(300)
    )
    driver.shows(replace(t4(), processes=processes))
    report = driver.reader().read()
    assert report.readings[0].processes == processes
    assert report.errors == {}


def test_a_gpu_without_processes_has_an_empty_list(driver: Driver) -> None:
    driver.shows(replace(t4(), processes=(), process_samples=()))
    (reading,) = driver.reader().read().readings
    assert (reading.processes, reading.process_samples) == ((), ())


def test_a_card_without_support_has_no_list(driver: Driver) -> None:
    driver.shows(replace(t4(), processes=None, process_samples=None))
    report = driver.reader().read()
    assert (report.readings[0].processes, report.readings[0].process_samples) == (None, None)
    assert report.errors == {}


@pytest.mark.parametrize("count", [100, 5000, ABSURD])
def test_implausible_entries_and_counts_are_dropped_and_counted(driver: Driver, count: int) -> None:
    driver.shows(
        t4(),
        faults=[
            garbage("nvmlDeviceGetComputeRunningProcesses", count),
            garbage("nvmlDeviceGetProcessUtilization", count),
        ],
    )
    report = driver.reader().read()
    (reading,) = report.readings
    assert reading.up
    assert reading.power_watts == t4().power_watts
    assert report.errors["processes", "implausible"] > 0
    assert report.errors["process_samples", "implausible"] > 0
    assert all(0 < process.pid < 2**22 for process in reading.processes or ())
    assert all(sample.sm_ratio <= 1 for sample in reading.process_samples or ())


def test_a_failing_list_is_not_an_empty_list(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlDeviceGetComputeRunningProcesses", value=999)
    driver.shows(t4(), faults=[fault])
    report = driver.reader().read()
    assert report.readings[0].processes is None
    assert report.errors == {("processes", "unknown"): 1}


def test_a_process_with_an_unknown_name_has_none(driver: Driver) -> None:
    driver.shows(replace(t4(), processes=(Process(pid=77, kind="compute", memory_used_bytes=GIB),)))
    report = driver.reader().read()
    assert report.readings[0].processes == (Process(pid=77, kind="compute", memory_used_bytes=GIB),)
    assert report.errors == {}


def test_names_are_queried_once_and_forgotten_with_the_process(driver: Driver) -> None:
    def named(name: str) -> Reading:
        return replace(t4(), processes=(Process(77, "compute", name, GIB),))

    driver.shows(named("first"))
    reader = driver.reader()
    names = [process.name for process in reader.read().readings[0].processes or ()]
    driver.shows(named("second"))
    names += [process.name for process in reader.read().readings[0].processes or ()]
    driver.shows(replace(t4(), processes=()))
    reader.read()
    driver.shows(named("third"))
    names += [process.name for process in reader.read().readings[0].processes or ()]
    assert names == ["first", "first", "third"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3", "python3"),
        ("/usr/bin/python3 train.py --data /mnt/x", "python3"),
        ("python3", "python3"),
        ("ray::Trainer.fit", "ray::Trainer.fit"),
        ("nginx: worker process", "nginx: worker process"),
        ("sshd: user@pts/0", "sshd: user@pts/0"),
        ("", None),
        ("/opt/", None),
    ],
)
def test_short_names(command: str, name: str | None) -> None:
    assert short_name(command) == name


@given(st.text())
def test_a_short_name_can_be_made_from_any_text(command: str) -> None:
    name = short_name(command)
    assert name is None or name in command


def samples_of(reader: NvmlReader) -> tuple[ProcessSample, ...] | None:
    (reading,) = reader.read().readings
    return reading.process_samples


def test_samples_are_returned_once_and_then_only_newer_ones(driver: Driver, clock: Clock) -> None:
    first = ProcessSample(4711, SAMPLED_AT_US, 0.5, 0.25, 0.0, 0.0)
    second = ProcessSample(4711, SAMPLED_AT_US + 5_000_000, 0.75, 0.5, 0.25, 0.01)
    driver.shows(replace(t4(), process_samples=(first,)))
    reader = driver.reader()
    assert samples_of(reader) == (first,), "of the time before the first one nothing is known"
    clock.now_us += 2_000_000
    assert samples_of(reader) == ()
    clock.now_us += 3_000_000
    driver.shows(replace(t4(), process_samples=(first, second)))
    assert samples_of(reader) == (replace(second, covers_us=3_000_000),)


def test_samples_are_not_returned_again_after_the_driver_was_released(driver: Driver) -> None:
    driver.shows(t4())
    reader = driver.reader(release_driver=True)
    assert samples_of(reader) == t4().process_samples
    assert samples_of(reader) == ()


def test_a_sample_from_the_future_is_dropped(driver: Driver) -> None:
    now_us = time.time_ns() // 1000
    fine = ProcessSample(1, now_us, 0.5, 0.0, 0.0, 0.0)
    wrong = ProcessSample(2, now_us + 3_600_000_000, 0.5, 0.0, 0.0, 0.0)
    driver.shows(replace(t4(), process_samples=(fine, wrong)))
    report = driver.reader().read()
    assert [sample.pid for sample in report.readings[0].process_samples or ()] == [1]
    assert report.errors == {("process_samples", "implausible"): 1}


def test_a_sample_above_100_percent_is_dropped(driver: Driver) -> None:
    wrong = ProcessSample(4711, SAMPLED_AT_US, 1.01, 0.0, 0.0, 0.0)
    driver.shows(replace(t4(), process_samples=(wrong,)))
    report = driver.reader().read()
    assert report.readings[0].process_samples == ()
    assert report.errors == {("process_samples", "implausible"): 1}


def test_entries_that_the_driver_counts_and_does_not_write_are_no_errors(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syllo/nvtop#110: with a zombie on the GPU the count stays that of the buffer."""
    find = pynvml._nvmlGetFunctionPointer

    def found(name: str) -> Any:
        if name != "nvmlDeviceGetProcessUtilization":
            return find(name)  # type: ignore[no-untyped-call]
        return lambda *_: pynvml.NVML_SUCCESS

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", found)
    driver.shows(t4())
    report = driver.reader().read()
    assert (report.readings[0].process_samples, report.errors) == ((), {})


@pytest.mark.parametrize("raw", [0, 1], ids=["means", "every sample"])
def test_tenants_of_20_and_5_percent_are_charged_20_and_5_percent(
    driver: Driver, clock: Clock, raw: int
) -> None:
    mix = [Taken(2, 100, 100), *[IDLE] * 9, *[Taken(1, 100, 50)] * 4, *[IDLE] * 6]
    ring = Ring(mix * 20, SAMPLED_AT_US)
    clock.now_us += 5_000_000
    began_us = clock.now_us
    reader = driver.reader()
    busy: defaultdict[int, float] = defaultdict(float)
    memory: defaultdict[int, float] = defaultdict(float)
    for _ in range(12):
        card = replace(t4(), processes=(), process_samples=())
        driver.says(card, f"samples.raw {raw}\n" + ring.lines(clock.now_us))
        for sample in samples_of(reader) or ():
            busy[sample.pid] += sample.sm_ratio * sample.covers_us
            memory[sample.pid] += (sample.memory_ratio or 0.0) * sample.covers_us
        clock.now_us += 5_000_000
    passed_us = clock.now_us - 5_000_000 - began_us
    assert busy == pytest.approx({1: 0.20 * passed_us, 2: 0.05 * passed_us}, rel=0.08)
    assert memory == pytest.approx({1: 0.10 * passed_us, 2: 0.05 * passed_us}, rel=0.08)
