"""What NVML says is captured without identifiers, and read from the capture like from the driver."""

import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gputally.commands.capture import capture
from gputally.commands.capture.nvml import capture_nvml, device_functions, field_questions
from gputally.devices import Report
from gputally.devices.nvml import NvmlReader, xid
from gputally.model import MigReading, Process, Reading
from tests.support.nvml_cards import CARDS, h100, t4
from tests.support.nvml_replay import Replay, read_nvml
from tests.unit.devices.nvml.driver import Driver
from tools.servers.waiting import wait_until
from tools.standin.scenario import Fault, FaultKind, Frame, preload, write_scenario

ROUNDS = 3


THREADS = {"capture-nvml", "nvml-close", "nvml-events"}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(xid, "WAIT_SECONDS", 0.05)  # so that readers close at once
    scenario = tmp_path / "scenario"
    write_scenario(scenario, [Frame(0.0, ())])
    preload(scenario)
    driver = Driver(scenario)
    yield driver
    # A thread that still has the driver open would keep it open for the tests that follow.
    wait_until(lambda: not THREADS & {thread.name for thread in threading.enumerate()})
    driver.close()


def take(directory: Path, *, rounds: int = ROUNDS, **options: Any) -> tuple[int, str, Path]:
    out, file = io.StringIO(), directory / "capture.tar.gz"
    nvml = partial(capture_nvml, rounds=rounds, interval_seconds=0, **options)
    nothing = directory / "nothing"
    code = capture(nothing, nothing, str(nothing), file, out, nvml=nvml)
    return code, out.getvalue(), file


def read(rounds: int, replay: Replay | None = None) -> list[Report]:
    reader = NvmlReader(pcie_throughput=True, accounting=True)
    reports = []
    try:
        for number in range(1, rounds + 1):
            if replay is not None:
                replay.round = number
            reports.append(reader.read())
    finally:
        reader.close()
    return reports


def nameless(processes: tuple[Process, ...] | None) -> int | None:
    return None if processes is None else len(processes)


def anonymous(reading: Reading) -> Reading:
    """Without what a capture changes, and without what depends on the clock."""

    def mig(one: MigReading) -> MigReading:
        instance = replace(one.instance, uuid="", parent_uuid="")
        return replace(one, instance=instance, processes=None, process_samples=None)

    return replace(
        reading,
        gpu=replace(reading.gpu, uuid="", serial=reading.gpu.serial and "", pci_bus_id=""),
        mig=tuple(map(mig, reading.mig)),
        processes=None,
        process_samples=None,
        accounted=None,
        fabric_clique=reading.fabric_clique and dict.fromkeys([("",)], *reading.fabric_clique.values()),
        xid_errors=None,
        xid_last_timestamp_seconds=None,
    )


@pytest.mark.parametrize("kind", CARDS)
def test_a_capture_is_read_like_the_driver(driver: Driver, tmp_path: Path, kind: str) -> None:
    driver.shows(CARDS[kind](0), CARDS[kind](1))
    code, said, file = take(tmp_path)
    assert (code, "captured NVIDIA GPUs: 2" in said) == (0, True)
    expected = read(ROUNDS)
    replay = Replay(read_nvml(file))
    with replay.playing():
        replayed = read(ROUNDS, replay)
    for original, copy in zip(expected, replayed, strict=True):
        assert [anonymous(one) for one in copy.readings] == [anonymous(one) for one in original.readings]
        for one, other in zip(original.readings, copy.readings, strict=True):
            assert nameless(one.processes) == nameless(other.processes)
            assert [mig.memory_used_bytes for mig in one.mig] == [mig.memory_used_bytes for mig in other.mig]
    assert len({reading.gpu.uuid for reading in replayed[0].readings}) == 2


def test_nothing_in_a_capture_identifies_gpus_or_processes(driver: Driver, tmp_path: Path) -> None:
    cards = [card(index) for index, card in enumerate(CARDS.values())]
    driver.shows(*cards)
    _, _, file = take(tmp_path, rounds=2)
    text = json.dumps(read_nvml(file))
    pids = {process.pid for card in cards for process in card.processes or ()}
    names = {process.name for card in cards for process in card.processes or () if process.name}
    private = {card.gpu.uuid for card in cards} | {str(card.gpu.serial) for card in cards} | names
    private |= {str(card.gpu.pci_bus_id) for card in cards}
    private |= {mig.instance.uuid for card in cards for mig in card.mig}
    assert pids
    for word in private:
        assert word not in text
    for call in read_nvml(file)["calls"]:
        if "Process" in call["call"] or "Accounting" in call["call"]:
            numbers = {int(one) for one in re.findall(r"\d+", json.dumps(call["arguments"]))}
            assert not numbers & pids, call


def test_the_survey_has_every_field_and_the_functions_that_describe_a_gpu(
    driver: Driver, tmp_path: Path
) -> None:
    driver.shows(h100())
    _, _, file = take(tmp_path, rounds=1)
    surveyed = [call for call in read_nvml(file)["calls"] if call["by"] == "survey"]
    asked = {call["call"] for call in surveyed}
    assert {"nvmlDeviceGetPowerUsage", "nvmlGpmMetricsGet", "nvmlDeviceGetProcessUtilization"} <= asked
    fields = [
        row
        for call in surveyed
        if call["call"] == "nvmlDeviceGetFieldValues"
        for row in call["arguments"][2]["out"]
    ]
    questions = [one for some in field_questions(pynvml) for one in some]
    assert [(row["fieldId"], row["scopeId"]) for row in fields] == questions
    assert any(row["nvmlReturn"] for row in fields)
    assert any(not row["nvmlReturn"] for row in fields)
    assert all(name.startswith("nvmlDeviceGet") for name in device_functions(pynvml))
    assert not {"nvmlDeviceGetHostname_v1", "nvmlDeviceGetSerial"} & set(device_functions(pynvml))


def test_a_driver_that_does_not_start_is_said(driver: Driver, tmp_path: Path) -> None:
    fault = Fault(FaultKind.ERROR, function="nvmlInitWithFlags", value=9)
    driver.shows(h100(), faults=[fault])
    code, said, file = take(tmp_path)
    assert (code, file.exists()) == (1, False)
    assert "not captured: NVML: " in said


def test_a_call_that_hangs_is_recorded_with_the_calls_before_it(driver: Driver, tmp_path: Path) -> None:
    driver.shows(h100(), faults=[Fault(FaultKind.HANG, function="nvmlDeviceGetBrand")])
    code, said, file = take(tmp_path, rounds=1, longest_seconds=3)
    driver.shows(h100())  # the thread of the capture ends
    recorded = read_nvml(file)
    assert (code, [one["call"] for one in recorded["hanging"]]) == (0, ["nvmlDeviceGetBrand"])
    assert "nvmlDeviceGetBrand" in said
    assert any(call["call"] == "nvmlDeviceGetPerformanceState" for call in recorded["calls"])


def test_a_capture_is_one_new_file_with_a_list_of_its_content(driver: Driver, tmp_path: Path) -> None:
    driver.shows(t4())
    _, said, file = take(tmp_path, rounds=1)
    with tarfile.open(file) as archive:
        assert sorted(archive.getnames()) == ["README.txt", "nvml.json"]
        readme = archive.extractfile("README.txt")
        assert readme is not None
        assert readme.read().decode() in said
    assert take(tmp_path)[0] == 2, "it exists"
