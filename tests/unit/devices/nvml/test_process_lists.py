"""Process lists, names and samples: also when the driver counts wrong."""

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.nvml.process_lists import PROCESS, SAMPLE, Entries, short_name
from gputally.model import Process, ProcessSample, Reading
from tests.support.nvml_cards import GIB, SAMPLED_AT_US, t4
from tests.unit.devices.nvml.driver import Driver
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


def test_samples_are_reported_once(driver: Driver) -> None:
    first = ProcessSample(4711, SAMPLED_AT_US + 5, 0.5, 0.25, 0.0, 0.0)
    second = ProcessSample(4711, SAMPLED_AT_US + 9, 0.75, 0.5, 0.25, 0.01)
    driver.shows(replace(t4(), process_samples=(first,)))
    reader = driver.reader()
    assert reader.read().readings[0].process_samples == (first,)
    assert reader.read().readings[0].process_samples == ()
    driver.shows(replace(t4(), process_samples=(first, second)))
    assert reader.read().readings[0].process_samples == (replace(second, covers_us=4),)


def test_samples_are_not_reported_again_after_a_new_initialisation(driver: Driver) -> None:
    driver.shows(t4())
    reader = driver.reader(release_driver=True)
    assert reader.read().readings[0].process_samples == t4().process_samples
    assert reader.read().readings[0].process_samples == ()


def test_a_sample_from_the_future_is_dropped(driver: Driver) -> None:
    now_us = time.time_ns() // 1000
    fine = ProcessSample(1, now_us, 0.5, 0.0, 0.0, 0.0)
    wrong = ProcessSample(2, now_us + 3_600_000_000, 0.5, 0.0, 0.0, 0.0)
    driver.shows(replace(t4(), process_samples=(fine, wrong)))
    reader = driver.reader()
    report = reader.read()
    assert report.readings[0].process_samples == (fine,)
    assert report.errors == {("process_samples", "implausible"): 1}


def test_a_sample_above_100_percent_is_dropped(driver: Driver) -> None:
    wrong = ProcessSample(4711, SAMPLED_AT_US, 1.01, 0.0, 0.0, 0.0)
    driver.shows(replace(t4(), process_samples=(wrong,)))
    report = driver.reader().read()
    assert report.readings[0].process_samples == ()
    assert report.errors == {("process_samples", "implausible"): 1}


def test_samples_have_the_time_since_the_previous_sample(driver: Driver) -> None:
    now_us = time.time_ns() // 1000
    first, second, third, slept = (
        ProcessSample(pid, now_us - ago, 0.5, 0.25, 0.0, 0.0)
        for pid, ago in ((4711, 4_000_000), (4711, 3_800_000), (4711, 3_600_000), (4712, 2_000_000))
    )
    driver.shows(replace(t4(), process_samples=(first,)))
    reader = driver.reader()
    assert reader.read().readings[0].process_samples == (first,), "nothing is known of the time before"
    driver.shows(replace(t4(), process_samples=(first, second, third, slept)))
    covers = [sample.covers_us for sample in reader.read().readings[0].process_samples or ()]
    assert covers == [200_000, 200_000, 200_000]
